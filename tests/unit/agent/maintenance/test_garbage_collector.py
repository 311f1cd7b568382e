"""The garbage collector deletes objects without a reference, after its grace, and nothing else (safety rule S6).

Over 500 lines: the tests share one collector over a made ledger and bucket, and no group of them stands apart.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from agent.maintenance.garbage_collector import NotMaintenanceLeader
from coordinator.commands.commands import ChunksCommitted, DeleteTopic, EndSession, ReportTime
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.state.state import NO_TIME
from protocol.limits import (
    GC_DELETIONS_PER_STEP_MAX,
    GC_RETRY_SECONDS_FIRST,
    GC_RETRY_SECONDS_MAX,
    LEDGER_SESSION_SECONDS,
    SNAPSHOTS_PER_GRACE,
)
from protocol.types import ObjectNumber, SessionId
from storage.decorators.failing import FailingStore, FaultKind, InjectedFault, StoreOperation
from storage.memory_store import MemoryStore
from storage.object_store import ObjectMeta, ObjectStore, StoreUnavailable
from storage.refs import SNAPSHOT_PREFIX, intake_key
from tests.support.agent import ledger_parts
from tests.support.agent.garbage_collection import GRACE_MS, garbage_collector
from tests.support.agent.ledger_parts import DAY_MS, Parts, running_parts
from tests.support.commands.commands import TOPIC, Batch, Chunk, commit, create, start


class CountingStore(MemoryStore):
    """Another view of a store, which notes how many objects are deleted at a time."""

    def __init__(self, store: MemoryStore, steps: list[int]) -> None:
        super().__init__()
        self._objects = store._objects
        self._steps = steps

    async def delete(self, keys: Sequence[str]) -> None:
        self._steps.append(len(keys))
        await super().delete(keys)


async def produced(parts: Parts, store: ObjectStore, *numbers: int) -> None:
    """The topic, and an object of one chunk for each number."""
    await parts.ledger.propose(create())
    for number in numbers:
        await store.put(intake_key(parts.ledger.session, ObjectNumber(number)), [b"x" * 100])
        outcome = await parts.ledger.propose(commit(number, Chunk(batches=[Batch()]), session=parts.ledger.session))
        assert isinstance(outcome, ChunksCommitted)


async def keys(store: ObjectStore) -> list[str]:
    return [meta.key async for meta in store.list("") if not meta.key.startswith(SNAPSHOT_PREFIX)]


async def test_what_is_referred_to_stays() -> None:
    store = MemoryStore()
    async with running_parts() as parts:
        await produced(parts, store, 0, 1)
        parts.clock.seconds += 10 * DAY_MS / 1000
        assert await parts.maintenance_leader.claim()
        assert await garbage_collector(parts, store).collect() == 0
        assert len(await keys(store)) == 2


async def test_a_released_object_goes_when_its_grace_is_over() -> None:
    store = MemoryStore()
    async with running_parts() as parts:
        await produced(parts, store, 0)
        await parts.ledger.propose(DeleteTopic(topic_id=TOPIC))
        assert await parts.maintenance_leader.claim()
        cleaning = garbage_collector(parts, store)
        parts.clock.seconds += GRACE_MS / 1000 - 1
        assert await cleaning.collect() == 0
        parts.clock.seconds += 2
        assert await cleaning.collect() == 1
        assert await keys(store) == []
        assert not parts.ledger.state.released


async def test_s9_nothing_is_deleted_from_a_bucket_that_does_not_say_whose_it_is() -> None:
    store, answers = MemoryStore(), [False, True, True]

    async def asked() -> bool:
        return answers.pop(0)

    async with running_parts() as parts:
        await produced(parts, store, 0)
        await parts.ledger.propose(DeleteTopic(topic_id=TOPIC))
        assert await parts.maintenance_leader.claim()
        cleaning = garbage_collector(parts, store, is_bucket_ours=asked)
        parts.clock.seconds += GRACE_MS / 1000 + 1
        with pytest.raises(NotMaintenanceLeader, match="does not name this cluster"):
            await cleaning.collect()
        assert len(await keys(store)) == 1
        assert parts.ledger.state.released
        assert await cleaning.collect() == 1
        assert (await keys(store), answers) == ([], [])


async def test_s22_what_is_deleted_from_another_bucket_does_not_count_as_deleted() -> None:
    """For a while another bucket stands in the place of the cluster's own, as after a wrong change of an address."""
    store, answers = MemoryStore(), [True, False, True, True]

    async def asked() -> bool:
        return answers.pop(0)

    async with running_parts() as parts:
        await produced(parts, store, 0)
        await parts.ledger.propose(DeleteTopic(topic_id=TOPIC))
        assert await parts.maintenance_leader.claim()
        parts.clock.seconds += GRACE_MS / 1000 + 1
        with pytest.raises(NotMaintenanceLeader, match="does not name this cluster"):
            await garbage_collector(parts, MemoryStore(), is_bucket_ours=asked).collect()
        assert parts.ledger.state.released
        assert await garbage_collector(parts, store, is_bucket_ours=asked).collect() == 1
        assert (await keys(store), answers, parts.ledger.state.released) == ([], [], {})


