"""Which schemas records were written with, batch by batch."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from iceberg_export.parquet.source_chunks import SourceChunk, decode_chunk
from iceberg_export.rows.kafka_rows import BatchRows
from iceberg_export.typed.framing import WriterSchema
from iceberg_export.typed.scan import Sides, WriterSchemas, writers_of
from protocol.types import NO_TIMESTAMP, Offset, PartitionIndex
from tests.support.lake.typed_records import framed
from tests.support.records.plain_records import Record, make_batch

PAIRS = [
    (framed(1, b"k"), framed(2, b"v")),
    (None, framed(7, b"\0m")),
    (b"plain", framed(7, b"\x04\x02\x04m")),
    (framed(3, b""), framed(7, b"\x02")),
    (b"", framed(7, b"")),
    (framed(1, b""), None),
    (framed(7, b"\x02\x02"), framed(2**32 - 1, b"")),
]


def batches(first: int = 0, end: int = len(PAIRS)) -> Iterator[BatchRows]:
    records = [Record(offset=n, timestamp=1, key=key, value=value) for n, (key, value) in enumerate(PAIRS)]
    chunk = SourceChunk(
        partition=PartitionIndex(0),
        offset_first=Offset(0),
        offset_end=Offset(len(PAIRS)),
        append_time_ms=NO_TIMESTAMP,
        records=make_batch(records[:3]) + make_batch([replace(r, offset=r.offset - 3) for r in records[3:]]),
    )
    return decode_chunk(chunk, Offset(first), Offset(end))


KEYS = frozenset({WriterSchema(schema_id=1), WriterSchema(schema_id=3), WriterSchema(schema_id=7, indexes=(1,))})
VALUES = frozenset(
    {
        WriterSchema(schema_id=2),
        WriterSchema(schema_id=2**32 - 1),
        WriterSchema(schema_id=7, indexes=(0,)),
        WriterSchema(schema_id=7, indexes=(1, 2)),
    }
)


@pytest.mark.parametrize(
    ("sides", "seen"),
    [
        (Sides.RAW, WriterSchemas(key=frozenset(), value=frozenset())),
        (Sides.KEY, WriterSchemas(key=KEYS, value=frozenset())),
        (Sides.VALUE, WriterSchemas(key=frozenset(), value=VALUES)),
        (Sides.BOTH, WriterSchemas(key=KEYS, value=VALUES)),
    ],
)
def test_writers_are_those_of_the_sides_that_are_wanted(sides: Sides, seen: WriterSchemas) -> None:
    assert writers_of(batches(), sides, frozenset({7})) == seen


def test_rows_that_are_cut_off_do_not_count() -> None:
    seen = writers_of(batches(1, 4), Sides.BOTH, frozenset({7}))
    assert seen.key == {WriterSchema(schema_id=3)}
    assert seen.value == {WriterSchema(schema_id=7, indexes=(0,)), WriterSchema(schema_id=7, indexes=(1, 2))}


def test_no_indexes_are_looked_for_where_the_schema_has_no_messages() -> None:
    seen = writers_of(batches(), Sides.VALUE, frozenset())
    assert seen.value == {WriterSchema(schema_id=2), WriterSchema(schema_id=7), WriterSchema(schema_id=2**32 - 1)}
