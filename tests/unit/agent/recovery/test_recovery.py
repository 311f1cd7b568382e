"""A cluster comes back out of its bucket: the snapshot, and every intake object (safety rule S9)."""

from collections.abc import Sequence

import pytest

from agent.bucket.cluster_file import CLUSTER_KEY
from agent.bucket.cluster_identity import check_bucket, check_reached, claim_bucket
from agent.recovery.preconditions import RecoveryNeedless
from coordinator.commands.commands import (
    AllocateProducerIds,
    CreateTopic,
    DeleteTopic,
    ProducerIdsAllocated,
)
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.ledger.port import (
    LedgerCorrupt,
    LedgerIdentity,
    LedgerUnavailable,
    SnapshotPointer,
    position_first,
)
from coordinator.recovery.state_recovery import PRODUCER_ID_BITS
from protocol.limits import LEDGER_SESSION_SECONDS, RECOVERY_WATCH_S
from protocol.types import ObjectNumber, ProducerId, SessionId
from storage.memory_store import MemoryStore
from storage.object_store import Buffer, StoreUnavailable
from storage.refs import SNAPSHOT_PREFIX, intake_key
from tests.support.agent.ledger_parts import ManualClock, running_parts
from tests.support.agent.recovery_clusters import (
    DRY_RUN,
    FORCED,
    OTHER,
    TimedStore,
    all_keys,
    lived,
    lived_whole,
    log_end,
    produce,
    put_intake,
    recover,
    snapshot,
    state_of,
    told,
    wiped,
)
from tests.support.commands.commands import TOPIC, create, start


async def test_s9_a_wiped_ledger_is_refused_and_everything_comes_back() -> None:
    store = TimedStore()
    await lived(store)
    before = await all_keys(store)
    wiped = MemoryLedger(MemoryLedgerCore(cluster_id="another"))
    with pytest.raises(LedgerCorrupt, match="penstock recover"):
        await check_bucket(store, await wiped.identity())
    report = await recover(wiped, store)
    assert report.is_carried_out
    assert await wiped.identity() == LedgerIdentity(cluster_id="mine", incarnation=2)
    assert told(report) == [("t", 9, 0, 0, 0)]
    assert (report.objects_known, report.objects_committed, report.missing, report.damaged) == (1, 2, [], [])
    state = await state_of(wiped, store)
    assert (log_end(state), state.position, state.incarnation) == (12, position_first(2), 2)
    assert state.sessions == {}
    assert before < await all_keys(store)
    async with running_parts(wiped, store=store) as parts:
        await produce(parts, 0, (7, 9))
        assert log_end(parts.ledger.state) == 15


async def test_no_producer_id_is_given_twice_and_producers_from_before_go_on() -> None:
    store = TimedStore()
    ledger = await lived(store)
    await recover(ledger, store)
    async with running_parts(ledger, store=store) as parts:
        given = await parts.ledger.propose(AllocateProducerIds(count=10))
        assert given == ProducerIdsAllocated(producer_id_first=ProducerId(1 << PRODUCER_ID_BITS), count=10)
        await produce(parts, 0, (8, 30))  # an old producer of which nothing was found


async def test_s9_a_ledger_restored_from_a_backup_is_refused_and_recovered_alike() -> None:
    store = TimedStore()
    await lived(store)
    older = MemoryLedger(MemoryLedgerCore(cluster_id="mine"))
    async with running_parts(older) as parts:
        await parts.ledger.propose(create())
        older.core.expire(parts.ledger.session)
    with pytest.raises(LedgerCorrupt, match="older copy"):
        await check_reached(store, older)
    await recover(older, store)
    assert log_end(await state_of(older, store)) == 12


async def test_s9_what_agents_acknowledged_after_a_recovery_under_a_mistyped_name_comes_back_with_the_right_one() -> (
    None
):
    store = TimedStore()
    right = await lived_whole(store)
    mistyped = wiped()
    await recover(mistyped, store, FORCED)
    # An agent of the right ledger that does not know it yet, and one that works on the mistyped one.
    await put_intake(store, SessionId(1), 3, (7, 9))
    async with running_parts(mistyped, store=store) as parts:
        await produce(parts, 0, (8, 0))
        mistyped.core.expire(parts.ledger.session)
    assert mistyped.core.identity.incarnation == 2
    report = await recover(right, store)
    assert (report.incarnation, report.objects_committed, report.missing, report.damaged) == (3, 2, [], [])
    assert told(report) == [("t", 6, 0, 0, 0)]
    assert log_end(await state_of(right, store)) == 18


