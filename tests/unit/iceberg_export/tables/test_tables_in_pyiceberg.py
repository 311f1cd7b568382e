"""What is written here, read by PyIceberg, polars and DuckDB over real files."""

from dataclasses import replace
from pathlib import Path

import duckdb
import polars
import pytest
from pyiceberg.table import StaticTable

from iceberg_export.parquet.arrow_rows import arrow_schema
from iceberg_export.parquet.source_chunks import SourceChunk
from iceberg_export.parquet.writer import ArchiveWriter
from iceberg_export.tables.data_file import DataFile
from iceberg_export.tables.metadata import empty_metadata, encode, table_location
from protocol.types import NO_TIMESTAMP, ObjectNumber, Offset, PartitionIndex
from storage.embedded.local_store import LocalStore
from storage.refs import parquet_key
from tests.support.lake.table_fixtures import CREATED_MS, NAME, SESSION, TOPIC, MadeTable
from tests.support.records.plain_records import Record, make_batch

RECORDS = 20


class FilesTable(MadeTable):
    """A table over a folder, with Parquet files that hold rows."""

    def __init__(self, folder: Path) -> None:
        super().__init__(store=LocalStore(folder, is_durable=False), root=f"file://{folder}")

    async def archive(self, number: int) -> DataFile:
        """The n-th file: `RECORDS` records of partition `number % 2` from offset `number * RECORDS`."""
        first = number * RECORDS
        records = make_batch(
            [
                Record(
                    offset=offset,
                    timestamp=1_700_000_000_000 + offset,
                    key=None if offset % 5 == 0 else b"k%d" % offset,
                    value=b"v%d" % offset,
                    headers=((b"h", b"x"), (b"none", None)),
                )
                for offset in range(first, first + RECORDS)
            ]
        )
        with ArchiveWriter(topic_id=TOPIC, row_group_bytes_target=300) as writer:
            writer.add(
                SourceChunk(
                    partition=PartitionIndex(number % 2),
                    offset_first=Offset(first),
                    offset_end=Offset(first + RECORDS),
                    append_time_ms=NO_TIMESTAMP,
                    records=records,
                )
            )
            file = writer.finish()
        await self.store.put(key_of(number), file.parts)
        return file.data_file(key_of(number))

    def open(self, metadata_key: str = "") -> StaticTable:
        return StaticTable.from_metadata(f"{self.root}/{metadata_key or self.metadata_key}")


def offsets(table: StaticTable, row_filter: str = "True", snapshot_id: int | None = None) -> list[int]:
    scan = table.scan(row_filter=row_filter, snapshot_id=snapshot_id)
    return sorted(scan.to_arrow().column("offset").to_pylist())


def key_of(number: int) -> str:
    return parquet_key(NAME, TOPIC, SESSION, ObjectNumber(number))


def files_planned(table: StaticTable, row_filter: str) -> int:
    return len(list(table.scan(row_filter=row_filter).plan_files()))


async def test_rows_come_back_with_the_types_of_the_file(tmp_path: Path) -> None:
    made = FilesTable(tmp_path)
    await made.commit(await made.archive(0), await made.archive(1))
    table = made.open()
    rows = table.scan().to_arrow().sort_by("offset")
    assert rows.schema.names == arrow_schema().names
    assert rows.column("offset").to_pylist() == list(range(2 * RECORDS))
    assert rows.column("key").to_pylist()[:2] == [None, b"k1"]
    assert rows.column("headers").to_pylist()[0] == [{"key": "h", "value": b"x"}, {"key": "none", "value": None}]
    assert rows.column("timestamp")[3].as_py().timestamp() == 1_700_000_000.003
    assert table.sort_order().fields[0].source_id == 1
    assert table.spec().is_unpartitioned()
    assert table.location() == f"{made.root}/lake/flights-{TOPIC.hex()}"


async def test_bounds_and_counts_spare_files_that_cannot_match(tmp_path: Path) -> None:
    made = FilesTable(tmp_path)
    for number in range(6):
        await made.commit(await made.archive(number))
    table = made.open()
    assert files_planned(table, "offset = 45") == 1
    assert offsets(table, "offset >= 45 and offset < 63") == list(range(45, 63))
    assert files_planned(table, "partition = 1") == 3
    assert files_planned(table, "partition = 1 and offset < 60") == 1
    assert files_planned(table, "timestamp >= '2023-11-14T22:13:20.100+00:00'") == 1
    assert files_planned(table, "value is null") == 0
    assert files_planned(table, "key is null") == 6


