"""Archive passes with all that they take of an agent, one core: plan, reads, file, entry, apply.

A topic's partitions get one batch each in every intake object, as many producers send them. Passes go on until all is
archived, over a bucket in memory. The table's commit is not in it (`benchmarks.micro.tables`).

Run: `.venv/bin/python -m benchmarks.micro.passes [--mib 256] [--partitions 16]`. One JSON line a row: CPU seconds of
each step for a GB of records, MB for each CPU second of all, and the longest turn of the event loop in milliseconds.
"""

import argparse
import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from benchmarks.micro.apply import SESSION, TOPIC, Applier
from benchmarks.micro.parquet import make_records
from coordinator.codec.codec import decode, encode
from coordinator.commands.commands import (
    BatchColumns,
    ChunkColumns,
    CommitChunks,
    Proposal,
)
from coordinator.commands.rules import RULES_NEWEST
from coordinator.ledger.port import LedgerRecord
from iceberg_export.archive.archive_pass import archive
from iceberg_export.archive.topic_intake import next_pass
from protocol.records.batch import HEADER_BYTES, check_crcs
from protocol.records.compression import Compression
from protocol.records.crc import pack_crcs
from protocol.records.records import warm_kernels
from protocol.types import Milliseconds, ObjectNumber, PartitionIndex, Position
from storage.chunk_format import ChunkParts, encode_object
from storage.memory_store import MemoryStore
from storage.refs import intake_key
from tests.support.records.plain_records import make_batch

P = ParamSpec("P")
T = TypeVar("T")

CASES = ((1000, 16 << 10, Compression.NONE), (1000, 16 << 10, Compression.ZSTD), (100, 16 << 10, Compression.NONE),
         (1000, 1 << 20, Compression.NONE), (100, 1 << 20, Compression.ZSTD))  # fmt: skip
"""Bytes of a value, of a batch, and the codec."""


class FilledBucket:
    """A state with one topic, and intake objects of which it knows."""

    def __init__(self, partitions: int) -> None:
        self.applier = Applier(partitions)
        self.store = MemoryStore()
        self._objects = 0

    async def put(self, batches: Sequence[tuple[bytes, int]]) -> None:
        """One intake object: a batch, with the count of its records, for each partition."""
        number = ObjectNumber(self._objects)
        self._objects += 1
        chunks = [ChunkParts(TOPIC, PartitionIndex(row), (batch,)) for row, (batch, _) in enumerate(batches)]
        encoded = encode_object(SESSION, number, chunks)
        await self.store.put(intake_key(SESSION, number), encoded.parts)
        rows = len(batches)
        self.applier.apply(
            CommitChunks(
                object_session=SESSION,
                object_number=number,
                object_bytes=encoded.object_bytes,
                topic_ids=(TOPIC,),
                chunks=ChunkColumns(
                    topic=[0] * rows,
                    partition=list(range(rows)),
                    byte_first=encoded.byte_firsts,
                    batch_count=[1] * rows,
                ),
                batches=BatchColumns(
                    record_bytes=[len(batch) for batch, _ in batches],
                    record_count=[count for _, count in batches],
                    max_timestamp=[1_700_000_000_000] * rows,
                    producer_id=[-1] * rows,
                    producer_epoch=[-1] * rows,
                    base_sequence=[-1] * rows,
                    is_transactional=[0] * rows,
                ),
                batch_crcs=pack_crcs([check_crcs(batch) for batch, _ in batches]),
            )
        )


class Steps:
    """CPU seconds of each step, and the longest one of those that hold the event loop."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.longest: dict[str, float] = defaultdict(float)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        began = time.process_time()
        try:
            yield
        finally:
            took = time.process_time() - began
            self.seconds[name] += took
            self.longest[name] = max(self.longest[name], took)


async def archive_all(bucket: FilledBucket, steps: Steps) -> int:
    """Passes over the topic until nothing is left, and how many there were."""

    async def run_in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        with steps.step("file"):
            return function(*args, **kwargs)

    passes = 0
    while True:
        with steps.step("plan"):
            planned = next_pass(bucket.applier.state, TOPIC)
        if planned is None:
            return passes
        with steps.step("reads and command"):
            archived = await archive(
                planned,
                store=bucket.store,
                session=SESSION,
                number=ObjectNumber(1_000_000 + passes),
                run_in_thread=run_in_thread,
            )
        with steps.step("entry"):
            payload = encode(Proposal(time_ms=Milliseconds(5), command=archived.command), RULES_NEWEST, SESSION, 0)
            record = LedgerRecord(position=Position(SESSION + 1), session=SESSION, number=0, payload=payload)
            command = decode(record).command
        with steps.step("apply"):
            bucket.applier.apply(command)
        passes += 1


async def measure(
    value_bytes: int, batch_bytes: int, codec: Compression, mib: int, partitions: int
) -> dict[str, object]:
    records = make_records(value_bytes)
    per_batch = batch_bytes // (value_bytes + 40)
    parts = [records[n : n + per_batch] for n in range(0, len(records) - per_batch + 1, per_batch)]
    raw_bytes = sum(len(make_batch(part)) - HEADER_BYTES for part in parts) // len(parts)
    batches = [(make_batch(part, codec), len(part)) for part in parts]
    bucket = FilledBucket(partitions)
    objects = max((mib << 20) // (raw_bytes * partitions), 1)
    for number in range(objects):
        await bucket.put([batches[(number * partitions + row) % len(batches)] for row in range(partitions)])
    gigabytes = objects * partitions * raw_bytes / 1e9
    steps = Steps()
    passes = await archive_all(bucket, steps)
    steps.seconds["reads and command"] -= steps.seconds["file"]
    turns = {name: took for name, took in steps.longest.items() if name not in {"file", "reads and command"}}
    return {
        "value_bytes": value_bytes,
        "batch_bytes": batch_bytes,
        "codec": codec.name.lower(),
        "megabytes": round(gigabytes * 1e3),
        "passes": passes,
        **{f"{name}_s_per_gb": round(took / gigabytes, 2) for name, took in steps.seconds.items()},
        "mb_per_cpu_s": round(gigabytes * 1e3 / sum(steps.seconds.values())),
        "longest_turn_ms": round(max(turns.values()) * 1e3, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=256, help="MiB of records in the intake")
    parser.add_argument("--partitions", type=int, default=16)
    options = parser.parse_args()
    warm_kernels()
    asyncio.run(measure(*CASES[0], 1, 1))  # the imports
    for value_bytes, batch_bytes, codec in CASES:
        print(
            json.dumps(asyncio.run(measure(value_bytes, batch_bytes, codec, options.mib, options.partitions))),
            flush=True,
        )


if __name__ == "__main__":
    main()
