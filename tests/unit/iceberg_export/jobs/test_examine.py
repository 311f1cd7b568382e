"""What a verification finds in a file that is not as it is said to be; each fault planted by itself."""

import io
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_export.jobs.examine import FileTask, IndexRow, Span, examine
from iceberg_export.tables.data_file import DataFile, RowBounds
from protocol.limits import VERIFY_FINDINGS_MAX

Places = list[tuple[int, int]]
GROUPS: list[Places] = [[(0, 0), (0, 1), (0, 3)], [(1, 7), (1, 8)]]
"""Of each row group, partition and offset of each row; offset 2 was aborted."""
SPANS = (Span(0, 0, 4), Span(1, 7, 9))
INDEX = (IndexRow(0, 0, 2, 0, 0, 2), IndexRow(0, 2, 4, 0, 2, 1), IndexRow(1, 7, 9, 1, 0, 2))


def parquet(groups: list[Places]) -> bytes:
    sink = io.BytesIO()
    schema = pa.schema([("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC"))])
    with pq.ParquetWriter(sink, schema) as writer:
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
        null_keys=None,
        null_values=None,
        split_offsets=(),
    )


def findings(groups: list[Places], said: list[Places] = GROUPS) -> str:
    """Of a file with `groups`, where manifest, footer and index go by `said`."""
    data = parquet(groups)
    file = replace(data_file(data, said), object_bytes=len(data))
    report = examine(data, FileTask(file=file, spans=SPANS, index=INDEX))
    assert report.row_count == sum(map(len, groups))
    return "\n".join(report.findings)


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert findings(GROUPS) == ""


def test_a_record_that_is_missing() -> None:
    found = findings([[(0, 0), (0, 3)], [(1, 7), (1, 8)]])
    assert "it has 4 rows, its manifest says 5" in found
    assert "offsets 0 to 1 of partition 0 are 2 records by the log's index, and 1 rows" in found


def test_a_record_that_stands_twice() -> None:
    found = findings([[(0, 0), (0, 1), (0, 1), (0, 3)], [(1, 7), (1, 8)]])
    assert "offset 1 of partition 0 stands twice, in row 2" in found
    assert "offsets 0 to 1 of partition 0 are 2 records by the log's index, and 3 rows" in found


def test_an_aborted_record_that_is_there() -> None:
    found = findings([[(0, 0), (0, 1), (0, 2), (0, 3)], [(1, 7), (1, 8)]])
    assert "offsets 2 to 3 of partition 0 are 1 records by the log's index, and 2 rows" in found


def test_a_record_at_another_offset_though_numbers_are_right() -> None:
    assert "offset 9 of partition 1 is none of the offsets" in findings([[(0, 0), (0, 1), (0, 3)], [(1, 7), (1, 9)]])


def test_a_record_of_another_partition() -> None:
    found = findings([[(0, 0), (0, 1), (0, 3)], [(1, 7), (2, 8)]])
    assert "offset 8 of partition 2 is none of the offsets for which its footer answers" in found
    assert "its manifest's bounds are not those of its rows" in found


def test_rows_that_are_out_of_order() -> None:
    assert "offset 0 of partition 0 stands behind a later one" in findings([[(0, 1), (0, 0), (0, 3)], GROUPS[1]])
    assert "offset 0 of partition 0 stands behind a later one" in findings([GROUPS[1], GROUPS[0]])


def test_a_row_group_that_is_missing() -> None:
    assert "in row group 1 by the log's index, and the file has no such" in findings([GROUPS[0]])


def test_a_file_of_another_size() -> None:
    data = parquet(GROUPS)
    file = replace(data_file(data, GROUPS), object_bytes=7)
    (found,) = examine(data, FileTask(file=file, spans=SPANS, index=INDEX)).findings
    assert found == f"it has {len(data):,} bytes, its manifest says 7"


@pytest.mark.parametrize("damaged", [b"", b"PAR1", parquet(GROUPS)[:-1], parquet(GROUPS)[:100] + parquet(GROUPS)[160:]])
def test_a_file_that_cannot_be_read(damaged: bytes) -> None:
    report = examine(damaged, FileTask(file=data_file(damaged, GROUPS), spans=SPANS, index=INDEX))
    assert report.row_count == 0
    assert report.findings[-1].startswith("it cannot be read: ")


def test_a_place_that_is_null() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"partition": [0], "offset": pa.array([None], pa.int64()), "timestamp": [0]}), sink)
    data = sink.getvalue()
    (found,) = examine(data, FileTask(file=data_file(data, GROUPS), spans=SPANS, index=INDEX)).findings
    assert found == "it cannot be read: row group 0 has rows without offset"


def test_of_very_many_findings_some_are_told() -> None:
    data = parquet([[(0, 0)] * 1_000])
    report = examine(data, FileTask(file=data_file(data, [[(0, 0)] * 1_000]), spans=SPANS, index=()))
    assert len(report.findings) == VERIFY_FINDINGS_MAX + 1
    assert report.findings[-1] == f"and {999 - VERIFY_FINDINGS_MAX} more findings like these"
