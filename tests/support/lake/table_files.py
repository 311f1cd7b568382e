"""The files of a topic's log and of its table, and what removes them."""

from agent.lake.snapshot_expiry import SnapshotExpiry
from agent.lake.table_commits import TableCommits
from coordinator.commands.commands import ApplyRetention
from iceberg_export.tables.data_file import LiveFile
from iceberg_export.tables.table_reader import TableCache, TableReader
from storage.memory_store import MemoryStore
from storage.refs import ObjectKind
from tests.support.agent.ledger_parts import LAKE_ROOT, Parts
from tests.support.commands.commands import TOPIC
from tests.support.lake.table_fixtures import run_here

GRACE_MS = 60_000


def expire_snapshots(parts: Parts, lake: TableCommits) -> SnapshotExpiry:
    return SnapshotExpiry(parts.context(), lake=lake, superseded_ms=GRACE_MS)


async def live_files(parts: Parts, store: MemoryStore) -> list[LiveFile]:
    """The live files of the table that the state points to."""
    table = parts.ledger.state.topics[TOPIC].table
    assert table is not None
    reader = TableReader(root=LAKE_ROOT, store=store, cache=TableCache(), run_in_thread=run_here)
    return list(await reader.live_files(await reader.metadata(table.metadata_key)))


def files_of_log(parts: Parts) -> list[str]:
    return sorted(found.key for found in parts.ledger.state.objects.values() if found.kind is ObjectKind.PARQUET)


async def drop_everything(parts: Parts) -> None:
    await parts.ledger.propose(
        ApplyRetention(
            now_ms=parts.clock.now_ms(), topic_ids=(TOPIC,), retention_ms=-1, retention_bytes=0, is_deleting=True
        )
    )


def needed(parts: Parts) -> set[str]:
    """Everything that the table refers to."""
    state = parts.ledger.state
    table = state.topics[TOPIC].table
    assert table is not None
    return {state.objects[object_id].key for object_id in table.objects}
