"""Edits through the catalog: of the table as it is, made true by the ledger, or refused with the table as it was."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import pytest

from agent.lake.table_updates import TableUpdates, TopicGone
from agent.ledger import ledger_writer
from coordinator.commands.commands import CommitTable, DeleteTopic, Done
from coordinator.invariants import check
from iceberg_export.tables.commit import Change
from iceberg_export.tables.edits import (
    AssertRefSnapshotId,
    EditInvalid,
    RemoveSnapshotRef,
    RequirementFailed,
    SetSnapshotRef,
    TableEdit,
)
from iceberg_export.tables.metadata import TableMetadata
from iceberg_export.tables.table_reader import TableCache, TableReader
from protocol.limits import TABLE_EDIT_TRIES_MAX
from storage.memory_store import MemoryStore
from storage.object_store import Buffer, StoreUnavailable
from tests.support.agent.ledger_parts import LAKE_ROOT, ManualClock, Parts, lake_of, running_parts
from tests.support.commands.commands import TOPIC, create
from tests.support.lake.archivers import archiver, produce
from tests.support.lake.table_files import drop_everything, expire_snapshots, files_of_log, live_files, needed
from tests.support.lake.table_fixtures import run_here, setting


def edits(parts: Parts, store: MemoryStore) -> TableUpdates:
    return TableUpdates(ledger=parts.ledger, lake=lake_of(parts, store), clock=parts.clock)


async def metadata(parts: Parts, store: MemoryStore) -> TableMetadata:
    table = parts.ledger.state.topics[TOPIC].table
    assert table is not None
    reader = TableReader(root=LAKE_ROOT, store=store, cache=TableCache(), run_in_thread=run_here)
    return await reader.metadata(table.metadata_key)


def tagging(snapshot_id: int) -> TableEdit:
    return TableEdit(updates=(SetSnapshotRef(ref_name="audit", type="tag", snapshot_id=snapshot_id),))


async def test_a_topic_without_an_archive_has_properties_and_keeps_them() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        lake = lake_of(parts, store)
        editing = TableUpdates(ledger=parts.ledger, lake=lake, clock=parts.clock)
        await editing.make(TOPIC, setting({"comment": "c"}))
        assert (await metadata(parts, store)).properties["comment"] == "c"
        await produce(parts, store, 0)
        await archiver(parts, store, lake).archive_topic(TOPIC)
        assert (await metadata(parts, store)).properties["comment"] == "c"
        assert [live.file.key for live in await live_files(parts, store)] == files_of_log(parts)
        assert check(parts.ledger.state) == []


async def test_a_tag_keeps_what_the_log_let_go_of_until_it_goes() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        lake = lake_of(parts, store)
        editing = TableUpdates(ledger=parts.ledger, lake=lake, clock=parts.clock)
        await produce(parts, store, 0)
        await archiver(parts, store, lake).archive_topic(TOPIC)
        (kept,) = files_of_log(parts)
        tagged = (await metadata(parts, store)).snapshots[-1].snapshot_id
        await editing.make(TOPIC, tagging(tagged))
        await drop_everything(parts)
        keeping = expire_snapshots(parts, lake)
        await parts.clock.sleep(3_600)
        assert await keeping.update_table(TOPIC) == 1
        await parts.clock.sleep(3_600)
        assert await keeping.update_table(TOPIC) == 0
        assert kept in needed(parts)
        await editing.make(TOPIC, TableEdit(updates=(RemoveSnapshotRef(ref_name="audit"),)))
        assert kept in needed(parts)
        assert await keeping.update_table(TOPIC) == 0
        assert kept not in needed(parts)
        assert check(parts.ledger.state) == []


class Committing(MemoryStore):
    """Has another agent commit to the table as an edit puts its metadata, so many times."""

    times = 0
    done = 0
    parts: Parts

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        await super().put(key, parts, if_absent=if_absent)
        if key.endswith(".metadata.json") and self.times:
            self.times, left = 0, self.times - 1
            self.done += 1
            lake = lake_of(self.parts, self)
            lake._number_next = 1_000 * self.done  # numbers of one session come from one lake
            session = self.parts.ledger.session
            prepared = await lake.prepare(TOPIC, Change(edit=setting({"other": str(left)})), session)
            assert prepared is not None
            entry = CommitTable(topic_id=TOPIC, object_session=session, table=prepared)
            assert await self.parts.ledger.propose(entry) == Done()
            self.times = left


async def test_an_edit_that_another_commit_overtook_is_made_of_the_newer_table() -> None:
    store = Committing()
    async with running_parts(store=store) as parts:
        store.parts = parts
        await parts.ledger.propose(create())
        editing = edits(parts, store)
        await editing.make(TOPIC, setting({"comment": "c"}))
        store.times = TABLE_EDIT_TRIES_MAX - 1
        await editing.make(TOPIC, setting({"comment": "d"}))
        found = (await metadata(parts, store)).properties
        assert (found["comment"], found["other"]) == ("d", "0")
        store.times = TABLE_EDIT_TRIES_MAX
        with pytest.raises(RequirementFailed, match="other commits change the table all the time"):
            await editing.make(TOPIC, setting({"comment": "e"}))
        assert (await metadata(parts, store)).properties["comment"] == "d"


async def test_what_is_refused_leaves_the_table_as_it_was() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        editing = edits(parts, store)
        await editing.make(TOPIC, setting({"comment": "c"}))
        table = parts.ledger.state.topics[TOPIC].table
        with pytest.raises(EditInvalid, match="no snapshot 5"):
            await editing.make(TOPIC, tagging(5))
        wanted = (AssertRefSnapshotId(ref="main", snapshot_id=5),)
        with pytest.raises(RequirementFailed, match="the snapshot of 'main' is None, not 5"):
            await editing.make(TOPIC, TableEdit(requirements=wanted, updates=setting({"a": "b"}).updates))
        assert parts.ledger.state.topics[TOPIC].table == table
        await parts.ledger.propose(DeleteTopic(topic_id=TOPIC))
        with pytest.raises(TopicGone):
            await editing.make(TOPIC, setting({"comment": "d"}))


class Hasty(ManualClock):
    """Whatever has a time limit is over it at the first wait."""

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        return asyncio.timeout(0)


async def test_what_waits_too_long_for_its_turn_is_never_made() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        lake = lake_of(parts, store)
        editing = TableUpdates(ledger=parts.ledger, lake=lake, clock=Hasty())
        async with lake.turn(TOPIC):
            with pytest.raises(StoreUnavailable, match="Nothing was changed, try again"):
                await editing.make(TOPIC, setting({"comment": "c"}))
        await parts.ledger.barrier()
        assert parts.ledger.state.topics[TOPIC].table is None


async def test_a_ledger_that_has_too_much_to_do_is_no_table_that_others_change(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        monkeypatch.setattr(ledger_writer, "LEDGER_COMMANDS_QUEUED_MAX", 0)
        with pytest.raises(StoreUnavailable, match="commands wait for the ledger: try again later"):
            await edits(parts, store).make(TOPIC, setting({"comment": "c"}))