async def test_s22_a_listing_of_another_bucket_counts_for_nothing() -> None:
    ledger, store, answers = MemoryLedger(), MemoryStore(), [True, False, True, False]

    async def asked() -> bool:
        return answers.pop(0) if answers else True

    async with running_parts(ledger) as parts:
        dead = parts.ledger.session
        ledger.core.expire(dead)
    async with running_parts(ledger) as parts:
        left = intake_key(dead, ObjectNumber(7))
        await store.put(left, [b"left"])
        assert await parts.maintenance_leader.claim()
        cleaning = garbage_collector(parts, MemoryStore(), is_bucket_ours=asked)
        for pause_s in (GRACE_MS / 1000 + 1, 2 * DAY_MS / 1000):
            parts.clock.seconds += pause_s
            with pytest.raises(NotMaintenanceLeader, match="does not name this cluster"):
                await cleaning.collect()
        assert dead in parts.ledger.state.sessions_ended
        cleaning._store = store
        assert await cleaning.collect() == 1
        assert await keys(store) == []


async def test_an_object_that_could_not_be_deleted_is_deleted_next_time() -> None:
    store = FailingStore(MemoryStore())
    async with running_parts() as parts:
        await produced(parts, store, 0)
        await parts.ledger.propose(DeleteTopic(topic_id=TOPIC))
        parts.clock.seconds += GRACE_MS / 1000 + 1
        assert await parts.maintenance_leader.claim()
        cleaning = garbage_collector(parts, store)
        for kind in (FaultKind.BEFORE, FaultKind.AFTER):
            store.script(InjectedFault(kind=kind, operation=StoreOperation.DELETE))
            try:
                await cleaning.collect()
            except StoreUnavailable:
                pass
            else:
                raise AssertionError("the fault did not strike")
            assert parts.ledger.state.released
        assert await cleaning.collect() == 1
        assert await keys(store) == []


