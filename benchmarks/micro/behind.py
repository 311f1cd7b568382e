"""Consumers of a hot topic: the CPU time of their fetches at the end of the log, and behind archive passes.

Two agents in one process, over a ledger and a store in memory. Each round produces as many bytes through the first one
as an early pass takes, and archives them. One consumer fetches them before the pass, at the log's end. Others are two
passes behind, as after five seconds: one asks the agent that has what was produced in memory, and one asks the other
agent, which reads the archive.

Run: `.venv/bin/python -m benchmarks.micro.behind [--rounds 6]`. A row is a JSON line: milliseconds of CPU for a MB of
record batches as they were produced.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Sequence

from agent.fetch.sessions import RequestedPartition
from benchmarks.micro.parquet import make_records
from protocol.limits import ARCHIVE_BYTES_DEFAULT, ARCHIVE_EARLY_BYTES_DIVISOR
from protocol.records.batch import read_header
from protocol.records.compression import Compression
from protocol.records.records import warm_kernels
from tests.support.agent.data_paths import DataPaths, Ticket, another_agent, data_paths, group_of
from tests.support.commands.commands import TOPIC
from tests.support.records.plain_records import make_batch

MIB = 1 << 20
CASES = ((1, 1000, 16 << 10, Compression.NONE), (1, 100, 16 << 10, Compression.NONE),
         (1, 1000, 16 << 10, Compression.ZSTD), (1, 1000, 1 << 20, Compression.NONE),
         (16, 1000, 16 << 10, Compression.NONE), (1, 1000, 4500, Compression.NONE))  # fmt: skip
"""Partitions; bytes of a value and of a batch; the producers' codec."""
PASS_BYTES = ARCHIVE_BYTES_DEFAULT // ARCHIVE_EARLY_BYTES_DIVISOR
PASSES_BEHIND = 2
ROUNDS_WARM = PASSES_BEHIND + 1
CACHE_BYTES = 256 * MIB
FETCH_BYTES = 50 * MIB
PARTITION_BYTES = 1 * MIB
"""A Java consumer's fetch.max.bytes and max.partition.fetch.bytes."""


class Consumer:
    """Reads all partitions on, fetch by fetch, and counts the CPU time of it."""

    def __init__(self, paths: DataPaths, partitions: int) -> None:
        self._paths = paths
        self._offsets = [0] * partitions
        self.seconds = 0.0

    async def read_until(self, ends: Sequence[int]) -> None:
        """Fetch until every partition has come to its end."""
        began = time.process_time()
        while any(offset < end for offset, end in zip(self._offsets, ends, strict=True)):
            requested = [
                RequestedPartition("t", partition, offset, PARTITION_BYTES, -1, -1)
                for partition, offset in enumerate(self._offsets)
                if offset < ends[partition]
            ]
            reads = await self._paths.fetch_path.fetch(requested, max_wait_ms=0, bytes_min=1, bytes_max=FETCH_BYTES)
            for partition_request, read in zip(requested, reads, strict=True):
                if read.records:
                    self._offsets[partition_request.partition] = read.offset_next
        self.seconds += time.process_time() - began


async def measure(
    partitions: int, value_bytes: int, batch_bytes: int, codec: Compression, rounds: int
) -> dict[str, object]:
    records = make_records(value_bytes)
    per_batch = max(batch_bytes // (value_bytes + 40), 1)
    parts = [records[n : n + per_batch] for n in range(0, len(records) - per_batch + 1, per_batch)]
    batches = [make_batch(part, codec) for part in parts]
    mean_bytes = sum(map(len, batches)) // len(batches)
    intakes = max(PASS_BYTES // (mean_bytes * partitions), 1)
    async with (
        data_paths(cache_bytes=CACHE_BYTES, budget_bytes=CACHE_BYTES, partitions=partitions) as paths,
        another_agent(paths, cache_bytes=CACHE_BYTES, budget_bytes=CACHE_BYTES) as other,
    ):
        tail = Consumer(paths, partitions)
        behind, of_archive = Consumer(paths, partitions), Consumer(other, partitions)
        ends, ended = [0] * partitions, list[list[int]]()
        produced_bytes = number = 0
        produce_s = 0.0
        for turn in range(ROUNDS_WARM + rounds):
            if turn == ROUNDS_WARM:
                tail.seconds = behind.seconds = of_archive.seconds = produce_s = 0.0
                produced_bytes = 0
            for _ in range(intakes):
                tickets = []
                began = time.process_time()
                for partition in range(partitions):
                    batch = batches[number % len(batches)]
                    number += 1
                    ends[partition] += read_header(batch, 0).record_count
                    produced_bytes += len(batch)
                    tickets.append(Ticket())
                    paths.produce_path.add(group_of(batch, tickets[-1], partition))
                for ticket in tickets:
                    await ticket.settled
                produce_s += time.process_time() - began
            await tail.read_until(ends)
            await paths.archiver.archive_topic(TOPIC)
            await other.parts.ledger.barrier()
            ended.append(list(ends))
            if len(ended) > PASSES_BEHIND:
                await behind.read_until(ended[-1 - PASSES_BEHIND])
                await of_archive.read_until(ended[-1 - PASSES_BEHIND])
        megabytes = produced_bytes / 1e6
        return {
            "partitions": partitions,
            "value_bytes": value_bytes,
            "batch_bytes": batch_bytes,
            "codec": codec.name.lower(),
            "megabytes": round(megabytes),
            "produce_ms_per_mb": round(produce_s * 1e3 / megabytes, 2),
            "end_ms_per_mb": round(tail.seconds * 1e3 / megabytes, 3),
            "behind_ms_per_mb": round(behind.seconds * 1e3 / megabytes, 3),
            "archive_ms_per_mb": round(of_archive.seconds * 1e3 / megabytes, 3),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    warm_kernels()
    for case in CASES:
        print(json.dumps(asyncio.run(measure(*case, options.rounds))), flush=True)


if __name__ == "__main__":
    main()
