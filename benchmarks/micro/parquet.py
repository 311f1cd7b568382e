"""The Parquet path, one core: MB/s of records into the archive and out of it, and the size beside Kafka's batches.

Run: `.venv/bin/python -m benchmarks.micro.parquet [--mib 64] [--rounds 3]`. One JSON line a row on stdout. "MB" are
10^6 bytes of uncompressed Kafka records. Values are JSON-like, keys repeat, and every record has one header.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle

import numpy as np

from iceberg_export.parquet.archive_file import ArchiveFile
from iceberg_export.parquet.arrow_footer import read_footer
from iceberg_export.parquet.reader import BatchForm, encode_chunk
from iceberg_export.parquet.source_chunks import SourceChunk
from iceberg_export.parquet.writer import ArchiveWriter
from protocol.records.batch import HEADER_BYTES
from protocol.records.compression import Compression
from protocol.records.records import warm_kernels
from protocol.types import NO_TIMESTAMP, Offset, PartitionIndex, TopicId
from tests.support.records.plain_records import Record, make_batch

CARRIERS = ("UA", "AA", "DL", "B6", "WN")
DISTINCT_BYTES = 8 << 20
"""Records repeat after this many bytes: beyond what zstd looks back for, and two row groups."""


def make_records(value_bytes: int) -> list[Record]:
    """Distinct records, `DISTINCT_BYTES` in all."""
    random = np.random.default_rng(20_250)
    records: list[Record] = []
    filler = random.integers(97, 123, 1 << 20, dtype=np.uint8).tobytes().decode()
    for offset in range(DISTINCT_BYTES // (value_bytes + 40)):
        event = {"id": int(random.integers(1 << 40)), "carrier": CARRIERS[int(random.integers(5))], "n": offset}
        base = json.dumps(event)
        start = int(random.integers(len(filler) - value_bytes))
        words = " ".join(filler[start + n : start + n + 6] for n in range(0, value_bytes // 2, 6))
        value = (base + words + base * (value_bytes // len(base)))[:value_bytes].encode()
        records.append(
            Record(
                offset=offset,
                timestamp=1_700_000_000_000 + offset // 10,
                key=f"N{int(random.zipf(1.3)) % 100_000:06d}".encode(),
                value=value,
                headers=((b"trace", random.bytes(16)),),
            )
        )
    return records


def make_chunks(
    batches: list[tuple[bytes, int]], raw_bytes: int, per_batch_raw: int, chunk_batches: int
) -> Iterator[SourceChunk]:
    """Chunks of `chunk_batches` batches of one partition, until there are `raw_bytes` of records."""
    offset, made = 0, 0
    endless = cycle(batches)
    while made < raw_bytes:
        picked = [next(endless) for _ in range(chunk_batches)]
        end = offset + sum(count for _, count in picked)
        yield SourceChunk(
            partition=PartitionIndex(0),
            offset_first=Offset(offset),
            offset_end=Offset(end),
            append_time_ms=NO_TIMESTAMP,
            records=b"".join(data for data, _ in picked),
        )
        offset, made = end, made + chunk_batches * per_batch_raw


def write(chunks: list[SourceChunk]) -> ArchiveFile:
    writer = ArchiveWriter(topic_id=TopicId(b"b" * 16))
    for chunk in chunks:
        writer.add(chunk)
    return writer.finish()


def read(file: ArchiveFile, data: bytes, compression: Compression) -> int:
    footer = read_footer(data)
    total = 0
    for _, archived in file.partitions:
        for chunk in archived:
            piece = memoryview(data)[chunk.byte_first : chunk.byte_first + chunk.byte_count]
            total += len(encode_chunk(footer, piece, chunk, BatchForm(compression)))
    return total


def cpu_seconds(work: Callable[[], object], rounds: int) -> float:
    """The best of `rounds`, in CPU seconds of this process, after one round to warm up."""
    work()
    best = float("inf")
    for _ in range(rounds):
        begin = time.process_time()
        work()
        best = min(best, time.process_time() - begin)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=64, help="MiB of records per measurement")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    warm_kernels()
    for value_bytes in (1000, 100):
        records = make_records(value_bytes)
        for batch_bytes, chunk_batches in ((16 << 10, 1), (16 << 10, 16), (1 << 20, 16)):
            for codec in (Compression.NONE, Compression.ZSTD):
                per_batch = batch_bytes // (value_bytes + 40)
                parts = [records[n : n + per_batch] for n in range(0, len(records) - per_batch + 1, per_batch)]
                per_batch_bytes = sum(len(make_batch(part)) - HEADER_BYTES for part in parts) // len(parts)
                batches = [(make_batch(part, codec), len(part)) for part in parts]
                chunks = list(make_chunks(batches, options.mib << 20, per_batch_bytes, chunk_batches))
                megabytes = per_batch_bytes * chunk_batches * len(chunks) / 1e6
                file = write(chunks)
                data = b"".join(file.parts)
                row = {
                    "value_bytes": value_bytes,
                    "batch_bytes": batch_bytes,
                    "chunk_batches": chunk_batches,
                    "codec": codec.name.lower(),
                    "megabytes": round(megabytes),
                    "records": file.row_count,
                    "batches_ratio": round(sum(len(chunk.records) for chunk in chunks) / megabytes / 1e6, 3),
                    "parquet_ratio": round(len(data) / megabytes / 1e6, 3),
                    "write_mb_s": round(megabytes / cpu_seconds(partial(write, chunks), options.rounds)),
                }
                if codec is Compression.NONE:
                    for out in (Compression.NONE, Compression.LZ4, Compression.ZSTD):
                        seconds = cpu_seconds(partial(read, file, data, out), options.rounds)
                        row[f"read_{out.name.lower()}_mb_s"] = round(megabytes / seconds)
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