async def test_an_object_that_cannot_be_deleted_holds_up_no_other_and_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = FailingStore(MemoryStore())
    async with running_parts(store=store) as parts:
        await produced(parts, store, 0, 1, 2)
        stuck = intake_key(parts.ledger.session, ObjectNumber(0))
        store.undeletable.add(stuck)
        await parts.ledger.propose(DeleteTopic(topic_id=TOPIC))
        parts.clock.seconds += GRACE_MS / 1000 + 1
        assert await parts.maintenance_leader.claim()
        cleaning = garbage_collector(parts, store)
        assert await cleaning.collect() == 2
        assert await keys(store) == [stuck]
        assert list(parts.ledger.state.released) == [stuck]
        assert parts.metrics.registry.get_sample_value("penstock_gc_undeletable_objects") == 1
        assert "AccessDenied" in cleaning.failed_deletions[stuck]
        deletes = parts.metrics.gc_deleted_objects._value.get()
        assert await cleaning.collect() == 0, "the pause is not over"
        store.undeletable.clear()
        assert await cleaning.collect() == 0
        parts.clock.seconds += GC_RETRY_SECONDS_FIRST
        assert await cleaning.collect() == 1
        assert (await keys(store), parts.ledger.state.released) == ([], {})
        assert (deletes, parts.metrics.gc_deleted_objects._value.get()) == (2, 3)
        assert parts.metrics.registry.get_sample_value("penstock_gc_undeletable_objects") == 0
    reports = [record.message for record in caplog.records if "deleted" in record.message and "store" in record.message]
    assert len(reports) == 1
    assert "An object that cannot be deleted" in reports[0]


async def test_the_pause_before_another_attempt_grows_up_to_its_bound() -> None:
    store = FailingStore(MemoryStore())
    async with running_parts(store=store) as parts:
        await produced(parts, store, 0)
        store.undeletable.add(intake_key(parts.ledger.session, ObjectNumber(0)))
        await parts.ledger.propose(DeleteTopic(topic_id=TOPIC))
        parts.clock.seconds += GRACE_MS / 1000 + 1
        assert await parts.maintenance_leader.claim()
        cleaning = garbage_collector(parts, store)
        pause_s = GC_RETRY_SECONDS_FIRST
        for attempt in range(1, 10):
            assert await cleaning.collect() == 0
            (failed,) = cleaning._failed._failed.values()
            assert failed.attempts_count == attempt
            assert failed.retry_s == parts.clock.seconds + pause_s
            parts.clock.seconds += pause_s
            pause_s = min(2 * pause_s, GC_RETRY_SECONDS_MAX)


async def test_s6_a_session_is_not_forgotten_while_something_that_it_left_cannot_be_deleted() -> None:
    ledger, store = MemoryLedger(), FailingStore(MemoryStore())
    async with running_parts(ledger) as parts:
        dead = parts.ledger.session
        left = [intake_key(dead, ObjectNumber(number)) for number in range(3)]
        for key in left:
            await store.put(key, [b"never committed"])
        ledger.core.expire(dead)
    store.undeletable.add(left[1])
    async with running_parts(ledger) as parts:
        assert await parts.maintenance_leader.claim()
        cleaning = garbage_collector(parts, store)
        parts.clock.seconds += GRACE_MS / 1000
        assert await cleaning.collect() == 2
        parts.clock.seconds += 2 * DAY_MS / 1000
        assert await cleaning.collect() == 0
        assert await keys(store) == [left[1]]
        assert dead in parts.ledger.state.sessions_ended
        store.undeletable.clear()
        parts.clock.seconds += GC_RETRY_SECONDS_MAX
        assert await cleaning.collect() == 1
        assert (await keys(store), dead in parts.ledger.state.sessions_ended) == ([], False)


async def test_an_agent_that_lost_the_role_remembers_no_failed_deletions() -> None:
    core, store = MemoryLedgerCore(), FailingStore(MemoryStore())
    async with running_parts(MemoryLedger(core), store=store) as parts:
        await produced(parts, store, 0)
        store.undeletable.add(intake_key(parts.ledger.session, ObjectNumber(0)))
        await parts.ledger.propose(DeleteTopic(topic_id=TOPIC))
        parts.clock.seconds += GRACE_MS / 1000 + 1
        assert await parts.maintenance_leader.claim()
        cleaning = garbage_collector(parts, store)
        assert await cleaning.collect() == 0
        assert cleaning.failed_deletions
        await parts.ledger.start_drain()
        async with asyncio.TaskGroup() as tasks:
            loop = tasks.create_task(parts.repeat(cleaning.job))
            while cleaning.failed_deletions:
                await parts.clock.sleep(0)
            loop.cancel()


