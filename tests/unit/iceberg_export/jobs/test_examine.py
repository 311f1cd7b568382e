"""What a verification finds in a file that is not as it is said to be; each fault planted by itself."""

import io
import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_export.jobs.examine import PLACES, FileReport, FileTask, IndexRow, OffsetSpan, TableFacts, examine
from iceberg_export.tables.column_counts import ColumnCounts
from iceberg_export.tables.data_file import DataFile, RowBounds
from protocol.limits import VERIFY_FINDINGS_MAX

Places = list[tuple[int, int]]
GROUPS: list[Places] = [[(0, 0), (0, 1), (0, 3)], [(1, 7), (1, 8)]]
"""Of each row group, partition and offset of each row; offset 2 was aborted."""
SPANS = (OffsetSpan(0, 0, 4), OffsetSpan(1, 7, 9))
INDEX = (IndexRow(0, 0, 2, 0, 0, 2), IndexRow(0, 2, 4, 0, 2, 1), IndexRow(1, 7, 9, 1, 0, 2))


TOLD = TableFacts(log_starts=(0, 0))


def parquet(groups: list[Places], spans: tuple[OffsetSpan, ...] | None = SPANS) -> bytes:
    sink = io.BytesIO()
    footer = None if spans is None else {"penstock.archive": json.dumps({"version": 1, "partitions": spans})}
    schema = pa.schema([("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC"))])
    with pq.ParquetWriter(sink, schema.with_metadata(footer)) as writer:
        for group in groups:
            columns = [[partition for partition, _ in group], [offset for _, offset in group]]
            times = [1_000 * offset for _, offset in group]
            writer.write_table(pa.table([*columns, times], schema=schema))
    return sink.getvalue()


def data_file(data: bytes, groups: list[Places]) -> DataFile:
    places = [place for group in groups for place in group]
    partitions, offsets = [partition for partition, _ in places], [offset for _, offset in places]
    bounds = RowBounds(
        partition_min=min(partitions),
        partition_max=max(partitions),
        offset_min=min(offsets),
        offset_max=max(offsets),
        timestamp_us_min=1_000 * min(offsets),
        timestamp_us_max=1_000 * max(offsets),
    )
    return DataFile(
        key="lake/orders/data/1.parquet",
        object_bytes=len(data),
        record_count=len(places),
        bounds=bounds,
        counts=ColumnCounts.of([]),
        split_offsets=(),
    )


def examined(groups: list[Places], said: list[Places] = GROUPS, told: TableFacts = TOLD) -> FileReport:
    """A file with `groups`, where manifest, footer and index go by `said`."""
    data = parquet(groups)
    report = examine(data, FileTask(file=data_file(data, said), index=INDEX), told)
    assert report.row_count == sum(map(len, groups))
    return report


def findings(groups: list[Places]) -> str:
    return lines(examined(groups))


def lines(report: FileReport) -> str:
    assert all(finding.file == report.key for finding in report.findings)
    return "\n".join(finding.line() for finding in report.findings)


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    report = examined(
        GROUPS,
        told=TableFacts(log_starts=(0, 0), counted=(OffsetSpan(0, 0, 3), OffsetSpan(1, 8, 9), OffsetSpan(2, 0, 9))),
    )
    assert report.findings == ()
    assert report.dropped_count == 0
    assert report.hulls == (OffsetSpan(0, 0, 4), OffsetSpan(1, 7, 9))
    assert report.counts == {0: 2, 1: 1}


def test_a_record_that_is_missing() -> None:
    found = findings([[(0, 0), (0, 3)], [(1, 7), (1, 8)]])
    assert "it has 4 rows, its manifest says 5" in found
    assert "partition 0, offset 0: offsets 0 to 1 are 2 records by the log's index, and 1 rows; see docs/" in found


def test_a_record_that_stands_twice() -> None:
    found = findings([[(0, 0), (0, 1), (0, 1), (0, 3)], [(1, 7), (1, 8)]])
    assert "partition 0, offset 1: the record stands twice, in row 2" in found
    assert "offsets 0 to 1 are 2 records by the log's index, and 3 rows" in found


def test_an_aborted_record_that_is_there() -> None:
    found = findings([[(0, 0), (0, 1), (0, 2), (0, 3)], [(1, 7), (1, 8)]])
    assert "partition 0, offset 2: offsets 2 to 3 are 1 records by the log's index, and 2 rows" in found


def test_a_record_at_another_offset_though_numbers_are_right() -> None:
    found = findings([[(0, 0), (0, 1), (0, 3)], [(1, 7), (1, 9)]])
    assert "partition 1, offset 9: it is none of the offsets for which the file's footer answers" in found
    assert "partition 1, offset 9: the log's index has no such record in this file" in found


def test_a_record_of_another_partition() -> None:
    found = findings([[(0, 0), (0, 1), (0, 3)], [(1, 7), (2, 8)]])
    assert "partition 2, offset 8: it is none of the offsets" in found
    assert "partition 2, offset 8: the log's index has no such record in this file" in found
    assert "its manifest's bounds are not those of its rows" in found


