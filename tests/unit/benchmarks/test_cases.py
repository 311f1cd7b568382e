"""The rows that are measured."""

from benchmarks.cases import Kind, cases


def test_produce_rows_are_all_combinations() -> None:
    rows = [case for case in cases() if case.kind is Kind.PRODUCE]
    shapes = {(case.value_bytes, case.partitions, case.compression, case.batch_bytes) for case in rows}
    assert len(rows) == len(shapes) == 2 * 2 * 3 * 2


def test_names_are_unique() -> None:
    names = [case.name for case in cases()]
    assert len(names) == len(set(names))


def test_a_quick_run_has_every_kind() -> None:
    assert {case.kind for case in cases() if case.is_in_quick} == set(Kind)
