"""An agent proposes times only while its clock is known to agree with the store's."""

import asyncio

import pytest

from agent.clock_check import ClockCheck
from protocol.limits import CLOCK_CHECK_INTERVAL_S, CLOCK_CHECK_RETRY_S, CLOCK_CHECK_VALID_S, CLOCK_SKEW_MS_MAX
from storage.failing import FailingStore, Fault, FaultKind, Operation
from storage.memory_store import MemoryStore
from storage.object_store import StoreUnavailable
from tests.unit.agent.ledger_parts import ManualClock


def store_that_is_off_by(clock: ManualClock, skew_ms: int) -> MemoryStore:
    return MemoryStore(now_ms=lambda: clock.now_ms() + skew_ms, has_clock=True)


async def test_before_the_first_check_no_time_is_proposed() -> None:
    clock = ManualClock()
    assert ClockCheck(store=MemoryStore(), clock=clock).proposed_time() is None


@pytest.mark.parametrize("skew_ms", [0, CLOCK_SKEW_MS_MAX, -CLOCK_SKEW_MS_MAX])
async def test_a_clock_that_is_close_is_believed_for_a_while(skew_ms: int) -> None:
    clock = ManualClock()
    check = ClockCheck(store=store_that_is_off_by(clock, skew_ms), clock=clock)
    await check.check()
    assert check.proposed_time() == clock.now_ms()
    clock.seconds += CLOCK_CHECK_VALID_S - 0.001
    assert check.proposed_time() == clock.now_ms()
    clock.seconds += 0.001
    assert check.proposed_time() is None


@pytest.mark.parametrize("skew_ms", [CLOCK_SKEW_MS_MAX + 1, -CLOCK_SKEW_MS_MAX - 1])
async def test_a_clock_that_is_off_is_not_believed_until_it_is_set_right(skew_ms: int) -> None:
    clock, skews = ManualClock(), [0, skew_ms, 0]
    check = ClockCheck(store=MemoryStore(now_ms=lambda: clock.now_ms() + skews.pop(0), has_clock=True), clock=clock)
    await check.check()
    await check.check()
    assert check.proposed_time() is None
    await check.check()
    assert check.proposed_time() is not None


async def test_a_store_without_a_clock_leaves_the_machine_s() -> None:
    clock = ManualClock()
    check = ClockCheck(store=MemoryStore(), clock=clock)
    await check.check()
    assert check.proposed_time() == clock.now_ms()


async def test_a_store_that_is_away_changes_nothing() -> None:
    clock = ManualClock()
    store = FailingStore(MemoryStore())
    check = ClockCheck(store=store, clock=clock)
    await check.check()
    store.script(Fault(kind=FaultKind.BEFORE, operation=Operation.TIME))
    with pytest.raises(StoreUnavailable):
        await check.check()
    assert check.proposed_time() is not None


async def test_a_store_that_is_away_at_the_start_is_reported_and_asked_again_soon() -> None:
    clock = ManualClock()
    store = FailingStore(MemoryStore())
    check = ClockCheck(store=store, clock=clock)
    store.script(Fault(kind=FaultKind.BEFORE, operation=Operation.TIME))
    await check.check_or_report()
    assert check.proposed_time() is None
    async with asyncio.TaskGroup() as tasks:
        run = tasks.create_task(check.run())
        while len(clock.slept) < 2:
            await clock.sleep(0)
            clock.slept.remove(0)
        run.cancel()
    assert clock.slept[:2] == [CLOCK_CHECK_RETRY_S, CLOCK_CHECK_INTERVAL_S]
    assert check.proposed_time() is not None
