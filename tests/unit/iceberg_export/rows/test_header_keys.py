"""Header keys that are not UTF-8: other engines read the file, and Kafka's clients get the producer's bytes."""

import asyncio
import io
import sys
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordinator.state.chunk_index import ChunkRef
from iceberg_export.compaction.topic_files import MergeChunk
from iceberg_export.compaction.writer import merge_files
from iceberg_export.parquet.archive_file import ArchiveFile, write_whole_file
from iceberg_export.parquet.arrow_footer import read_footer
from iceberg_export.parquet.arrow_reader import with_values
from iceberg_export.parquet.arrow_writer import HeaderKeysFound
from iceberg_export.parquet.reader import ParquetReader, parse_footer
from iceberg_export.parquet.source_chunks import SourceChunk
from iceberg_export.parquet.writer import ArchiveWriter
from iceberg_export.rows.footer import FileUnreadable
from iceberg_export.rows.header_keys import restored_keys
from iceberg_export.rows.schema import COLUMNS, FILE_METADATA_KEY
from protocol.records.compression import Compression
from protocol.types import NO_TIMESTAMP, Milliseconds, ObjectId, Offset, PartitionIndex, TopicId
from storage.memory_store import MemoryStore
from tests.support.records.plain_records import Record, make_batch, read_batches

TOPIC = TopicId(bytes(range(16)))
Headers = tuple[tuple[bytes, bytes | None], ...]
BAD: Headers = ((b"\xff\xfe\xf0", b"1"), (b"plain", b"2"))
OTHERS: Sequence[Headers] = [(), ((b"plain", None),), ((b"\xff", b""), (b"\xff", b"")), (("ö".encode(), b"x"),)]
TEXT = "\ufffd\ufffd\ufffd"
OLD = Path(__file__).parents[3] / "golden" / "parquet" / "header-keys-format-1.parquet"
"""Written before there was a column for the bytes: three records, with the headers BAD, a plain one, and none."""


def archived(headers: Sequence[Headers], *, row_group_bytes: int = 1 << 22) -> ArchiveFile:
    records = [
        Record(offset=number, timestamp=1000 + number, value=b"v", headers=each) for number, each in enumerate(headers)
    ]

    def write(*, has_header_keys: bool) -> ArchiveFile:
        with ArchiveWriter(
            topic_id=TOPIC, row_group_bytes_target=row_group_bytes, has_header_keys=has_header_keys
        ) as writer:
            writer.add(
                SourceChunk(
                    partition=PartitionIndex(0),
                    offset_first=Offset(0),
                    offset_end=Offset(len(records)),
                    append_time_ms=Milliseconds(NO_TIMESTAMP),
                    records=make_batch(records),
                )
            )
            return writer.finish()

    return write_whole_file(write)


def refs(file: ArchiveFile) -> list[ChunkRef]:
    return [
        ChunkRef(
            offset_first=chunk.offset_first,
            offset_end=chunk.offset_end,
            object_id=ObjectId(1),
            byte_first=chunk.byte_first,
            byte_count=chunk.byte_count,
            row_group=chunk.row_group,
            row_first=chunk.row_first,
            row_count=chunk.row_count,
            append_time_ms=Milliseconds(NO_TIMESTAMP),
            max_timestamp=chunk.max_timestamp,
        )
        for _, chunks in file.partitions
        for chunk in chunks
    ]


def consumed(data: bytes, chunks: Sequence[ChunkRef]) -> list[Headers]:
    async def read() -> bytes:
        store = MemoryStore()
        await store.put("lake/t/data/1.parquet", (data,))
        reader = ParquetReader(store=store, run_in_thread=asyncio.to_thread)
        return b"".join([await reader.read("lake/t/data/1.parquet", chunk, Compression.NONE) for chunk in chunks])

    return [record.headers for record in read_batches(asyncio.run(read())).records]


def bytes_of(file: ArchiveFile) -> bytes:
    return b"".join(file.parts)


@pytest.mark.parametrize("row_group_bytes", [1, 1 << 22])
@pytest.mark.parametrize("headers", [[BAD], [BAD, *OTHERS], [*OTHERS, BAD], [OTHERS[0], OTHERS[1]]])
def test_a_consumer_gets_the_exact_bytes(headers: Sequence[Headers], row_group_bytes: int) -> None:
    file = archived(headers, row_group_bytes=row_group_bytes)
    assert consumed(bytes_of(file), refs(file)) == headers


