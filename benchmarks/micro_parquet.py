"""The Parquet path, one core: MB/s of records into the archive and out of it, and the size beside Kafka's batches.

Run: `.venv/bin/python -m benchmarks.micro_parquet [--mib 64] [--rounds 3]`. One JSON line a row on stdout. "MB" are
10^6 bytes of uncompressed Kafka records. Values are JSON-like, keys repeat, and every record has one header.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from iceberg_export.arrow_files import read_footer
from iceberg_export.parquet_reader import encode_chunk
from iceberg_export.parquet_writer import ArchiveFile, ArchiveWriter, SourceChunk
from protocol.compression import Compression
from protocol.record_batch import HEADER_BYTES
from protocol.types import NO_TIMESTAMP, Offset, PartitionIndex, TopicId
from tests.made_records import Record, make_batch

CARRIERS = ("UA", "AA", "DL", "B6", "WN")
DISTINCT_BATCHES = 8


def make_records(value_bytes: int, batch_bytes: int, seed: int) -> list[Record]:
    """As many records as one batch of about `batch_bytes` takes."""
    random = np.random.default_rng(seed)
    records: list[Record] = []
    filler = random.integers(97, 123, 16 * value_bytes, dtype=np.uint8).tobytes().decode()
    for offset in range(max(1, batch_bytes // (value_bytes + 40))):
        event = {"id": int(random.integers(1 << 40)), "carrier": CARRIERS[int(random.integers(5))], "n": offset}
        base = json.dumps(event)
        start = int(random.integers(8 * value_bytes))
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


def make_chunks(batches: list[tuple[bytes, int]], raw_bytes: int, per_batch_raw: int) -> Iterator[SourceChunk]:
    """Chunks of 16 batches of one partition, until there are `raw_bytes` of records."""
    offset, made = 0, 0
    while made < raw_bytes:
        picked = [batches[n % len(batches)] for n in range(16)]
        end = offset + sum(count for _, count in picked)
        yield SourceChunk(
            partition=PartitionIndex(0),
            offset_first=Offset(offset),
            offset_end=Offset(end),
            append_time_ms=NO_TIMESTAMP,
            records=b"".join(data for data, _ in picked),
        )
        offset, made = end, made + 16 * per_batch_raw


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
            total += len(encode_chunk(footer, piece, chunk, compression))
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
    for value_bytes in (1000, 100):
        for batch_bytes in (16 << 10, 1 << 20):
            for codec in (Compression.NONE, Compression.LZ4, Compression.ZSTD):
                made = [make_records(value_bytes, batch_bytes, seed) for seed in range(DISTINCT_BATCHES)]
                per_batch = sum(len(make_batch(records)) - HEADER_BYTES for records in made) // len(made)
                batches = [(make_batch(records, codec), len(records)) for records in made]
                chunks = list(make_chunks(batches, options.mib << 20, per_batch))
                megabytes = per_batch * 16 * len(chunks) / 1e6
                file = write(chunks)
                data = b"".join(file.parts)
                row = {
                    "value_bytes": value_bytes,
                    "batch_bytes": batch_bytes,
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
