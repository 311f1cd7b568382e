"""A data folder that was moved: tables name their files by the new place, with all their snapshots, and go on."""

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from agent.bucket.cluster_identity import check_bucket
from agent.lake.snapshot_expiry import SnapshotExpiry
from agent.lake.table_commits import TableCommits
from agent.recovery.audit import Audit
from coordinator.commands.commands import CommitTable, Done
from coordinator.invariants import check
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from iceberg_export.tables.commit import Change
from iceberg_export.tables.metadata import TableMetadata, TableUnreadable, decode
from iceberg_export.tables.table_reader import TableCache, TableReader
from storage.embedded.local_store import LocalStore
from storage.memory_store import MemoryStore
from storage.object_store import ObjectStore
from tests.support.agent.ledger_parts import Parts, lake_of, running_parts
from tests.support.commands.commands import TOPIC, create, start
from tests.support.lake.archivers import archiver, produce
from tests.support.lake.table_files import expire_snapshots
from tests.support.lake.table_fixtures import run_here, setting


class Place:
    """A data folder and the ledger beside it."""

    def __init__(self, path: Path) -> None:
        self.core = MemoryLedgerCore()
        self.path = path
        self.numbers = 0

    @property
    def root(self) -> str:
        return f"file://{self.path}"

    def move(self, path: Path) -> None:
        shutil.move(self.path, path)
        self.path = path

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[tuple[Parts, LocalStore, TableCommits]]:
        store = LocalStore(self.path, is_durable=False)
        try:
            async with running_parts(MemoryLedger(self.core), start("a", node=1), store=store) as parts:
                yield parts, store, lake_of(parts, store, self.root)
        finally:
            await store.close()

    async def archive(self, parts: Parts, store: ObjectStore, lake: TableCommits, passes: int) -> None:
        for _ in range(passes):
            await produce(parts, store, self.numbers)
            self.numbers += 1
            await archiver(parts, cast("MemoryStore", store), lake).archive_topic(TOPIC)


async def metadata_of(parts: Parts, store: ObjectStore) -> TableMetadata:
    table = parts.ledger.state.topics[TOPIC].table
    assert table is not None
    return decode(await store.get(table.metadata_key))


def keeping(parts: Parts, lake: TableCommits) -> SnapshotExpiry:
    return expire_snapshots(parts, lake)


def offsets_read(place: Place, key: str, snapshot_id: int | None = None) -> Sequence[int]:
    """What PyIceberg reads from the place, and nowhere else."""
    table = StaticTable.from_metadata(f"{place.root}/{key}")
    paths = [task.file.file_path for task in table.scan(snapshot_id=snapshot_id).plan_files()]
    assert all(path.startswith(f"{place.root}/") for path in paths)
    found = [pq.read_table(path.removeprefix("file://"))["offset"].to_pylist() for path in paths]
    return sorted(offset for offsets in found for offset in offsets)


async def test_a_moved_folder_has_tables_again_by_itself_and_old_and_new_rows(tmp_path: Path) -> None:
    place = Place(tmp_path / "before")
    async with place.agent() as (parts, store, lake):
        await check_bucket(store, place.core.identity)
        await parts.ledger.propose(create())
        await place.archive(parts, store, lake, 3)
        edit = await lake.prepare(TOPIC, Change(edit=setting({"comment": "mine"})), parts.ledger.session)
        assert edit is not None
        entry = CommitTable(topic_id=TOPIC, object_session=parts.ledger.session, table=edit)
        assert await lake.propose(entry) == Done()
        before = await metadata_of(parts, store)
        ended = parts.ledger.session
    place.core.expire(ended)
    place.move(tmp_path / "after")
    async with place.agent() as (parts, store, lake):
        await keeping(parts, lake).update_table(TOPIC)
        moved = await metadata_of(parts, store)
        assert moved.location == before.location.replace("/before/", "/after/")
        assert moved.properties == before.properties
        assert [one.snapshot_id for one in moved.snapshots] == [one.snapshot_id for one in before.snapshots]
        table = parts.ledger.state.topics[TOPIC].table
        assert table is not None
        for number, snapshot in enumerate(moved.snapshots, start=1):
            assert offsets_read(place, table.metadata_key, snapshot.snapshot_id) == list(range(3 * number))
        await place.archive(parts, store, lake, 2)
        table = parts.ledger.state.topics[TOPIC].table
        assert table is not None
        assert offsets_read(place, table.metadata_key) == list(range(15))
        assert check(parts.ledger.state) == []
        report = await Audit(parts.backend, store, grace_ms=1_000).run(is_repairing=False)
        assert report.disagreements == []