async def test_s9_the_ledger_names_the_bucket_that_it_was_recovered_from() -> None:
    store = TimedStore()
    await claim_bucket(store, MemoryLedger(MemoryLedgerCore(cluster_id="mine")), new_bucket_id="one")
    await lived_whole(store)
    ledger = wiped()
    await recover(ledger, store)
    assert await ledger.identity() == LedgerIdentity(cluster_id="mine", incarnation=2, bucket_id="one")
    await claim_bucket(store, ledger, new_bucket_id="unused")


async def test_a_dry_run_tells_the_same_and_changes_nothing() -> None:
    store = TimedStore()
    ledger = await lived(store)
    before, identity = await all_keys(store), await ledger.identity()
    planned = await recover(ledger, store, DRY_RUN)
    assert not planned.is_carried_out
    assert (await all_keys(store), await ledger.identity()) == (before, identity)
    carried_out = await recover(ledger, store)
    assert told(planned) == told(carried_out)
    assert planned.incarnation == carried_out.incarnation


async def test_objects_come_in_the_order_in_which_producers_wrote_whatever_sessions_say() -> None:
    """A producer whose hint moved: sequence 0 through one agent, 3 through another, 6 through the first again."""
    store = MemoryStore()  # without times to go by
    ledger = MemoryLedger(MemoryLedgerCore(cluster_id="mine"))
    await check_bucket(store, await ledger.identity())
    async with (
        running_parts(ledger, store=store) as one,
        running_parts(MemoryLedger(ledger.core), start("b", node=2), store=store) as two,
    ):
        await one.ledger.propose(create())
        await snapshot(one)
        await two.ledger.barrier()
        await produce(one, 0, (7, 0))
        await produce(two, 0, (7, 3))
        await produce(one, 1, (7, 6))
        for parts in (one, two):
            ledger.core.expire(parts.ledger.session)
    again = wiped()
    report = await recover(again, store)
    assert told(report) == [("t", 9, 0, 0, 0)]
    partition = (await state_of(again, store)).topics[TOPIC].partitions[0]
    assert partition.producers[7].sequence_next == 9  # type: ignore[index]


async def test_repeats_are_recognised_and_what_has_lost_its_predecessor_is_kept() -> None:
    store = TimedStore()
    ledger = await lived(store)
    dead = SessionId(1)
    await put_intake(store, dead, 3, (7, 6), (7, 12), (7, 15))
    report = await recover(ledger, store)
    assert told(report) == [("t", 15, 1, 2, 0)]


async def test_without_any_snapshot_everything_that_the_intake_holds_comes_back() -> None:
    store = TimedStore()
    await lived(store)
    await store.delete([key for key in await all_keys(store) if key.startswith(SNAPSHOT_PREFIX)])
    wiped = MemoryLedger(MemoryLedgerCore(cluster_id="another"))
    report = await recover(wiped, store)
    assert (report.snapshot_key, report.objects_committed) == ("", 3)
    assert log_end(await state_of(wiped, store)) == 12


class LostAnswers(MemoryLedger):
    async def restart(self, identity: LedgerIdentity, pointer: SnapshotPointer) -> None:
        raise LedgerUnavailable("cut off")


async def test_after_a_crash_no_agent_starts_and_the_same_is_done_again() -> None:
    store = TimedStore()
    ledger = await lived(store)
    with pytest.raises(LedgerUnavailable):
        await recover(LostAnswers(ledger.core), store)
    with pytest.raises(LedgerCorrupt, match="penstock recover"):
        await ledger.open_session("too early")
    report = await recover(ledger, store)
    assert (report.incarnation, report.objects_committed) == (3, 2)
    assert log_end(await state_of(ledger, store)) == 12


async def test_what_the_snapshot_calls_released_stays_released() -> None:
    store = TimedStore()
    ledger = MemoryLedger(MemoryLedgerCore(cluster_id="mine"))
    await check_bucket(store, await ledger.identity())
    async with running_parts(ledger, store=store) as parts:
        await parts.ledger.propose(create())
        await produce(parts, 0, (7, 0))
        await parts.ledger.propose(DeleteTopic(topic_id=TOPIC))
        await parts.ledger.propose(CreateTopic(name="t", topic_id=OTHER, partition_count=1, configs=()))
        await snapshot(parts)
        ledger.core.expire(parts.ledger.session)
    again = wiped()
    report = await recover(again, store)
    assert (report.objects_committed, report.topics) == (0, [])
    state = await state_of(again, store)
    assert list(state.released) == [intake_key(SessionId(1), ObjectNumber(0))]
    assert list(state.topics) == [OTHER]