async def test_what_an_ended_session_put_and_never_committed_goes_and_a_live_one_s_stays() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    async with running_parts(ledger) as parts:
        await produced(parts, store, 0)
        dead = parts.ledger.session
        await store.put(intake_key(dead, ObjectNumber(1)), [b"never committed"])
        ledger.core.expire(dead)
    async with running_parts(ledger) as parts:
        live = intake_key(parts.ledger.session, ObjectNumber(0))
        await store.put(live, [b"on its way"])
        stranger = intake_key(SessionId(1 << 40), ObjectNumber(0))
        await store.put(stranger, [b"of a session that this ledger has not seen yet"])
        assert await parts.maintenance_leader.claim()
        assert await garbage_collector(parts, store).collect() == 0
        parts.clock.seconds += GRACE_MS / 1000
        assert await garbage_collector(parts, store).collect() == 1
        assert sorted(await keys(store)) == sorted([intake_key(dead, ObjectNumber(0)), live, stranger])


async def test_a_put_that_lands_after_its_session_was_cleaned_goes_a_day_later() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    async with running_parts(ledger) as parts:
        dead = parts.ledger.session
        ledger.core.expire(dead)
    async with running_parts(ledger) as parts:
        assert await parts.maintenance_leader.claim()
        cleaning = garbage_collector(parts, store)
        parts.clock.seconds += GRACE_MS / 1000
        assert await cleaning.collect() == 0
        await store.put(intake_key(dead, ObjectNumber(5)), [b"late"])
        assert await cleaning.collect() == 0
        parts.clock.seconds += DAY_MS / 1000
        assert await cleaning.collect() == 1
        assert await keys(store) == []
        assert dead not in parts.ledger.state.sessions_ended
        assert await cleaning.collect() == 0
        assert cleaning._sessions_listed == set()


async def test_leftovers_are_judged_page_by_page() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    async with running_parts(ledger) as parts:
        dead = parts.ledger.session
        ledger.core.expire(dead)
    count = 2 * GC_DELETIONS_PER_STEP_MAX + 1
    for number in range(count):
        await store.put(intake_key(dead, ObjectNumber(number)), [b"x"])
    async with running_parts(ledger) as parts:
        steps: list[int] = []
        parts.clock.seconds += GRACE_MS / 1000
        assert await parts.maintenance_leader.claim()
        cleaning = garbage_collector(parts, CountingStore(store, steps))
        assert await cleaning.collect() == count
        assert steps == [GC_DELETIONS_PER_STEP_MAX, GC_DELETIONS_PER_STEP_MAX, 1]


async def test_what_others_put_is_reported_once_and_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    for number in range(3):
        await store.put(f"intake/somebody's/{number}", [b"x"])
    async with running_parts(ledger) as parts:
        ledger.core.expire(parts.ledger.session)
    async with running_parts(ledger) as parts:
        assert await parts.maintenance_leader.claim()
        cleaning = garbage_collector(parts, store)
        parts.clock.seconds += GRACE_MS / 1000
        for _ in range(2):
            assert await cleaning.collect() == 0
            cleaning._sessions_listed.clear()
        reports = [record for record in caplog.records if "did not write" in record.message]
        assert [(record.__dict__["count"], record.__dict__["first"]) for record in reports] == [
            (3, "intake/somebody's/0")
        ]
        assert len(await keys(store)) == 3


