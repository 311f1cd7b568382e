"""Archive passes on demand: all that was there, planned again where the index moved on, and an end in any case."""

import asyncio
from collections.abc import Sequence

import pytest

from agent.lake.archiver import PassFailed
from coordinator.commands.commands import DeleteTopic
from coordinator.invariants import check
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.state.rendezvous import owner_of
from iceberg_export.archive.plan import ArchivePolicy
from iceberg_export.tables.manifest_changes import FilesNotInTable
from protocol.limits import ARCHIVE_CHECK_INTERVAL_S, ARCHIVE_PASS_ATTEMPTS_MAX, ARCHIVE_RETRY_SECONDS
from protocol.types import TopicId
from storage.memory_store import MemoryStore
from storage.object_store import Buffer, ObjectMissing, ObjectStore, StoreUnavailable
from storage.refs import INTAKE_PREFIX, LAKE_PREFIX, ObjectKind, topic_folder
from tests.support.agent.ledger_parts import Parts, running_parts, until
from tests.support.commands.commands import TOPIC, create, start
from tests.support.lake.archivers import archiver, produce


async def keys(store: ObjectStore, prefix: str) -> list[str]:
    return [meta.key async for meta in store.list(prefix)]


async def test_everything_that_was_there_ends_in_one_file_and_the_intake_is_released() -> None:
    store = MemoryStore()
    async with running_parts() as parts:
        await parts.ledger.propose(create())
        for number in range(3):
            await produce(parts, store, number)
        report = await archiver(parts, store).archive_topic(TOPIC)
        assert (report.topic, report.records) == ("t", 9)
        folder = topic_folder("t", TOPIC)
        assert await keys(store, f"{folder}data/") == list(report.object_keys)
        assert sorted(parts.ledger.state.released) == await keys(store, INTAKE_PREFIX)
        kinds = [known.kind for known in parts.ledger.state.objects.values()]
        assert sorted(kinds) == [ObjectKind.PARQUET, *[ObjectKind.TABLE_METADATA] * 3]
        table = parts.ledger.state.topics[TOPIC].table
        assert table is not None
        assert {parts.ledger.state.objects[held].key for held in table.objects} == set(await keys(store, folder))


async def test_a_topic_without_anything_new_makes_no_file() -> None:
    store = MemoryStore()
    async with running_parts() as parts:
        await parts.ledger.propose(create())
        archiving = archiver(parts, store)
        assert (await archiving.archive_topic(TOPIC)).object_keys == ()
        await produce(parts, store, 0)
        assert len((await archiving.archive_topic(TOPIC)).object_keys) == 1
        assert (await archiving.archive_topic(TOPIC)).object_keys == ()


async def test_among_very_many_partitions_it_looks_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.lake.archiver.ARCHIVE_CHECK_PARTITIONS_PER_S", 0.5)
    async with running_parts() as parts:
        pause_s = archiver(parts, MemoryStore()).job.interval_s
        assert callable(pause_s)
        assert pause_s() == ARCHIVE_CHECK_INTERVAL_S
        await parts.ledger.propose(create())
        assert pause_s() == 2 * len(parts.ledger.state.topics[TOPIC].partitions)


class ForgetfulStore(MemoryStore):
    """Has the objects of the intake every second time that they are read."""

    reads = 0

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        self.reads += key.startswith(INTAKE_PREFIX)
        if self.reads % 2:
            raise ObjectMissing(f"{key} does not exist")
        return await super().get_range(key, byte_first, byte_count)


async def test_an_object_that_is_gone_in_each_pass_is_reported_and_not_searched_for_ever() -> None:
    store = ForgetfulStore()
    async with running_parts() as parts:
        await parts.ledger.propose(create())
        await produce(parts, store, 0)
        with pytest.raises(ObjectMissing, match=r"not archived after 10 failed attempts: intake/.* does not exist"):
            await archiver(parts, store).archive_topic(TOPIC)
        retried = parts.metrics.archive_passes.labels("retried")
        assert retried._value.get() == ARCHIVE_PASS_ATTEMPTS_MAX
        assert parts.clock.slept == [ARCHIVE_RETRY_SECONDS] * (ARCHIVE_PASS_ATTEMPTS_MAX - 1)


