"""The loop of background jobs: when it sleeps, when it works, and for whom."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from agent.runtime.periodic_job import PeriodicJob
from tests.support.agent.ledger_parts import ManualClock


class Recorder:
    """A clock whose sleeps stand in `events` with the runs of a job; the loop is cancelled after so many."""

    def __init__(self, events_max: int) -> None:
        self.events: list[float | str] = []
        self._events_max = events_max
        self.clock = ManualClock()
        self.clock.sleep = self._sleep  # type: ignore[method-assign]

    async def _sleep(self, seconds: float) -> None:
        self._add(seconds)

    async def work(self) -> None:
        self._add("work")

    def _add(self, event: float | str) -> None:
        if len(self.events) == self._events_max:
            raise asyncio.CancelledError
        self.events.append(event)


async def events_of(
    events_max: int,
    *,
    interval_s: float | Callable[[], float] = 5.0,
    is_for_leader: bool = False,
    is_first_at_once: bool = False,
    is_leader: Callable[[], bool] = lambda: False,
) -> list[float | str]:
    recorder = Recorder(events_max)
    job = PeriodicJob(
        name="job",
        interval_s=interval_s,
        run_once=recorder.work,
        is_for_leader=is_for_leader,
        is_first_at_once=is_first_at_once,
    )
    with suppress(asyncio.CancelledError):
        await job.run(recorder.clock, is_leader)
    return recorder.events


async def test_a_job_runs_after_each_pause() -> None:
    assert await events_of(4) == [5.0, "work", 5.0, "work"]


async def test_a_job_may_run_at_once() -> None:
    assert await events_of(3, is_first_at_once=True) == ["work", 5.0, "work"]


async def test_a_job_of_the_leader_waits_for_the_role_and_leaves_runs_out_after_it() -> None:
    roles = iter([False, True, False, False])
    events = await events_of(5, is_for_leader=True, is_leader=lambda: next(roles))
    assert events == [5.0, 5.0, "work", 5.0, 5.0]


async def test_an_interval_may_change_from_pause_to_pause() -> None:
    intervals = iter([1.0, 2.0, 3.0])
    assert await events_of(5, interval_s=lambda: next(intervals)) == [1.0, "work", 2.0, "work", 3.0]