async def test_two_agents_with_different_urls_of_one_bucket_do_not_move_its_tables_back_and_forth(
    tmp_path: Path,
) -> None:
    place = Place(tmp_path / "store")
    async with (
        place.agent() as (parts, store, lake),
        running_parts(MemoryLedger(place.core), start("b", node=2), store=store) as other,
    ):
        await parts.ledger.propose(create())
        await place.archive(parts, store, lake, 1)
        await other.ledger.barrier()
        elsewhere = lake_of(other, store, "s3://elsewhere")
        with pytest.raises(TableUnreadable, match=r"the agent a writes this table to file://.* start all agents"):
            await keeping(other, elsewhere).update_table(TOPIC)
        await place.archive(parts, store, lake, 1)
        assert (await metadata_of(parts, store)).location.startswith(place.root)


async def test_a_table_that_is_here_is_looked_at_once(tmp_path: Path) -> None:
    place = Place(tmp_path / "store")
    async with place.agent() as (parts, store, lake):
        await parts.ledger.propose(create())
        await place.archive(parts, store, lake, 1)
        version = parts.ledger.state.topics[TOPIC].table
        fresh = lake_of(parts, store, place.root)
        await keeping(parts, fresh).update_table(TOPIC)
        assert parts.ledger.state.topics[TOPIC].table == version


async def test_many_snapshots_move_by_one_entry(tmp_path: Path) -> None:
    place = Place(tmp_path / "before")
    async with place.agent() as (parts, store, lake):
        await parts.ledger.propose(create())
        await place.archive(parts, store, lake, 25)
        position, ended = parts.ledger.state.position, parts.ledger.session
    place.core.expire(ended)
    place.move(tmp_path / "after")
    async with place.agent() as (parts, store, lake):
        await keeping(parts, lake).update_table(TOPIC)
        moved = await metadata_of(parts, store)
        assert len(moved.snapshots) == 25
        reader = TableReader(root=place.root, store=store, cache=TableCache(), run_in_thread=run_here)
        counts = [sum(row.live_files for row in await reader.manifests(snapshot)) for snapshot in moved.snapshots]
        assert counts == list(range(1, 26))
        assert parts.ledger.state.position > position


async def test_a_copy_of_a_bucket_under_another_prefix_names_its_own_objects(tmp_path: Path) -> None:
    place, bucket, copy = Place(tmp_path), MemoryStore(), MemoryStore()
    async with running_parts(MemoryLedger(place.core), start("a"), store=bucket) as parts:
        await parts.ledger.propose(create())
        await place.archive(parts, bucket, lake_of(parts, bucket, "s3://bucket"), 2)
        ended = parts.ledger.session
    place.core.expire(ended)
    async for meta in bucket.list(""):
        await copy.put(meta.key, [await bucket.get(meta.key)])
    async with running_parts(MemoryLedger(place.core), start("a"), store=copy) as parts:
        lake = lake_of(parts, copy, "s3://other/prefix")
        await keeping(parts, lake).update_table(TOPIC)
        await place.archive(parts, copy, lake, 1)
        reader = TableReader(root="s3://other/prefix", store=copy, cache=TableCache(), run_in_thread=run_here)
        live = await reader.live_files(await metadata_of(parts, copy))
        assert sum(one.file.record_count for one in live) == 9
        assert {one.file.key for one in live} <= {meta.key async for meta in copy.list("lake/")}