def test_every_engine_reads_the_file_with_replacement_characters(tmp_path: Path) -> None:
    path = tmp_path / "made.parquet"
    path.write_bytes(bytes_of(archived([BAD, *OTHERS])))
    expected = [
        [(TEXT, b"1"), ("plain", b"2")],
        [],
        [("plain", None)],
        [("\ufffd", b""), ("\ufffd", b"")],
        [("ö", b"x")],
    ]

    def listed(column: Sequence[Sequence[dict[str, object]]]) -> list[list[tuple[object, object]]]:
        return [[(each["key"], each["value"]) for each in row] for row in column]

    table = pq.read_table(path)
    table.validate(full=True)
    assert listed(table.column("headers").to_pylist()) == expected
    assert listed(pd.read_parquet(path)["headers"].tolist()) == expected
    assert listed(pl.read_parquet(path)["headers"].to_list()) == expected
    found = duckdb.connect().execute(f"select headers from '{path}' order by \"offset\"").fetchall()
    assert listed([row for (row,) in found]) == expected


def test_a_file_of_text_alone_is_as_before() -> None:
    file = pq.ParquetFile(io.BytesIO(bytes_of(archived([(), ((b"plain", None),), (("ö".encode(), b"x"),)]))))
    assert tuple(file.schema_arrow.names) == COLUMNS
    assert b'{"version":1,' in file.metadata.metadata[FILE_METADATA_KEY.encode()]


def test_a_program_that_does_not_know_the_column_refuses_the_file() -> None:
    data = bytes_of(archived([BAD]))
    assert b'{"version":3,' in pq.ParquetFile(io.BytesIO(data)).metadata.metadata[FILE_METADATA_KEY.encode()]


def test_a_row_group_that_comes_too_late_is_said() -> None:
    with ArchiveWriter(topic_id=TOPIC, row_group_bytes_target=1) as writer:
        records = [Record(offset=0, timestamp=0, value=b"v"), Record(offset=1, timestamp=0, value=b"v", headers=BAD)]
        chunk = SourceChunk(
            partition=PartitionIndex(0),
            offset_first=Offset(0),
            offset_end=Offset(2),
            append_time_ms=Milliseconds(NO_TIMESTAMP),
            records=make_batch(records),
        )
        with pytest.raises(HeaderKeysFound):
            writer.add(chunk)


def old_chunk() -> ChunkRef:
    (place,) = parse_footer(OLD.read_bytes()).row_groups
    return ChunkRef(
        offset_first=Offset(0),
        offset_end=Offset(3),
        object_id=ObjectId(1),
        byte_first=place.byte_first,
        byte_count=place.byte_count,
        row_group=0,
        row_first=0,
        row_count=3,
        append_time_ms=Milliseconds(NO_TIMESTAMP),
        max_timestamp=Milliseconds(1002),
    )


def test_a_file_from_before_is_served_and_shown_and_mended_by_a_merge() -> None:
    data, chunk = OLD.read_bytes(), old_chunk()
    headers = [BAD, ((b"plain", None),), ()]
    assert consumed(data, [chunk]) == headers
    shown = with_values(read_footer(data), pq.read_table(io.BytesIO(data)), COLUMNS).column("headers")
    assert shown.to_pylist()[0][0] == {"key": TEXT, "value": b"1"}
    merged = merge_files(TOPIC, [MergeChunk(partition=PartitionIndex(0), file=0, chunk=chunk)], [data])
    assert consumed(bytes_of(merged), refs(merged)) == headers
    pq.read_table(io.BytesIO(bytes_of(merged))).validate(full=True)


@pytest.mark.parametrize(
    ("exact", "what"),
    [([[b"\xff"]], "different counts"), ([None], "other numbers"), ([[b"\xff", b"x"]], "differ from those as bytes")],
)
def test_bytes_that_are_not_those_of_the_text_are_refused(exact: list[list[bytes] | None], what: str) -> None:
    texts = pa.array(["\ufffd", "plain"])
    column = pa.array(exact, type=pa.list_(pa.binary()))
    ends = pa.array([0, 2], type=pa.int32()).to_numpy()
    if exact == [None]:
        assert restored_keys(texts, ends, column).to_pylist() == ["\ufffd".encode(), b"plain"]
        return
    with pytest.raises(FileUnreadable, match=what):
        restored_keys(texts, ends, column)


def test_the_second_try_begins_without_what_the_first_one_unpacked() -> None:
    # The handler of the first one's exception refers to all that it unpacked.
    def write(*, has_header_keys: bool) -> ArchiveFile:
        if not has_header_keys:
            raise HeaderKeysFound
        assert sys.exc_info() == (None, None, None)
        return file

    file = archived([BAD])
    assert write_whole_file(write) is file
