"""Commits to a table: CPU milliseconds, requests and bytes of each, and how they grow with the table.

Run: `.venv/bin/python -m benchmarks.micro.tables [--commits 10000] [--dropping]`. One JSON line a row on stdout. Each
commit adds one file; with `--dropping` it drops, too, the file that came 1,000 commits before. A row tells of the last
hundred commits at most. Objects lie in memory, so this is all CPU.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import ParamSpec, TypeVar

from iceberg_export.rows.schema import FieldId
from iceberg_export.tables.column_counts import ColumnCount, ColumnCounts
from iceberg_export.tables.commit import Change, PreparedCommit, TableBefore, commit
from iceberg_export.tables.data_file import DataFile, RowBounds
from iceberg_export.tables.table_reader import TableCache
from protocol.types import ObjectNumber, SessionId, TopicId
from storage.memory_store import MemoryStore
from storage.object_store import Buffer
from storage.refs import parquet_key, topic_folder

P = ParamSpec("P")
T = TypeVar("T")

NAME, TOPIC, SESSION = "flights", TopicId(b"b" * 16), SessionId(7)
FILES_KEPT = 1_000


class CountingStore(MemoryStore):
    """Counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.gets = self.puts = self.bytes_put = 0

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        self.puts += 1
        self.bytes_put += sum(len(part) for part in parts)
        await super().put(key, parts, if_absent=if_absent)

    async def get(self, key: str) -> bytes:
        self.gets += 1
        return await super().get(key)


async def run_here(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Threads would blur whose CPU it is."""
    return function(*args, **kwargs)


def data_file(number: int) -> DataFile:
    return DataFile(
        key=parquet_key(NAME, TOPIC, SESSION, ObjectNumber(number)),
        object_bytes=50_000_000,
        record_count=100_000,
        bounds=RowBounds(
            partition_min=0,
            partition_max=7,
            offset_min=number * 12_500,
            offset_max=(number + 1) * 12_500 - 1,
            timestamp_us_min=1_700_000_000_000_000 + number,
            timestamp_us_max=1_700_000_001_000_000 + number,
        ),
        counts=ColumnCounts.of(
            [
                *(ColumnCount(each, 100_000, 0) for each in (1, 2, 3, 4, 7)),
                ColumnCount(FieldId.KEY, 100_000, 0),
                ColumnCount(FieldId.VALUE, 100_000, 0),
            ]
        ),
        split_offsets=tuple(4 + row_group * 4_000_000 for row_group in range(12)),
    )


async def measure(commits: int, *, is_dropping: bool) -> None:
    store, cache, serial = CountingStore(), TableCache(), count()
    folder = topic_folder(NAME, TOPIC)
    metadata_key = ""
    rows = {target for target in (1, 10, 100, 1_000, 3_000, 10_000) if target <= commits} | {commits}
    costs: list[tuple[float, int, int, int]] = []
    for number in range(1, commits + 1):
        oldest = number - FILES_KEPT
        dropped = frozenset({data_file(oldest).key} if is_dropping and oldest >= 1 else ())
        offsets = dict.fromkeys(range(8), (number * 12_500, (number + 1) * 12_500))
        change = Change(added=(data_file(number),), dropped=dropped, offsets=offsets)
        asked = (store.gets, store.puts, store.bytes_put)
        begin = time.process_time()
        done: PreparedCommit = await commit(
            TableBefore(name=NAME, topic_id=TOPIC, created_ms=0, metadata_key=metadata_key, root="s3://bucket"),
            change,
            store=store,
            next_key=lambda suffix: f"{folder}metadata/{next(serial):016x}{suffix}",
            now_ms=1_700_000_000_000 + number,
            cache=cache,
            run_in_thread=run_here,
        )
        seconds = time.process_time() - begin
        costs.append((seconds, store.gets - asked[0], store.puts - asked[1], store.bytes_put - asked[2]))
        metadata_key = done.table.metadata.key
        await store.delete(done.table.released)
        if number in rows:
            tell(number, costs[-100:])


def tell(number: int, costs: list[tuple[float, int, int, int]]) -> None:
    seconds = sorted(cost[0] for cost in costs)
    row = {
        "commits": number,
        "cpu_ms": round(sum(seconds) / len(costs) * 1e3, 2),
        "cpu_ms_p50": round(seconds[len(seconds) // 2] * 1e3, 2),
        "cpu_ms_max": round(seconds[-1] * 1e3, 2),
        "gets": round(sum(cost[1] for cost in costs) / len(costs), 2),
        "puts": round(sum(cost[2] for cost in costs) / len(costs), 2),
        "kb_put": round(sum(cost[3] for cost in costs) / len(costs) / 1e3, 1),
    }
    print(json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--dropping", action="store_true", help="keep the newest thousand files")
    options = parser.parse_args()
    asyncio.run(measure(options.commits, is_dropping=options.dropping))


if __name__ == "__main__":
    main()
