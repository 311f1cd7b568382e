"""How large intake objects get, and what that costs: the produce path alone, over a store that takes as long as S3.

A put takes a first part, and then time for its bytes, as on S3. Batches of 1 MiB come either at a rate,
whoever sends them, or from clients that each wait for an answer before they send more ("in flight"). Nothing is
committed: a batch counts as answered when its object is put. Variants are of the full and of the enough size in MiB
(`protocol.limits`).

Run: `.venv/bin/python -m benchmarks.micro.intake [--seconds 4] [--variants 8/8,20/8]`. A row is a JSON line.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import cast
from unittest import mock

from agent.ledger.ledger_client import LedgerClient
from agent.produce.produce_path import ProducePath
from agent.runtime.clock import SystemClock
from coordinator.commands.commands import Command, Outcome
from coordinator.state.state import ClusterState
from protocol.records.batch import split_batches
from protocol.types import PartitionIndex, SessionId
from storage.batcher import BatchGroup
from storage.memory_store import MemoryStore
from storage.object_store import Buffer
from tests.support.agent.data_paths import DataPaths, Ticket, data_paths
from tests.support.commands.commands import TOPIC
from tests.support.records.plain_records import Record, make_batch

MIB = 1 << 20
GIB = 1 << 30
FLUSH_INTERVAL_MS = 250
ROOM_SECONDS_MAX = 60.0
BATCH = memoryview(make_batch([Record(offset=0, timestamp=5, value=bytes(MIB - 200))]))
STORES = ((30, 250), (80, 90))
"""Milliseconds until the first byte counts, MB/s of one put: a fast store, and S3 as it is often seen."""
RATES = (20, 50, 100, 200)
IN_FLIGHT = (5, 12, 20, 40, 100)


class TimedStore(MemoryStore):
    """Puts take time, and are forgotten."""

    def __init__(self, first_ms: int, mb_per_s: int) -> None:
        super().__init__()
        self._first_s, self._bytes_per_s = first_ms / 1000, mb_per_s * 1e6
        self.sizes: list[int] = []

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        self.sizes.append(sum(map(len, parts)))
        await asyncio.sleep(self._first_s + self.sizes[-1] / self._bytes_per_s)


class NoLedger:
    """Takes commits and answers none: whoever waits is told that the outcome is unknown, at once."""

    session = SessionId(1)
    takes_objects = False

    def __init__(self, state: ClusterState) -> None:
        self.state = state

    async def until_live(self) -> SessionId:
        return self.session

    def propose(self, _command: Command) -> "asyncio.Future[Outcome]":
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        outcome.cancel()
        return outcome


class Run:
    """One path, and what its clients saw."""

    def __init__(self, paths: DataPaths, store: TimedStore, tasks: asyncio.TaskGroup) -> None:
        self.seconds: list[float] = []
        self.path = ProducePath(
            replace(
                paths.parts.context(store=store, clock=SystemClock()),
                ledger=cast("LedgerClient", NoLedger(paths.parts.ledger.state)),
            ),
            cache=paths.cache,
            tasks=tasks,
            flush_interval_ms=FLUSH_INTERVAL_MS,
            is_store_cheap=False,
        )

    async def send(self) -> None:
        await self.path.wait_for_room(ROOM_SECONDS_MAX)
        ticket, began = Ticket(), time.monotonic()
        self.path.add(BatchGroup(TOPIC, PartitionIndex(0), BATCH, split_batches(BATCH), ticket))
        await ticket.settled
        self.seconds.append(time.monotonic() - began)

    async def at_rate(self, mb_per_s: int, end: float) -> None:
        began, count = time.monotonic(), 0
        async with asyncio.TaskGroup() as sends:
            while time.monotonic() < end:
                await asyncio.sleep(began + count * MIB / (mb_per_s * 1e6) - time.monotonic())
                sends.create_task(self.send())
                count += 1

    async def in_flight(self, count: int, end: float) -> None:
        async def client() -> None:
            while time.monotonic() < end:
                await self.send()

        async with asyncio.TaskGroup() as clients:
            for _ in range(count):
                clients.create_task(client())


async def measure(store: tuple[int, int], load: str, amount: int, seconds: float) -> dict[str, object]:
    timed = TimedStore(*store)
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        run = Run(paths, timed, tasks)
        began = time.monotonic()
        await (run.at_rate if load == "MB/s" else run.in_flight)(amount, began + seconds)
        await run.path.drain()
        elapsed = time.monotonic() - began
    quantiles = statistics.quantiles(run.seconds, n=100)
    return {
        "put": f"{store[0]} ms + {store[1]} MB/s",
        "load": f"{amount} {load}",
        "mb_per_s": round(len(run.seconds) * MIB / 1e6 / elapsed),
        "puts_per_gib": round(len(timed.sizes) / (sum(timed.sizes) / GIB)),
        "p50_ms": round(quantiles[49] * 1000),
        "p99_ms": round(quantiles[98] * 1000),
    }


@contextmanager
def sizes(full_mib: int, enough_mib: int) -> Iterator[None]:
    """The limits of a variant."""
    with (
        mock.patch("agent.produce.produce_path.INTAKE_OBJECT_BYTES_TARGET", full_mib * MIB),
        mock.patch("agent.produce.produce_path.INTAKE_OBJECT_BYTES_ENOUGH", enough_mib * MIB),
    ):
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--variants", default="8/8,20/8")
    options = parser.parse_args()
    loads = [("MB/s", rate) for rate in RATES] + [("MiB in flight", count) for count in IN_FLIGHT]
    for variant in options.variants.split(","):
        with sizes(*map(int, variant.split("/"))):
            for store in STORES:
                for load, amount in loads:
                    row = asyncio.run(measure(store, load, amount, options.seconds))
                    print(json.dumps({"variant": variant} | row), flush=True)


if __name__ == "__main__":
    main()