async def test_s9_an_object_that_the_newest_snapshot_refers_to_stays_until_there_is_a_newer_one() -> None:
    store = FailingStore(MemoryStore())
    async with running_parts(store=store) as parts:
        await produced(parts, store, 0)
        assert await parts.maintenance_leader.claim()
        cleaning = garbage_collector(parts, store)
        await cleaning._snapshots.take()
        await parts.ledger.propose(DeleteTopic(topic_id=TOPIC))
        parts.clock.seconds += GRACE_MS / 1000 + 1
        store.script(InjectedFault(kind=FaultKind.BEFORE, operation=StoreOperation.PUT, key_prefix=SNAPSHOT_PREFIX))
        with pytest.raises(StoreUnavailable):
            await cleaning.collect()
        assert await keys(store) == [intake_key(parts.ledger.session, ObjectNumber(0))]
        assert await cleaning.collect() == 1
        assert await keys(store) == []


async def test_snapshots_for_the_cleaner_s_sake_are_bounded_in_how_often() -> None:
    store = MemoryStore()
    async with running_parts(store=store) as parts:
        await produced(parts, store, 0)
        assert await parts.maintenance_leader.claim()
        cleaning = garbage_collector(parts, store)
        await parts.ledger.propose(DeleteTopic(topic_id=TOPIC))
        parts.clock.seconds += GRACE_MS / 1000 - 1
        await parts.ledger.propose(ReportTime())
        await cleaning._snapshots.take()  # not for the garbage collector, and it counts
        cleaning._snapshots.covered_ms = NO_TIME
        parts.clock.seconds += 1
        assert await cleaning.collect() == 0
        parts.clock.seconds += GRACE_MS / 1000 / SNAPSHOTS_PER_GRACE
        assert await cleaning.collect() == 1


async def test_only_the_maintenance_leader_cleans() -> None:
    core, store = MemoryLedgerCore(), MemoryStore()
    async with (
        running_parts(MemoryLedger(core), store=store) as parts,
        running_parts(MemoryLedger(core), start("b", node=2), store=store) as others,
    ):
        await produced(parts, store, 0)
        await parts.ledger.propose(DeleteTopic(topic_id=TOPIC))
        await others.ledger.barrier()
        assert await parts.maintenance_leader.claim()
        parts.clock.seconds += GRACE_MS / 1000 + 1
        async with asyncio.TaskGroup() as tasks:
            loops = [tasks.create_task(each.repeat(garbage_collector(each, store).job)) for each in (parts, others)]
            while await keys(store):
                await parts.clock.sleep(0)
            for loop in loops:
                loop.cancel()
        assert parts.metrics.gc_deleted_objects._value.get() == 1
        assert others.metrics.gc_deleted_objects._value.get() == 0


async def test_s6_a_session_that_ended_later_keeps_its_leftovers_for_its_own_grace() -> None:
    core, store = MemoryLedgerCore(), MemoryStore()
    async with running_parts(MemoryLedger(core)) as parts:
        async with running_parts(MemoryLedger(core), start("b", node=2)) as early:
            await store.put(intake_key(early.ledger.session, ObjectNumber(0)), [b"never committed"])
        async with running_parts(MemoryLedger(core), start("c", node=3)) as late:
            kept = intake_key(late.ledger.session, ObjectNumber(0))
            await store.put(kept, [b"never committed"])
        await parts.ledger.propose(EndSession(session=early.ledger.session))
        parts.clock.seconds += GRACE_MS / 1000
        await parts.ledger.propose(ReportTime())
        await parts.ledger.propose(EndSession(session=late.ledger.session))
        assert await parts.maintenance_leader.claim()
        assert await garbage_collector(parts, store).collect() == 1
        assert await keys(store) == [kept]
        parts.clock.seconds += GRACE_MS / 1000
        assert await garbage_collector(parts, store).collect() == 1


