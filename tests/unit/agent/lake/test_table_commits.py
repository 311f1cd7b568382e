"""What passes and upkeep make of a topic's table: its files are those of the log, whatever happens in between."""

import asyncio
import json
from collections.abc import Sequence

import pytest

from coordinator.commands.commands import CommitTable, DeleteTopic, Done
from coordinator.invariants import check
from coordinator.ledger.memory import MemoryLedger
from iceberg_export.tables.commit import Change
from iceberg_export.tables.metadata import TableUnreadable
from storage.memory_store import MemoryStore
from storage.object_store import Buffer
from tests.support.agent.ledger_parts import Parts, lake_of, running_parts
from tests.support.commands.commands import TOPIC, create
from tests.support.lake.archivers import ArchiverOfBefore, archiver, produce
from tests.support.lake.table_files import GRACE_MS, drop_everything, expire_snapshots, files_of_log, live_files
from tests.support.lake.table_fixtures import setting


async def test_each_pass_adds_its_file_with_the_rows_and_offsets_that_it_holds() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        lake = lake_of(parts, store)
        for number in range(3):
            await produce(parts, store, number)
            await archiver(parts, store, lake).archive_topic(TOPIC)
        files = await live_files(parts, store)
        assert [live.file.key for live in files] == files_of_log(parts)
        assert [live.file.record_count for live in files] == [3, 3, 3]
        bounds = [live.file.bounds for live in files]
        assert [(one.offset_min, one.offset_max) for one in bounds if one is not None] == [(0, 2), (3, 5), (6, 8)]
        assert check(parts.ledger.state) == []


async def test_a_topic_that_was_archived_before_it_had_a_table_gets_all_of_its_files() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        await produce(parts, store, 0)
        before = lake_of(parts, store)
        await ArchiverOfBefore(archiver(parts, store, before)).archive_topic(TOPIC)
        assert parts.ledger.state.topics[TOPIC].table is None
        await produce(parts, store, 1)
        lake = lake_of(parts, store)
        lake._number_next = before._number_next
        await archiver(parts, store, lake).archive_topic(TOPIC)
        files = await live_files(parts, store)
        assert [live.file.key for live in files] == files_of_log(parts)
        bounds = [live.file.bounds for live in files]
        assert [(one.offset_min, one.offset_max) for one in bounds if one is not None] == [(0, 2), (3, 5)]
        assert [live.file.record_count for live in files] == [3, 3]


async def test_files_leave_the_table_when_their_records_have_left_the_log() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        lake = lake_of(parts, store)
        for number in range(2):
            await produce(parts, store, number)
            await archiver(parts, store, lake).archive_topic(TOPIC)
        keeping = expire_snapshots(parts, lake)
        assert await keeping.update_table(TOPIC) == 0
        await drop_everything(parts)
        assert keeping._is_due(TOPIC)
        assert len(files_of_log(parts)) == 2
        assert await keeping.update_table(TOPIC) == 2
        assert await live_files(parts, store) == []
        assert await keeping.update_table(TOPIC) == 0
        assert not keeping._is_due(TOPIC)
        assert len(files_of_log(parts)) == 2  # snapshots of before the drop hold them
        parts.clock.seconds += GRACE_MS / 1000 + 1
        assert keeping._is_due(TOPIC)
        assert await keeping.update_table(TOPIC) == 0
        assert files_of_log(parts) == []
        assert not keeping._is_due(TOPIC)
        assert check(parts.ledger.state) == []


async def test_s2_no_snapshot_expires_and_none_is_made_later_by_a_clock_that_is_not_believed() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        lake = lake_of(parts, store)
        await produce(parts, store, 0)
        await archiver(parts, store, lake).archive_topic(TOPIC)
        keeping = expire_snapshots(parts, lake)
        parts.is_clock_checked = False
        parts.clock.seconds += 366 * 86_400
        await drop_everything(parts)
        assert await keeping.update_table(TOPIC) == 0
        parts.clock.seconds += GRACE_MS / 1000 + 1
        assert await keeping.update_table(TOPIC) == 0
        await produce(parts, store, 1)
        await archiver(parts, store, lake).archive_topic(TOPIC)
        assert len(files_of_log(parts)) == 2
        table = parts.ledger.state.topics[TOPIC].table
        assert table is not None
        assert json.loads(await store.get(table.metadata_key))["last-updated-ms"] <= parts.ledger.state.time_ms


