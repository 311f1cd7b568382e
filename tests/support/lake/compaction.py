"""A file compactor, the small files that it compacts, and the records that consumers read."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agent.lake.compactor import FileCompactor
from agent.lake.table_commits import TableCommits
from agent.runtime.threads import run_in_thread
from iceberg_export.parquet.reader import ParquetReader
from iceberg_export.tables.table_reader import TableCache, TableReader
from protocol.records.compression import Compression
from storage.memory_store import MemoryStore
from tests.support.agent.ledger_parts import LAKE_ROOT, Parts, lake_of, running_parts
from tests.support.commands.commands import TOPIC, create
from tests.support.lake.archivers import archiver, produce
from tests.support.lake.table_fixtures import run_here
from tests.support.records.plain_records import Record, read_batches

FILES = 8
"""So many of what `produce` writes are worth a merge."""


def file_compactor(parts: Parts, store: MemoryStore, lake: TableCommits) -> FileCompactor:
    return FileCompactor(parts.context(), lake=lake)


async def small_files(
    parts: Parts, store: MemoryStore, lake: TableCommits, *, count: int = FILES, first: int = 0
) -> None:
    """So many intake objects of three records, each archived by itself."""
    for number in range(first, first + count):
        await produce(parts, store, number)
        await archiver(parts, store, lake).archive_topic(TOPIC)


@asynccontextmanager
async def archived(store: MemoryStore, *, count: int = FILES) -> AsyncIterator[tuple[Parts, TableCommits]]:
    """A topic of so many small files."""
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        lake = lake_of(parts, store)
        await small_files(parts, store, lake, count=count)
        yield parts, lake


async def served(parts: Parts, store: MemoryStore) -> list[Record]:
    """What a consumer of the archived log gets."""
    reader = ParquetReader(store=store, run_in_thread=run_in_thread)
    held = parts.ledger.state.topics[TOPIC].partitions[0]
    found: list[Record] = []
    for row in range(held.index.intake_row):
        chunk = held.index.row(row)
        key = parts.ledger.state.objects[chunk.object_id].key
        batches = read_batches(await reader.read(key, chunk, Compression.NONE))
        assert batches.ranges[0][0] <= chunk.offset_first
        assert batches.ranges[-1][1] == chunk.offset_end
        found += batches.records
    return found


async def operations(parts: Parts, store: MemoryStore) -> list[str]:
    """What the table's snapshots did, oldest first."""
    table = parts.ledger.state.topics[TOPIC].table
    assert table is not None
    reader = TableReader(root=LAKE_ROOT, store=store, cache=TableCache(), run_in_thread=run_here)
    return [snapshot.summary["operation"] for snapshot in (await reader.metadata(table.metadata_key)).snapshots]


async def objects(store: MemoryStore) -> set[str]:
    return {meta.key async for meta in store.list("")}