class SlowListing(MemoryStore):
    """Another view of a store; something happens while it is listed."""

    def __init__(self, store: MemoryStore, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self._objects = store._objects
        self._meanwhile = meanwhile

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        async for meta in super().list(prefix, after=after):
            await self._meanwhile()
            yield meta


async def test_s9_an_agent_whose_session_was_not_confirmed_for_a_lease_s_time_deletes_nothing() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    async with running_parts(ledger) as parts:
        dead = parts.ledger.session
        await store.put(intake_key(dead, ObjectNumber(0)), [b"a recovery would read it"])
        ledger.core.expire(dead)
    async with running_parts(ledger) as parts:
        parts.clock.seconds += GRACE_MS / 1000
        assert await parts.maintenance_leader.claim()

        async def stand_still() -> None:
            parts.clock.seconds += LEDGER_SESSION_SECONDS

        with pytest.raises(NotMaintenanceLeader, match="not confirmed"):
            await garbage_collector(parts, SlowListing(store, stand_still)).collect()
        assert len(await keys(store)) == 1
        assert await garbage_collector(parts, store).collect() == 1


async def test_an_agent_that_lost_the_role_stops_before_its_next_deletion() -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    async with running_parts(ledger) as parts:
        dead = parts.ledger.session
        await store.put(intake_key(dead, ObjectNumber(0)), [b"never committed"])
        ledger.core.expire(dead)
    async with running_parts(ledger) as parts:
        parts.clock.seconds += GRACE_MS / 1000
        assert await parts.maintenance_leader.claim()
        with pytest.raises(NotMaintenanceLeader, match="not the maintenance leader"):
            await garbage_collector(parts, SlowListing(store, parts.ledger.start_drain)).collect()
        assert len(await keys(store)) == 1


@pytest.mark.parametrize("step_ms", [0, 3 * DAY_MS])
async def test_s21_after_a_step_of_the_time_leftovers_of_sessions_stay_for_another_grace(
    step_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session ends while the clock is not believed, at the ledger's last time."""
    ledger, store = MemoryLedger(), MemoryStore()
    async with running_parts(ledger) as parts:
        dead = parts.ledger.session
        await parts.ledger.propose(ReportTime())
        await store.put(intake_key(dead, ObjectNumber(0)), [b"never committed"])
        ledger.core.expire(dead)
    async with running_parts(ledger, start("b", node=2)) as parts:
        parts.is_clock_checked = False
        await parts.ledger.propose(EndSession(session=dead))
        assert await parts.maintenance_leader.claim()
        cleaning = garbage_collector(parts, store)
        assert await cleaning.collect() == 0
        monkeypatch.setattr(ledger_parts, "BEGAN_MS", ledger_parts.BEGAN_MS + step_ms)
        parts.is_clock_checked = True
        assert await cleaning.collect() == 0
        parts.clock.seconds += GRACE_MS / 1000 - 1
        assert await cleaning.collect() == 0
        parts.clock.seconds += 1
        assert await cleaning.collect() == 1
        assert await keys(store) == []


async def test_s21_a_step_of_the_time_while_the_bucket_is_listed_ends_no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that ended long ago is listed as another one's leftovers stay for their grace."""
    ledger, store = MemoryLedger(), MemoryStore()
    dead = []
    for node in (1, 2):
        async with running_parts(ledger, start(f"n{node}", node=node)) as parts:
            dead.append(parts.ledger.session)
            await parts.ledger.propose(ReportTime())
            await store.put(intake_key(dead[-1], ObjectNumber(0)), [b"never committed"])
            ledger.core.expire(dead[-1])
    async with running_parts(ledger, start("b", node=3)) as parts:
        assert await parts.maintenance_leader.claim()
        await parts.ledger.propose(EndSession(session=dead[0]))
        parts.clock.seconds += GRACE_MS / 1000
        await parts.ledger.propose(ReportTime())
        await parts.ledger.propose(EndSession(session=dead[1]))

        async def step() -> None:
            monkeypatch.setattr(ledger_parts, "BEGAN_MS", ledger_parts.BEGAN_MS + 3 * DAY_MS)
            await parts.ledger.propose(ReportTime())

        assert await garbage_collector(parts, SlowListing(store, step)).collect() == 1
        assert await keys(store) == [intake_key(dead[1], ObjectNumber(0))]
