"""An agent proposes times only while its clock is known to agree with the store's."""

import asyncio

import pytest

from agent.ledger.clock_check import ClockCheck
from agent.ledger.clock_trust import ClockTrust
from protocol.limits import CLOCK_CHECK_INTERVAL_S, CLOCK_CHECK_RETRY_S, CLOCK_CHECK_VALID_S, CLOCK_SKEW_MS_MAX
from protocol.types import Milliseconds
from storage.decorators.failing import FailingStore, FaultKind, InjectedFault, StoreOperation
from storage.memory_store import MemoryStore
from storage.object_store import ObjectStore, StoreUnavailable
from tests.support.agent.ledger_parts import ManualClock


class SettableClock(ManualClock):
    """Its wall clock can be set."""

    ahead_ms = 0

    def now_ms(self) -> Milliseconds:
        return Milliseconds(super().now_ms() + self.ahead_ms)


class CountingStore(MemoryStore):
    """Counts how often it is asked for the time."""

    asked_count = 0

    async def server_time_ms(self) -> int | None:
        self.asked_count += 1
        return await super().server_time_ms()


def store_that_is_off_by(clock: ManualClock, skew_ms: int) -> MemoryStore:
    return MemoryStore(now_ms=lambda: clock.now_ms() + skew_ms, has_clock=True)


def checked(*, store: ObjectStore, clock: ManualClock, ledger_ms: int = 0) -> ClockCheck:
    """The check of an agent whose ledger has come as far as that; 0 for a new one."""
    trust = ClockTrust(ledger_ms=lambda: Milliseconds(ledger_ms), is_accepted=False)
    return ClockCheck(store=store, clock=clock, trust=trust)


async def test_before_the_first_check_no_time_is_proposed() -> None:
    clock = ManualClock()
    assert checked(store=MemoryStore(), clock=clock).proposed_time() is None


@pytest.mark.parametrize("skew_ms", [0, CLOCK_SKEW_MS_MAX, -CLOCK_SKEW_MS_MAX])
async def test_a_clock_that_is_close_is_believed_for_a_while(skew_ms: int) -> None:
    clock = ManualClock()
    check = checked(store=store_that_is_off_by(clock, skew_ms), clock=clock)
    await check.check()
    assert check.proposed_time() == clock.now_ms()
    clock.seconds += CLOCK_CHECK_VALID_S - 0.001
    assert check.proposed_time() == clock.now_ms()
    clock.seconds += 0.001
    assert check.proposed_time() is None


@pytest.mark.parametrize("skew_ms", [CLOCK_SKEW_MS_MAX + 1, -CLOCK_SKEW_MS_MAX - 1])
async def test_a_clock_that_is_off_is_not_believed_until_it_is_set_right(skew_ms: int) -> None:
    clock, skews = ManualClock(), [0, skew_ms, 0]
    check = checked(store=MemoryStore(now_ms=lambda: clock.now_ms() + skews.pop(0), has_clock=True), clock=clock)
    await check.check()
    await check.check()
    assert check.proposed_time() is None
    await check.check()
    assert check.proposed_time() is not None


async def test_a_store_without_a_clock_leaves_the_machine_s() -> None:
    clock = ManualClock()
    check = checked(store=MemoryStore(), clock=clock)
    await check.check()
    assert check.proposed_time() == clock.now_ms()


async def test_a_store_that_is_away_changes_nothing() -> None:
    clock = ManualClock()
    store = FailingStore(MemoryStore())
    check = checked(store=store, clock=clock)
    await check.check()
    store.script(InjectedFault(kind=FaultKind.BEFORE, operation=StoreOperation.TIME))
    with pytest.raises(StoreUnavailable):
        await check.check()
    assert check.proposed_time() is not None


async def run_for(check: ClockCheck, clock: ManualClock, sleeps: int) -> None:
    """Let the background check sleep so many times."""
    async with asyncio.TaskGroup() as tasks:
        run = tasks.create_task(check.job.run(clock, lambda: False))
        while len(clock.slept) <= sleeps:
            await clock.sleep(0)
            clock.slept.remove(0)
        run.cancel()


async def test_a_store_that_is_away_at_the_start_is_reported_and_asked_again_soon() -> None:
    clock = ManualClock()
    store = FailingStore(MemoryStore())
    check = checked(store=store, clock=clock)
    store.script(InjectedFault(kind=FaultKind.BEFORE, operation=StoreOperation.TIME))
    await check.check_or_report()
    assert check.proposed_time() is None
    await run_for(check, clock, 1)
    assert check.proposed_time() is not None


async def test_a_clock_that_is_believed_is_checked_again_in_time() -> None:
    clock, store = ManualClock(), CountingStore()
    check = checked(store=store, clock=clock)
    await check.check()
    await run_for(check, clock, int(CLOCK_CHECK_INTERVAL_S / CLOCK_CHECK_RETRY_S) - 1)
    assert store.asked_count == 1
    await run_for(check, clock, int(CLOCK_CHECK_INTERVAL_S / CLOCK_CHECK_RETRY_S) + 2)
    assert store.asked_count == 2


@pytest.mark.parametrize("jump_ms", [2 * CLOCK_SKEW_MS_MAX, -2 * CLOCK_SKEW_MS_MAX])
async def test_s2_a_clock_that_is_set_between_two_checks_is_not_believed_any_more(jump_ms: int) -> None:
    clock = SettableClock()
    check = checked(store=MemoryStore(), clock=clock)
    await check.check()
    clock.ahead_ms = jump_ms
    assert check.proposed_time() is None
    clock.ahead_ms = 0
    assert check.proposed_time() == clock.now_ms()


async def test_s2_an_error_within_bounds_and_a_small_jump_count_together() -> None:
    clock = SettableClock()
    right = ManualClock()
    check = checked(store=store_that_is_off_by(right, -CLOCK_SKEW_MS_MAX), clock=clock)
    await check.check()
    clock.ahead_ms = 1
    assert check.proposed_time() is None
