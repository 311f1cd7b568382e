"""Deadlines of groups pass in their order, and an earlier one ends the wait for a later one."""

import asyncio

from agent.groups.group_timers import GroupTimers
from protocol.limits import GROUP_LATE_SECONDS_MAX
from tests.support.agent.ledger_parts import ManualClock

Passed = list[tuple[str, float]]


def running(clock: ManualClock) -> tuple[GroupTimers, Passed, asyncio.Task[None]]:
    """Timers on a clock that the test moves, and the deadlines that have passed."""
    timers, passed = GroupTimers(clock), Passed()

    def expire(group_id: str, deadline_s: float, now_s: float) -> None:
        assert deadline_s <= now_s
        passed.append((group_id, deadline_s))

    return timers, passed, asyncio.ensure_future(timers.run(expire))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_deadlines_pass_in_order_and_not_before_their_time() -> None:
    clock = ManualClock()
    timers, passed, task = running(clock)
    timers.set(0.3, "b")
    timers.set(0.2, "a")
    timers.set(9.0, "c")
    clock.seconds = 0.5
    await turns()
    assert passed == [("a", 0.2), ("b", 0.3)]
    task.cancel()


async def test_an_earlier_deadline_ends_the_wait_for_a_later_one() -> None:
    clock = ManualClock()
    timers, passed, task = running(clock)
    timers.set(9.0, "later")
    await turns()
    clock.seconds = 0.1
    timers.set(0.1, "sooner")
    await turns()
    assert passed == [("sooner", 0.1)]
    task.cancel()


async def test_after_the_agent_stood_still_heartbeats_are_read_before_deadlines_pass() -> None:
    clock = ManualClock()
    clock.seconds = 100.0
    timers, passed, task = running(clock)
    timers.set(1.0, "a")
    await turns()
    assert (passed, clock.slept[:1]) == ([("a", 1.0)], [GROUP_LATE_SECONDS_MAX])
    task.cancel()
