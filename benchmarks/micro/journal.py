"""One write and one sync beside two: an intake object and the entry that commits it, in a journal and as before it.

A row appends an object and then its entry, of so many bytes, and waits for both: to a pack and to SQLite, one after
the other, or to a journal by one call. `through` says what is measured: "files" is the bytes alone, written and synced
by one thread; "adapters" is the ledger and the store as an agent uses them, with their hops between threads. Both ways
take turns, so that a busy disk is busy for both. Times are milliseconds; `ratio` is the journal's time, as part of the
other's.

Run: `.venv/bin/python -m benchmarks.micro.journal [--rounds 2000] [--folder DIR]`. A row is a JSON line.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from coordinator.ledger.journal import JournalLedger
from coordinator.ledger.port import LedgerEntry
from coordinator.ledger.sqlite import SqliteLedger
from storage.embedded.journal.open_journal import OpenJournal
from storage.embedded.local_files import Files
from storage.embedded.pack_store import PackStore
from storage.object_store import ObjectToPut

SIZES = ((80_000, 400), (16_000, 200), (1_000_000, 2_000))
"""Bytes of the object and of the entry: five requests of 16 KiB, one, and one of 1 MiB."""
PREALLOCATED_BYTES = 64 << 20
WARM_UP = 50


def percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    """The median and the 99th percentile, in milliseconds."""
    cuts = statistics.quantiles(seconds, n=100)
    return cuts[49] * 1000, cuts[98] * 1000


def row(through: str, sizes: tuple[int, int], apart: Sequence[float], together: Sequence[float]) -> str:
    apart_p50, apart_p99 = percentiles(apart[WARM_UP:])
    together_p50, together_p99 = percentiles(together[WARM_UP:])
    return json.dumps(
        {
            "through": through,
            "object_bytes": sizes[0],
            "entry_bytes": sizes[1],
            "two_p50": round(apart_p50, 3),
            "two_p99": round(apart_p99, 3),
            "one_p50": round(together_p50, 3),
            "one_p99": round(together_p99, 3),
            "ratio_p50": round(together_p50 / apart_p50, 2),
            "ratio_p99": round(together_p99 / apart_p99, 2),
        }
    )


@contextmanager
def descriptor_of(path: Path, *, is_written: bool) -> Iterator[int]:
    """A file whose blocks exist, and were written before where `is_written`."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.posix_fallocate(descriptor, 0, PREALLOCATED_BYTES)
        if is_written:
            for first in range(0, PREALLOCATED_BYTES, 1 << 20):
                os.pwrite(descriptor, b"\1" * (1 << 20), first)
        os.fsync(descriptor)
        yield descriptor
    finally:
        os.close(descriptor)


def measure_files(folder: Path, sizes: tuple[int, int], rounds: int) -> str:
    """The same bytes by two writes to two files, each synced, and by one write to one file."""
    stored, entry = b"o" * sizes[0], b"e" * sizes[1]
    files, apart, together = Files(), list[float](), list[float]()
    write_bytes = sum(sizes)
    with (
        descriptor_of(folder / "objects", is_written=True) as objects,
        descriptor_of(folder / "entries", is_written=True) as entries,
        descriptor_of(folder / "both", is_written=True) as both,
    ):
        for number in range(rounds):
            at = number * write_bytes % (PREALLOCATED_BYTES - write_bytes)
            began = time.perf_counter()
            files.write_at(objects, [stored], at)
            files.sync_data(objects)
            files.write_at(entries, [entry], at)
            files.sync_data(entries)
            between = time.perf_counter()
            files.write_at(both, [stored, entry], at)
            files.sync_data(both)
            together.append(time.perf_counter() - between)
            apart.append(between - began)
    return row("files", sizes, apart, together)


async def measure_adapters(folder: Path, sizes: tuple[int, int], rounds: int) -> str:
    """The store of packs and the ledger in SQLite, beside ledger and intake in a journal."""
    packs = PackStore(folder / "packs", now_ms=lambda: 0, new_nonce=lambda: os.urandom(16))
    sqlite = await SqliteLedger.open(folder / "ledger.sqlite", new_cluster_id="c")
    opened = await OpenJournal.open(folder / "journal", new_nonce=lambda: os.urandom(16))
    journal = await JournalLedger.open(opened, new_cluster_id="c")
    sqlite_session, journal_session = await sqlite.open_session("a"), await journal.open_session("a")
    parts = [b"o" * (sizes[0] // 5)] * 5
    apart, together = list[float](), list[float]()
    try:
        for number in range(rounds):
            group = [LedgerEntry(number=number, payload=os.urandom(sizes[1]))]
            key = f"intake/{number}"

            async def put_and_append(key: str = key, group: Sequence[LedgerEntry] = group) -> None:
                await packs.put(key, parts)
                await sqlite.append(sqlite_session, group)

            async def append_with(key: str = key, group: Sequence[LedgerEntry] = group) -> None:
                stored = ObjectToPut(key=key, parts=parts, modified_ms=0)
                await journal.append_with(journal_session, group, [stored])

            apart.append(await seconds_of(put_and_append))
            together.append(await seconds_of(append_with))
            if number % 500 == 499:  # as the garbage collector does: files are used again
                doomed = [f"intake/{each}" for each in range(number - 499, number + 1)]
                await packs.delete(doomed)
                opened.journal.mark_dead([opened.objects.pop(each) for each in doomed])
    finally:
        await packs.close()
        await sqlite.close()
        await journal.close()
        await opened.close()
    return row("adapters", sizes, apart, together)


async def seconds_of(call: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await call()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=1_000)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    for sizes in SIZES:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            print(measure_files(Path(folder), sizes, options.rounds), flush=True)
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            print(asyncio.run(measure_adapters(Path(folder), sizes, options.rounds)), flush=True)


if __name__ == "__main__":
    main()