async def test_s9_nothing_is_acknowledged_once_the_reading_began() -> None:
    class WokenAgent(TimedStore):
        """An agent comes back as soon as the bucket is read."""

        async def server_time_ms(self) -> int | None:
            with pytest.raises(LedgerCorrupt, match="being recovered"):
                await MemoryLedger(ledger.core).open_session("a")
            return None

    store = WokenAgent()
    ledger = await lived(store)
    clock = ManualClock()
    report = await recover(ledger, store, clock=clock)
    assert report.is_carried_out
    pauses = [seconds for seconds in clock.slept if seconds > 0]
    assert pauses[:2] == [RECOVERY_WATCH_S, LEDGER_SESSION_SECONDS + 30.0]  # until nobody deletes any more
    assert await ledger.open_session("a") > position_first(2)


async def test_s9_a_snapshot_of_an_incarnation_that_never_began_counts_for_nothing() -> None:
    store = TimedStore()
    ledger = await lived_whole(store)
    with pytest.raises(LedgerUnavailable):
        await recover(LostAnswers(wiped().core), store)
    # The old ledger was found again after all, and more is acknowledged on it.
    async with running_parts(ledger, store=store) as parts:
        await produce(parts, 0, (7, 9))
        await snapshot(parts)
        ledger.core.expire(parts.ledger.session)
    again = wiped()
    report = await recover(again, store)
    assert report.incarnation == 3
    assert report.position < position_first(2)
    assert log_end(await state_of(again, store)) == 15


async def test_a_ledger_that_is_whole_needs_no_recovery_and_where_it_is_forced_its_entries_count() -> None:
    store = TimedStore()
    ledger = await lived_whole(store)
    async with running_parts(ledger, store=store) as parts:
        await parts.ledger.propose(CreateTopic(name="young", topic_id=OTHER, partition_count=3, configs=()))
        ledger.core.expire(parts.ledger.session)
    with pytest.raises(RecoveryNeedless, match="start the agents"):
        await recover(ledger, store)
    await ledger.open_session("a")
    ledger.core.expire(SessionId((await ledger.head()).position + 1))
    report = await recover(ledger, store, FORCED)
    assert (report.objects_committed, report.topics) == (0, [])
    assert report.entries > 0
    state = await state_of(ledger, store)
    assert (state.topics[OTHER].name, len(state.topics[OTHER].partitions), log_end(state)) == ("young", 3, 12)


async def test_what_a_session_that_had_ended_left_behind_stays_garbage() -> None:
    store = TimedStore()
    ledger = MemoryLedger(MemoryLedgerCore(cluster_id="mine"))
    await check_bucket(store, await ledger.identity())
    async with running_parts(ledger, store=store) as parts:
        await parts.ledger.propose(create())
        await put_intake(store, parts.ledger.session, 5, (-1, -1))  # never committed
        ledger.core.expire(parts.ledger.session)
    async with running_parts(ledger, store=store) as parts:
        await produce(parts, 0, (-1, -1))
        await snapshot(parts)
        ledger.core.expire(parts.ledger.session)
    again = wiped()
    report = await recover(again, store)
    assert (report.objects_committed, report.objects_left) == (0, 1)
    assert log_end(await state_of(again, store)) == 3


async def test_two_recoveries_at_once_cannot_write_one_snapshot() -> None:
    class Second(TimedStore):
        """Another recovery puts its snapshot just before this one does."""

        is_late = False

        async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
            if self.is_late and key.startswith(SNAPSHOT_PREFIX):
                await super().put(key, [b"of another recovery"], if_absent=True)
            await super().put(key, parts, if_absent=if_absent)

    store = Second()
    ledger = await lived(store)
    store.is_late = True
    with pytest.raises(LedgerCorrupt, match="another recovery"):
        await recover(ledger, store)
    assert await ledger.identity() == LedgerIdentity(cluster_id="another", incarnation=1)
    store.is_late = False
    assert (await recover(ledger, store)).incarnation == 3


async def test_s9_after_a_crash_behind_the_restart_no_agent_starts_either() -> None:
    class Crashing(TimedStore):
        is_crashing = False

        async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
            if self.is_crashing and key == CLUSTER_KEY:
                raise StoreUnavailable("cut off")
            await super().put(key, parts, if_absent=if_absent)

    store = Crashing()
    ledger = await lived(store)
    store.is_crashing = True
    with pytest.raises(StoreUnavailable):
        await recover(ledger, store)
    store.is_crashing = False
    assert await ledger.identity() == LedgerIdentity(cluster_id="mine", incarnation=2)
    with pytest.raises(LedgerCorrupt, match="penstock recover"):
        await check_bucket(store, await ledger.identity())
    report = await recover(ledger, store)
    assert (report.incarnation, report.objects_committed) == (3, 0)
    assert log_end(await state_of(ledger, store)) == 12
