"""Gaps and overlaps between the files of a table, and between it and the log."""

from collections.abc import Iterable

from iceberg_export.jobs.coverage import LogBounds, beyond, gaps, not_in_table, overlaps
from iceberg_export.jobs.examine import IndexRow, OffsetSpan
from iceberg_export.jobs.findings import TableFinding

HULLS = {"a": (OffsetSpan(0, 0, 10), OffsetSpan(1, 5, 6)), "b": (OffsetSpan(0, 10, 19),)}
LOG = {0: LogBounds(0, 20), 1: LogBounds(5, 6)}
INDEX = {
    "a": [IndexRow(0, 0, 4, 0, 0, 4), IndexRow(0, 4, 10, 0, 4, 5), IndexRow(1, 5, 6, 1, 0, 1)],
    "b": [IndexRow(0, 10, 20, 0, 0, 8)],
}


def lines(findings: Iterable[TableFinding]) -> list[str]:
    return [finding.line().partition("; see ")[0] for finding in findings]


def test_nothing_is_found_where_files_follow_each_other() -> None:
    assert lines(overlaps(HULLS)) == []
    assert lines(gaps(INDEX, LOG)) == []
    assert lines(not_in_table(INDEX, HULLS)) == []
    assert lines(beyond(HULLS, LOG)) == []


def test_records_in_two_files() -> None:
    found = lines(overlaps({**HULLS, "c": (OffsetSpan(0, 18, 30),)}))
    assert found == ["c, partition 0, offset 18: offsets 18 to 18 are in another file, too: b"]


def test_a_file_within_another_one_that_is_not_its_neighbour() -> None:
    found = lines(overlaps({"a": (OffsetSpan(0, 0, 100),), "b": (OffsetSpan(0, 1, 2),), "c": (OffsetSpan(0, 50, 60),)}))
    assert found == [
        "b, partition 0, offset 1: offsets 1 to 1 are in another file, too: a",
        "c, partition 0, offset 50: offsets 50 to 59 are in another file, too: a",
    ]


def test_a_gap_in_the_index() -> None:
    found = lines(gaps({"a": INDEX["a"], "b": [IndexRow(0, 12, 20, 0, 0, 8)]}, LOG))
    assert found == ["partition 0, offset 10: offsets 10 to 11 are archived, and in no chunk of the log's index"]


def test_what_the_index_lacks_at_either_end() -> None:
    words = "are archived, and in no chunk of the log's index"
    assert lines(gaps({"b": INDEX["b"]}, {0: LOG[0]})) == [f"partition 0, offset 0: offsets 0 to 9 {words}"]
    assert lines(gaps({"a": INDEX["a"]}, LOG)) == [f"partition 0, offset 10: offsets 10 to 19 {words}"]
    assert lines(gaps({}, LOG))[1] == f"partition 1, offset 5: offsets 5 to 5 {words}"


def test_a_chunk_that_is_in_two_files() -> None:
    found = lines(gaps({**INDEX, "c": [IndexRow(0, 4, 10, 0, 0, 5)]}, LOG))
    assert found == ["c, partition 0, offset 4: offsets 4 to 9 are in two chunks of the log's index"]


def test_what_the_log_has_dropped_need_not_be_there() -> None:
    assert lines(gaps({"b": INDEX["b"]}, {0: LogBounds(12, 20)})) == []
    assert lines(gaps({}, {0: LogBounds(25, 20)})) == []


def test_more_than_is_archived() -> None:
    log = {0: LogBounds(0, 15), 1: LOG[1]}
    assert lines(gaps(INDEX, log)) == [
        "partition 0, offset 15: offsets up to 19 are in the log's index, which says that 15 is the end"
    ]
    assert lines(beyond(HULLS, log)) == [
        "b, partition 0, offset 15: its rows reach offset 18, and the log is archived up to 15"
    ]
    assert lines(beyond({"a": (OffsetSpan(7, 3, 5),)}, log)) == [
        "a, partition 7, offset 3: its rows reach offset 4, and the log is archived up to 0"
    ]


def test_a_file_of_the_log_that_is_not_in_the_table() -> None:
    index = {**INDEX, "void": [IndexRow(0, 20, 22, 0, 0, 0)]}
    assert lines(not_in_table(index, {"a", "b"})) == []
    assert lines(not_in_table(index, {"b"})) == [
        "a, partition 0, offset 0: the log reads 10 records in it, and it is not in the table"
    ]
