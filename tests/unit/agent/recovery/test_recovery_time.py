"""`penstock recover --time` heals a ledger whose time a wrong clock had moved ahead (safety rule S21)."""

from itertools import chain, repeat

import pytest

from agent.ledger.clock_trust import ClockTrust
from agent.recovery.preconditions import Permissions, RecoveryNeedless
from coordinator.ledger.memory import MemoryLedger
from protocol.types import Milliseconds
from storage.memory_store import MemoryStore
from tests.support.agent.ledger_parts import BEGAN_MS, DAY_MS, ManualClock, running_parts
from tests.support.agent.recovery_clusters import lived, lived_whole, log_end, recover, state_of

AHEAD_S = 30 * DAY_MS / 1000
TIME_RESET = Permissions(is_time_reset=True)


async def jumped(store: MemoryStore) -> MemoryLedger:
    """The ledger of a broker whose clock was 30 days ahead when it stopped, and was believed."""
    ledger = await lived_whole(store)
    async with running_parts(ledger, store=store) as parts:
        parts.clock.seconds = AHEAD_S
        await parts.ledger.close()
    assert (await state_of(ledger, store)).time_ms == BEGAN_MS + 30 * DAY_MS
    return ledger


def is_believed(ledger_ms: int) -> bool:
    """Whether an agent believes a clock that is right."""
    clock = ManualClock()
    clock.seconds = 60  # a recovery takes most of a minute
    trust = ClockTrust(ledger_ms=lambda: Milliseconds(ledger_ms), is_accepted=False)
    return trust.judge(clock.now_ms(), clock.uptime_s()).is_believed


async def test_s21_the_ledger_s_time_is_now_again_and_a_clock_that_is_right_is_believed() -> None:
    store = MemoryStore()
    ledger = await jumped(store)
    before = await state_of(ledger, store)
    assert not is_believed(before.time_ms)
    report = await recover(ledger, store, TIME_RESET)
    assert report.is_carried_out
    assert report.seconds_ahead == pytest.approx(AHEAD_S, abs=60)
    state = await state_of(ledger, store)
    assert state.time_ms < BEGAN_MS + DAY_MS
    assert is_believed(state.time_ms)
    assert log_end(state) == log_end(before)
    assert max(state.sessions_ended.values()) <= state.time_ms


async def test_a_dry_run_says_how_far_ahead_the_ledger_is_and_changes_nothing() -> None:
    store = MemoryStore()
    ledger = await jumped(store)
    report = await recover(ledger, store, Permissions(is_time_reset=True, is_dry_run=True))
    assert (report.is_carried_out, report.seconds_ahead > 0) == (False, True)
    assert (await state_of(ledger, store)).time_ms == BEGAN_MS + 30 * DAY_MS


async def test_without_it_ledger_and_bucket_agree_and_the_time_stays() -> None:
    store = MemoryStore()
    ledger = await jumped(store)
    with pytest.raises(RecoveryNeedless):
        await recover(ledger, store)
    await recover(ledger, store, Permissions(is_forced=True))
    assert (await state_of(ledger, store)).time_ms >= BEGAN_MS + 30 * DAY_MS


async def test_s9_sessions_that_ended_before_are_not_taken_for_those_that_the_recovery_ends() -> None:
    store = MemoryStore()
    ledger = await jumped(store)
    await recover(ledger, store, TIME_RESET)
    first = await state_of(ledger, store)
    again = await recover(ledger, store, Permissions(is_forced=True))
    assert (again.objects_committed, again.damaged) == (0, [])
    assert log_end(await state_of(ledger, store)) == log_end(first)


@pytest.mark.parametrize("days", [2, 30])
async def test_s21_a_recovery_does_not_make_a_clock_believed_that_is_far_ahead(days: int) -> None:
    store = MemoryStore()
    ledger = await lived_whole(store)
    before = await state_of(ledger, store)
    clock = ManualClock()
    clock.seconds = days * DAY_MS / 1000
    report = await recover(ledger, store, Permissions(is_forced=True), clock)
    assert report.is_carried_out
    assert report.seconds_ahead == pytest.approx(-days * DAY_MS / 1000, abs=60)
    state = await state_of(ledger, store)
    assert before.time_ms < state.time_ms < before.time_ms + DAY_MS / 24
    trust = ClockTrust(ledger_ms=lambda: state.time_ms, is_accepted=False)
    assert not trust.judge(clock.now_ms(), clock.uptime_s()).is_believed
    again = await recover(ledger, store, Permissions(is_forced=True))
    assert (again.objects_committed, again.damaged) == (0, [])


async def test_s21_nor_do_objects_that_were_put_by_such_a_clock() -> None:
    times = chain([BEGAN_MS] * 3, repeat(BEGAN_MS + 30 * DAY_MS))  # cluster.json, an object, the snapshot; two objects
    store = MemoryStore(now_ms=lambda: next(times))
    ledger = await lived(store)
    clock = ManualClock()
    clock.seconds = 30 * DAY_MS / 1000
    report = await recover(ledger, store, clock=clock)
    assert (report.is_carried_out, report.objects_committed) == (True, 2)
    assert (await state_of(ledger, store)).time_ms < BEGAN_MS + DAY_MS


async def test_s21_a_store_s_own_clock_is_believed() -> None:
    store = MemoryStore(now_ms=lambda: BEGAN_MS + 30 * DAY_MS, has_clock=True)
    ledger = await lived(store)
    await recover(ledger, store)
    assert (await state_of(ledger, store)).time_ms == BEGAN_MS + 30 * DAY_MS