async def test_split_offsets_are_where_row_groups_begin(tmp_path: Path) -> None:
    made = FilesTable(tmp_path)
    file = await made.archive(0)
    await made.commit(file)
    (task,) = made.open().scan().plan_files()
    assert task.file.split_offsets == list(file.split_offsets)
    assert len(file.split_offsets) > 1
    assert file.split_offsets[0] == 4
    assert task.file.sort_order_id == 1


async def test_snapshots_can_be_gone_back_to(tmp_path: Path) -> None:
    made = FilesTable(tmp_path)
    await made.commit(await made.archive(0), offsets={0: (0, 20)})
    await made.commit(await made.archive(1))
    await made.commit(dropped=[key_of(0)])
    table = made.open()
    ids = [snapshot.snapshot_id for snapshot in table.snapshots()]
    assert [str(snapshot.summary.operation.value) for snapshot in table.snapshots() if snapshot.summary] == [
        "append",
        "append",
        "replace",
    ]
    assert offsets(table) == list(range(20, 40))
    assert offsets(table, snapshot_id=ids[1]) == list(range(40))
    assert offsets(table, snapshot_id=ids[0]) == list(range(20))
    by_time = table.snapshot_as_of_timestamp(made.now_ms - 1_500)
    assert by_time is not None
    assert by_time.snapshot_id == ids[0]


async def test_rows_are_all_there_after_merges_drops_and_expiry(tmp_path: Path) -> None:
    made = FilesTable(tmp_path)
    kept = (0, 50, 100, 150, 200)
    file = await made.archive(0)
    await made.commit(file)
    for number in range(1, 201):
        # Most are dropped before anything is read of them but what manifests say.
        await made.commit(await made.archive(number) if number in kept else replace(file, key=key_of(number)))
    await made.commit(dropped=[key_of(number) for number in range(201) if number not in kept])
    await made.store.delete(sorted(made.released))
    table = made.open()
    assert offsets(table) == [number * RECORDS + n for number in kept for n in range(RECORDS)]
    assert sorted(table.inspect.files().column("file_path").to_pylist()) == [
        f"{made.root}/{key_of(number)}" for number in kept
    ]
    counts = [len(list(table.scan(snapshot_id=snapshot.snapshot_id).plan_files())) for snapshot in table.snapshots()]
    assert counts == [*range(202 - len(counts) + 1, 202), len(kept)]


async def test_a_table_without_a_commit_is_a_table_without_rows(tmp_path: Path) -> None:
    made = FilesTable(tmp_path)
    metadata = empty_metadata(
        name=NAME, topic_id=TOPIC, location=table_location(made.root, NAME, TOPIC), created_ms=CREATED_MS
    )
    await made.store.put("lake/empty.metadata.json", [encode(metadata)])
    table = made.open("lake/empty.metadata.json")
    assert table.scan().to_arrow().num_rows == 0
    assert table.current_snapshot() is None
    await made.commit(offsets={0: (0, 3)})
    assert made.open().scan().to_arrow().num_rows == 0


async def test_a_file_without_rows_is_no_trouble(tmp_path: Path) -> None:
    made = FilesTable(tmp_path)
    with ArchiveWriter(topic_id=TOPIC) as writer:
        writer.leave_out(PartitionIndex(0), Offset(0), Offset(5))
        file = writer.finish()
    await made.store.put(key_of(7), file.parts)
    await made.commit(file.data_file(key_of(7)), await made.archive(1))
    assert offsets(made.open()) == list(range(RECORDS, 2 * RECORDS))
    assert offsets(made.open(), "offset >= 0") == list(range(RECORDS, 2 * RECORDS))


async def test_polars_and_duckdb_read_what_pyiceberg_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # else it warns that a plug-in of its own is missing
    made = FilesTable(tmp_path)
    await made.commit(await made.archive(0))
    await made.commit(await made.archive(1))
    table = made.open()
    by_polars = polars.scan_iceberg(table).filter(polars.col("offset") >= 30).collect()
    assert sorted(by_polars["offset"].to_list()) == list(range(30, 40))
    rows: duckdb.DuckDBPyConnection = table.scan().to_duckdb("flights")
    assert rows.sql('select count(*), min("offset"), max("offset") from flights').fetchall() == [(40, 0, 39)]
