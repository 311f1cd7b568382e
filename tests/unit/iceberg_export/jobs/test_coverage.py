"""Gaps and overlaps between the files of a table, and between it and the log."""

from iceberg_export.jobs.coverage import LogBounds, not_covered, not_in_table, overlaps
from iceberg_export.jobs.examine import IndexRow, Span

SPANS = {"a": (Span(0, 0, 10), Span(1, 5, 6)), "b": (Span(0, 10, 20),)}
LOG = {0: LogBounds(0, 20), 1: LogBounds(5, 6)}


def test_nothing_is_found_where_files_follow_each_other() -> None:
    assert list(overlaps(SPANS)) == []
    assert list(not_covered(SPANS, LOG, [])) == []


def test_offsets_in_two_files() -> None:
    (found,) = overlaps({**SPANS, "c": (Span(0, 19, 30),)})
    assert found == "offsets 19 to 19 of partition 0 are in two files: b and c"


def test_a_gap_between_files() -> None:
    spans = {**SPANS, "b": (Span(0, 12, 20),)}
    assert list(not_covered(spans, LOG, [])) == ["offsets 10 to 11 of partition 0 are in no file"]
    assert list(not_covered(spans, LOG, [Span(0, 10, 12)])) == [], "all of it was aborted"


def test_a_file_that_is_missing_at_either_end() -> None:
    assert list(not_covered({"b": SPANS["b"]}, {0: LOG[0]}, [])) == ["offsets 0 to 9 of partition 0 are in no file"]
    assert list(not_covered({"a": SPANS["a"]}, LOG, [])) == ["offsets 10 to 19 of partition 0 are in no file"]


def test_what_the_log_has_dropped_need_not_be_there() -> None:
    assert list(not_covered({"b": SPANS["b"]}, {0: LogBounds(10, 20)}, [])) == []
    assert list(not_covered(SPANS, {0: LogBounds(25, 20), 1: LOG[1]}, [])) == []


def test_more_than_is_archived() -> None:
    (found,) = not_covered(SPANS, {0: LogBounds(0, 15), 1: LOG[1]}, [])
    assert found == "offsets 15 to 19 of partition 0 are in a file, and not archived"


def test_a_file_of_the_log_that_is_not_in_the_table() -> None:
    index = {"a": [IndexRow(0, 0, 10, 0, 0, 10)], "void": [IndexRow(0, 20, 22, 0, 0, 0)]}
    assert not_in_table(index, {"a"}) == []
    assert not_in_table(index, set()) == ["a"]