class Meddling(MemoryStore):
    """Commits to the table, or deletes the topic, while somebody else's metadata is being put."""

    parts: Parts
    command: CommitTable | DeleteTopic | None = None

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        await super().put(key, parts, if_absent=if_absent)
        if key.endswith(".metadata.json") and self.command is not None:
            command, self.command = self.command, None
            assert await self.parts.ledger.propose(command) == Done()


async def test_s6_a_pass_that_finds_another_commit_in_its_place_is_made_again() -> None:
    store = Meddling()
    async with running_parts(store=store) as parts:
        store.parts = parts
        await parts.ledger.propose(create())
        await produce(parts, store, 0)
        await archiver(parts, store).archive_topic(TOPIC)
        await produce(parts, store, 1)
        other = lake_of(parts, store)
        prepared = await other.prepare(TOPIC, Change(edit=setting({"a": "b"})), parts.ledger.session)
        assert prepared is not None
        store.command = CommitTable(topic_id=TOPIC, object_session=parts.ledger.session, table=prepared)
        # Numbers of one session come from one lake; the other one stands for another agent's.
        lake = lake_of(parts, store)
        lake._number_next = 1_000
        report = await archiver(parts, store, lake).archive_topic(TOPIC)
        assert report.records == 3
        assert [live.file.key for live in await live_files(parts, store)] == files_of_log(parts)
        assert parts.metrics.archive_passes.labels("rejected")._value.get() == 1


async def test_upkeep_of_a_topic_that_is_deleted_meanwhile_does_nothing() -> None:
    store = Meddling()
    async with running_parts(store=store) as parts:
        store.parts = parts
        await parts.ledger.propose(create())
        await produce(parts, store, 0)
        await archiver(parts, store).archive_topic(TOPIC)
        await drop_everything(parts)
        store.command = DeleteTopic(topic_id=TOPIC)
        lake = lake_of(parts, store)
        lake._number_next = 1_000
        keeping = expire_snapshots(parts, lake)
        assert await keeping.update_table(TOPIC) == 0
        assert await keeping.update_table(TOPIC) == 0
        assert not parts.ledger.state.objects


async def test_a_damaged_table_fails_the_pass_and_says_what_is_damaged() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await parts.ledger.propose(create())
        await produce(parts, store, 0)
        await archiver(parts, store).archive_topic(TOPIC)
        table = parts.ledger.state.topics[TOPIC].table
        assert table is not None
        await store.put(table.metadata_key, (b"{}",))
        await produce(parts, store, 1)
        with pytest.raises(TableUnreadable):
            await archiver(parts, store).archive_topic(TOPIC)
        await store.delete([table.metadata_key])
        with pytest.raises(TableUnreadable, match="is gone"):
            await archiver(parts, store).archive_topic(TOPIC)
        assert len(files_of_log(parts)) == 1


async def test_names_are_given_once_and_a_topics_table_is_changed_by_one_at_a_time() -> None:
    store, ledger = MemoryStore(), MemoryLedger()
    async with running_parts(ledger, store=store) as parts:
        lake = lake_of(parts, store)
        names = [await lake.name() for _ in range(3)]
        assert len({name.number for name in names}) == 3
        order: list[str] = []

        async def take(who: str) -> None:
            async with lake.turn(TOPIC):
                order.append(who)
                for _ in range(3):
                    await asyncio.sleep(0)
                order.append(who)

        await asyncio.gather(take("a"), take("b"), take("c"))
        assert order == ["a", "a", "b", "b", "c", "c"]