def test_what_the_log_has_dropped_is_counted_and_no_finding() -> None:
    data = parquet(GROUPS)
    task = FileTask(file=data_file(data, GROUPS), index=INDEX[1:])
    report = examine(data, task, TableFacts(log_starts=(2, 0)))
    assert (report.findings, report.dropped_count, report.row_count) == ((), 2, 5)
    assert "partition 0, offset 1: the log's index has no such record" in lines(examine(data, task, TOLD))
    assert examine(data, replace(task, index=()), TableFacts(log_starts=(4, 9))).dropped_count == 5
    assert examine(data, replace(task, index=None), TOLD).findings == (), "nobody was asked"


def test_rows_that_are_out_of_order() -> None:
    found = findings([[(0, 1), (0, 0), (0, 3)], GROUPS[1]])
    assert "partition 0, offset 0: the record stands behind a later one" in found
    assert "log's index" not in found, "all of them are there"
    assert "offset 0: the record stands behind a later one" in findings([GROUPS[1], GROUPS[0]])


def test_a_row_group_that_is_missing() -> None:
    assert "partition 1, offset 7: offsets 7 to 8 are 2 records by the log's index, and 0 rows" in findings([GROUPS[0]])


def test_rows_in_another_row_group_than_the_index_says() -> None:
    found = findings([GROUPS[0] + GROUPS[1]])
    assert "offsets 7 to 8 are in row group 1 from row 0 on by the log's index, and not there" in found
    assert "offsets 2 to 3 are in row group 1" not in found
    found = findings([GROUPS[0][:1], GROUPS[0][1:] + GROUPS[1]])
    assert "offsets 0 to 1 are in row group 0 from row 0 on by the log's index, and not there" in found


def test_bounds_of_a_manifest_that_are_too_wide() -> None:
    data = parquet(GROUPS)
    file = data_file(data, GROUPS)
    assert file.bounds is not None
    for name, value in (("partition_max", 2), ("offset_max", 9), ("timestamp_us_min", -1)):
        wrong = replace(file, bounds=replace(file.bounds, **{name: value}))
        (found,) = examine(data, FileTask(file=wrong, index=INDEX), TOLD).findings
        assert found.what.startswith("its manifest's bounds are not those of its rows: ")


def test_a_file_without_rows() -> None:
    data = parquet([])
    file = replace(data_file(data, GROUPS), record_count=0, bounds=None)
    report = examine(data, FileTask(file=file, index=(IndexRow(0, 0, 4, 0, 0, 0),)), TOLD)
    assert (report.findings, report.hulls) == ((), ())


def test_a_footer_that_says_nothing() -> None:
    data = parquet(GROUPS, spans=None)
    (found,) = examine(data, FileTask(file=data_file(data, GROUPS), index=INDEX), TOLD).findings
    assert found.what == "its footer does not say which offsets it answers for: Penstock did not write it"


def test_a_file_of_another_size() -> None:
    data = parquet(GROUPS)
    file = replace(data_file(data, GROUPS), object_bytes=7)
    (found,) = examine(data, FileTask(file=file, index=INDEX), TOLD).findings
    assert found.what == f"it has {len(data):,} bytes, its manifest says 7"
    assert "A damaged file" in found.line()


@pytest.mark.parametrize("damaged", [b"", b"PAR1", parquet(GROUPS)[:-1], parquet(GROUPS)[:100] + parquet(GROUPS)[160:]])
def test_a_file_that_cannot_be_read(damaged: bytes) -> None:
    report = examine(damaged, FileTask(file=data_file(damaged, GROUPS), index=INDEX), TOLD)
    assert report.row_count == 0
    assert report.findings[-1].what.startswith("it cannot be read: ")


@pytest.mark.parametrize("column", ["partition", "offset", "timestamp"])
def test_a_place_that_is_null(column: str) -> None:
    sink = io.BytesIO()
    columns = {name: pa.array([None if name == column else 0], pa.int64()) for name in PLACES}
    pq.write_table(pa.table(columns), sink)
    data = sink.getvalue()
    (found,) = examine(data, FileTask(file=data_file(data, GROUPS), index=INDEX), TOLD).findings
    assert found.what == f"it cannot be read: row group 0 has rows without {column}"


def test_a_typed_column_that_cannot_be_decoded() -> None:
    """Its bytes are no UTF-8, as Parquet says they are."""
    sink = io.BytesIO()
    city = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers())
    pq.write_table(pa.table({"partition": [0], "offset": [0], "timestamp": [0], "value_city": city}), sink)
    data = sink.getvalue()
    (found,) = examine(data, FileTask(file=data_file(data, GROUPS), index=INDEX), TOLD).findings
    assert found.what.startswith("it cannot be read: ")


def test_of_very_many_findings_some_are_told() -> None:
    groups: list[Places] = [[(0, 0)] * 1_000]
    data = parquet(groups)
    report = examine(data, FileTask(file=data_file(data, groups), index=None), TOLD)
    assert len(report.findings) == VERIFY_FINDINGS_MAX + 1
    assert report.findings[-1].what == f"and {999 - VERIFY_FINDINGS_MAX} more like these"
