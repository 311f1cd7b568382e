"""Typed columns, one core: MB/s of framed records into Arrow columns, by format.

Run: `.venv/bin/python -m benchmarks.micro.typed [--records 100000] [--rounds 3]`. One JSON line a row on stdout. "MB"
are 10^6 bytes of values as Kafka has them; seconds are the processor's, the best of the rounds.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

from iceberg_export.parquet.archive_file import ArchiveFile
from iceberg_export.parquet.reader import BatchForm, encode_chunk, parse_footer
from iceberg_export.parquet.source_chunks import SourceChunk, decode_chunk
from iceberg_export.parquet.writer import ArchiveWriter
from iceberg_export.typed.decode import ValueReader, ValueReaders, decode_column
from iceberg_export.typed.file_columns import plan_columns
from iceberg_export.typed.framing import WriterSchema
from iceberg_export.typed.json_shapes import JsonReader
from iceberg_export.typed.scan import Sides, writers_of
from protocol.records.compression import Compression
from protocol.records.records import warm_kernels
from protocol.types import NO_TIMESTAMP, Offset, PartitionIndex, TopicId
from tests.support.lake.typed_records import (
    avro_bytes,
    avro_reader,
    binary_column,
    framed,
    merged,
    protobuf_files,
    record,
)
from tests.support.records.plain_records import Record, make_batch

FLAT = record(
    "Flight",
    ("id", "long"),
    ("carrier", {"type": "enum", "name": "Carrier", "symbols": ["UA", "AA", "DL"]}),
    ("tail", ["null", "string"]),
    ("delay", ["null", "int"]),
    ("distance", "double"),
    ("time", {"type": "long", "logicalType": "timestamp-millis"}),
    ("is_late", "boolean"),
    ("fare", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
)
NESTED = record(
    "Flight", ("id", "long"), ("stops", {"type": "array", "items": "string"}), ("crew", record("C", ("n", "int")))
)
PROPERTIES = {
    "id": {"type": "integer"},
    "carrier": {"type": "string"},
    "tail": {"type": ["null", "string"]},
    "delay": {"type": ["null", "integer"]},
    "distance": {"type": "number"},
    "is_late": {"type": "boolean"},
}
MESSAGE = """
syntax = "proto3";
message Flight {
  int64 id = 1; string carrier = 2; optional string tail = 3; optional int32 delay = 4; double distance = 5;
  int64 time = 6; bool is_late = 7;
}
"""


def flat_value(number: int) -> dict[str, object]:
    """Of JSON and Protobuf; Avro has two more."""
    return {
        "id": number * 7919,
        "carrier": ("UA", "AA", "DL")[number % 3],
        "tail": None if number % 10 == 0 else f"N{number % 4000:05d}",
        "delay": None if number % 4 == 0 else number % 500 - 30,
        "distance": number * 1.1,
        "is_late": number % 2 == 0,
    }


def avro_values(number: int) -> bytes:
    return avro_bytes(FLAT, {**flat_value(number), "time": 1_700_000_000_000 + number, "fare": b"\x30\x39"})


def nested_values(number: int) -> bytes:
    return avro_bytes(NESTED, {"id": number, "stops": ["EWR", "IAH"][: number % 3], "crew": {"n": number % 9}})


def measure(
    name: str, reader: ValueReader, indexes: tuple[int, ...], make: Callable[[int], bytes], count: int, rounds: int
) -> None:
    """Print one row."""
    distinct = [framed(1, make(number)) for number in range(min(count, 10_000))]
    column = binary_column([distinct[number % len(distinct)] for number in range(count)])
    columns = merged(reader.shape).value
    readers = ValueReaders(
        by_writer={WriterSchema(schema_id=1, indexes=indexes): reader}, with_indexes=frozenset({1} if indexes else ())
    )
    seconds: list[float] = []
    for _ in range(rounds):
        began = time.process_time()
        made = decode_column(column, columns, readers)
        seconds.append(time.process_time() - began)
        assert not any(made.errors)
    size = len(column.data)
    row = {"format": name, "record_bytes": round(size / count), "columns": len(columns)}
    best = min(seconds)
    print(json.dumps({**row, "mb_s": round(size / best / 1e6, 1), "records_s": round(count / best)}))


def measure_pass(name: str, reader: ValueReader, make: Callable[[int], bytes], count: int, rounds: int) -> None:
    """Print one row: chunks into a Parquet file, without typed columns, with those of all values, and with these in the
    place of the values' bytes; and each file back into record batches, as Kafka's consumers get them."""
    records = [
        Record(
            offset=number,
            timestamp=1_700_000_000_000 + number,
            key=b"k%d" % (number % 1000),
            value=framed(1, make(number)),
        )
        for number in range(min(count, 20_000))
    ]
    chunks = [
        SourceChunk(
            partition=PartitionIndex(0),
            offset_first=Offset(first),
            offset_end=Offset(first + len(records)),
            append_time_ms=NO_TIMESTAMP,
            records=make_batch(records),
        )
        for first in range(0, count, len(records))
    ]
    row: dict[str, object] = {"pass": name}
    size = sum(len(chunk.records) for chunk in chunks)
    for told, sides in (("raw", Sides.RAW), ("value", Sides.VALUE), ("left_out", Sides.VALUE)):
        seconds: list[float] = []
        file: ArchiveFile | None = None
        for _ in range(rounds):
            began = time.process_time()
            typed = None
            if sides is Sides.VALUE:
                seen = writers_of((batch for chunk in chunks for batch in decode_chunk(chunk)), sides, frozenset())
                leaves_out = told == "left_out"
                typed = plan_columns(None, seen, sides, lambda _: reader, frozenset(), leaves_out=leaves_out)
            with ArchiveWriter(topic_id=TopicId(bytes(16)), typed=typed) as writer:
                for chunk in chunks:
                    writer.add(chunk)
                file = writer.finish()
            seconds.append(time.process_time() - began)
        assert file is not None
        row |= {f"{told}_mb_s": round(size / min(seconds) / 1e6, 1), f"{told}_file_bytes": file.object_bytes}
        row[f"{told}_read_mb_s"] = round(size / min(_read_seconds(file, rounds)) / 1e6, 1)
    print(json.dumps(row))


def _read_seconds(file: ArchiveFile, rounds: int) -> list[float]:
    """What it takes to make record batches of a file in memory."""
    data = b"".join(file.parts)
    seconds: list[float] = []
    for _ in range(rounds):
        began = time.process_time()
        footer = parse_footer(data)
        for _, chunks in file.partitions:
            for chunk in chunks:
                place = data[chunk.byte_first : chunk.byte_first + chunk.byte_count]
                encode_chunk(footer, place, chunk, BatchForm(Compression.NONE))
        seconds.append(time.process_time() - began)
    return seconds


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()

    def run(name: str, reader: ValueReader, make: Callable[[int], bytes], indexes: tuple[int, ...] = ()) -> None:
        measure(name, reader, indexes, make, given.records, given.rounds)

    warm_kernels()  # an agent that archives has them
    run("Avro, flat", avro_reader(FLAT), avro_values)
    slow = avro_reader(FLAT)
    slow.fast = None
    run("Avro, flat, without the kernel", slow, avro_values)
    run("Avro, nested", avro_reader(NESTED), nested_values)
    slow = avro_reader(NESTED)
    slow.fast = None
    run("Avro, nested, without the kernel", slow, nested_values)
    schema = json.dumps({"type": "object", "properties": PROPERTIES})
    run("JSON", JsonReader(schema), lambda number: json.dumps(flat_value(number)).encode())
    message = protobuf_files(MESSAGE).reader((0,))

    def protobuf_value(number: int) -> bytes:
        made: Any = message.read(b"")
        made.MergeFrom(type(made)(**flat_value(number), time=number))
        return b"\0" + bytes(made.SerializeToString())

    run("Protobuf", message, protobuf_value, (0,))
    measure_pass("Avro, flat", avro_reader(FLAT), avro_values, given.records, given.rounds)
    as_json: Callable[[int], bytes] = lambda number: json.dumps(flat_value(number)).encode()  # noqa: E731
    measure_pass("JSON", JsonReader(schema), as_json, given.records, given.rounds)


if __name__ == "__main__":
    main()