async def test_a_table_that_moved_on_before_each_pass_misses_no_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asked may try again, and has no object to look for."""
    store = ForgetfulStore()
    async with running_parts() as parts:
        await parts.ledger.propose(create())
        await produce(parts, store, 0)
        archiving = archiver(parts, store)
        failures = iter([ObjectMissing("intake/1 does not exist"), *[FilesNotInTable("it has other files")] * 9])

        async def moved_on(_: TopicId) -> None:
            raise next(failures)

        monkeypatch.setattr(archiving._lake, "check", moved_on)
        with pytest.raises(
            StoreUnavailable, match=r"not archived after 10 failed attempts: it has other files"
        ) as told:
            await archiving.archive_topic(TOPIC)
        assert type(told.value) is PassFailed
        assert next(failures, None) is None


class SlowStore(MemoryStore):
    """Takes three seconds for each data file."""

    parts: Parts

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        await super().put(key, parts, if_absent=if_absent)
        if key.endswith(".parquet"):
            await self.parts.clock.sleep(3.0)


class DeletingStore(MemoryStore):
    """Deletes the topic while its file is being put."""

    parts: Parts

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        await super().put(key, parts, if_absent=if_absent)
        if key.startswith(LAKE_PREFIX):
            await self.parts.ledger.propose(DeleteTopic(topic_id=TOPIC))


async def test_a_topic_that_is_deleted_during_its_pass_ends_the_archiving() -> None:
    store = DeletingStore()
    async with running_parts() as parts:
        store.parts = parts
        await parts.ledger.propose(create())
        await produce(parts, store, 0)
        assert (await archiver(parts, store).archive_topic(TOPIC)).object_keys == ()
        assert not parts.ledger.state.objects


async def test_a_file_of_a_session_that_ended_is_made_again_under_the_next() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    async with running_parts(ledger) as parts:
        await parts.ledger.propose(create())
        await produce(parts, store, 0)
        ended = parts.ledger.session
        ledger.core.expire(ended)
        report = await archiver(parts, store).archive_topic(TOPIC)
        assert report.records == 3
        assert parts.ledger.session != ended
        assert f"{parts.ledger.session:016x}" in report.object_keys[0]


async def test_in_the_background_a_topic_is_archived_by_the_agent_that_hashing_names() -> None:
    core, store = MemoryLedgerCore(), MemoryStore()
    async with (
        running_parts(MemoryLedger(core), store=store) as one,
        running_parts(MemoryLedger(core), start("b", node=2), store=store) as other,
        asyncio.timeout(10),
    ):
        await one.ledger.propose(create())
        await produce(one, store, 0)
        await other.ledger.barrier()
        owner = owner_of(TOPIC, one.ledger.state.sessions)

        def passes() -> list[float]:
            return [each.metrics.archive_passes.labels("done")._value.get() for each in (one, other)]

        async with asyncio.TaskGroup() as tasks:
            loops = [tasks.create_task(each.repeat(archiver(each, store).job)) for each in (one, other)]
            while not one.ledger.state.released or not any(passes()):
                await one.clock.sleep(0)
            for loop in loops:
                loop.cancel()
        assert passes() == [int(each.ledger.session == owner) for each in (one, other)]


async def test_hot_topics_are_archived_before_they_are_due_as_far_as_their_time_goes() -> None:
    store, hot, slow = SlowStore(), [TopicId(bytes([n] * 16)) for n in range(1, 4)], TopicId(bytes([9] * 16))
    async with running_parts() as parts, asyncio.timeout(10):
        store.parts = parts
        for topic_id in (*hot, slow):
            await parts.ledger.propose(create(topic_id.hex(), topic_id=topic_id))
        job = archiver(parts, store, policy=ArchivePolicy(age_ms=30_000, bytes_target=32 * 200)).job
        await job.run_once()
        for number, topic_id in enumerate(hot):
            await produce(parts, store, number, values=[b"v" * 200], topic_id=topic_id)
        await produce(parts, store, len(hot), values=[b"v"], topic_id=slow)

        async def archived_after(seconds: float) -> list[TopicId]:
            await parts.clock.sleep(seconds)
            await job.run_once()
            return [topic_id for topic_id in (*hot, slow) if parts.ledger.state.topics[topic_id].table is not None]

        assert await archived_after(0) == []
        assert await archived_after(1.9) == []
        assert await archived_after(0.2) == hot[:1], "the first one took more time than was left"
        assert await archived_after(0.2) == hot[:1]
        assert await archived_after(3.0) == hot[:2]
        assert await archived_after(3.0) == hot[:2]
        assert await archived_after(3.0) == hot
        assert await archived_after(9.0) == hot
        assert await archived_after(1.0) == [*hot, slow], "it is due, whatever time early passes took"


async def test_s6_of_two_passes_at_once_one_is_refused_and_nothing_is_there_twice() -> None:
    core, store = MemoryLedgerCore(), MemoryStore()
    async with (
        running_parts(MemoryLedger(core), store=store) as one,
        running_parts(MemoryLedger(core), start("b", node=2), store=store) as other,
        asyncio.timeout(10),
    ):
        await one.ledger.propose(create())
        await produce(one, store, 0)
        await other.ledger.barrier()
        reports = await asyncio.gather(*(archiver(each, store).archive_topic(TOPIC) for each in (one, other)))
        assert sorted(report.records for report in reports) == [0, 3]
        state = one.ledger.state
        assert check(state) == []
        assert [known.kind for known in state.objects.values()].count(ObjectKind.PARQUET) == 1
        data = await keys(store, f"{topic_folder('t', TOPIC)}data/")
        assert len(data) == 1, "the refused pass deleted its file"


async def test_a_table_that_cannot_be_read_has_nothing_put_and_other_topics_go_on() -> None:
    """One bit in its metadata: the store must not grow, however long and however often it is tried."""
    core, store, other = MemoryLedgerCore(), MemoryStore(), TopicId(bytes([9] * 16))
    async with running_parts(MemoryLedger(core), store=store) as parts:
        await parts.ledger.propose(create())
        await parts.ledger.propose(create("other", topic_id=other))
        await produce(parts, store, 0)
        await archiver(parts, store).archive_topic(TOPIC)
        table = parts.ledger.state.topics[TOPIC].table
        assert table is not None
        data = bytearray(await store.get(table.metadata_key))
        data[data.index(b"penstock.topic")] ^= 0x80
        await store.delete([table.metadata_key])
        await store.put(table.metadata_key, [bytes(data)])
        await produce(parts, store, 1)
        held = await keys(store, LAKE_PREFIX)
        running = asyncio.create_task(parts.repeat(archiver(parts, store).job))
        failed = parts.metrics.archive_passes.labels("failed")
        await until(lambda: failed._value.get() >= 5)
        began_s = parts.clock.monotonic_s()
        assert await keys(store, LAKE_PREFIX) == held
        await produce(parts, store, 2, topic_id=other)
        await until(lambda: parts.ledger.state.topics[other].table is not None)
        running.cancel()
        assert began_s >= 30, "five tries take longer and longer"
        assert parts.metrics.background_errors.labels("archiver", "damage")._value.get() >= 5


async def test_s6_the_file_of_a_pass_that_others_were_faster_than_is_deleted_at_once() -> None:
    store = DeletingStore()
    async with running_parts() as parts:
        store.parts = parts
        await parts.ledger.propose(create())
        await produce(parts, store, 0)
        await archiver(parts, store).archive_topic(TOPIC)
        assert await keys(store, LAKE_PREFIX) == []
        assert parts.metrics.uncommitted_objects.labels("deleted")._value.get() == 1


async def test_a_pass_that_waited_does_not_take_the_failure_of_the_one_before_for_its_own() -> None:
    store = MemoryStore()
    async with running_parts() as parts:
        await parts.ledger.propose(create())
        await produce(parts, store, 0)
        archive = archiver(parts, store)
        async with asyncio.TaskGroup() as tasks, archive._one_at_a_time:
            tasks.create_task(archive._background_pass(parts.ledger.state.topics[TOPIC]))
            await parts.ledger.barrier()
            archive._failure = ObjectMissing("the object of another topic is missing")  # as a pass on demand says it
        assert [key for key in await keys(store, LAKE_PREFIX) if key.endswith(".parquet")]
