"""A meter counts the steps of its own coroutine, and the functions that it runs in threads."""

import asyncio
import threading

import pytest

from agent.runtime.cpu_meter import CPU_METER, CpuMeter
from agent.runtime.threads import run_in_thread
from tests.support.agent.ledger_parts import ManualClock


async def test_the_time_of_others_between_two_steps_is_not_counted() -> None:
    clock = ManualClock()
    meter, turn = CpuMeter(clock), asyncio.get_running_loop().create_future()

    async def work() -> str:
        clock.seconds += 1.0
        await turn
        clock.seconds += 2.0
        return "done"

    task = asyncio.ensure_future(meter.measure(work()))
    await asyncio.sleep(0)
    clock.seconds += 100.0
    turn.set_result(None)
    assert await task == "done"
    assert meter.seconds == pytest.approx(3.0)


class ThreadClock(ManualClock):
    """Each thread has a time of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.local = threading.local()

    def thread_cpu_s(self) -> float:
        return float(getattr(self.local, "seconds", 0.0))


async def test_what_it_runs_in_threads_is_counted() -> None:
    clock = ThreadClock()
    meter = CpuMeter(clock)

    def in_thread() -> int:
        clock.local.seconds = clock.thread_cpu_s() + 4.0
        return 7

    assert await meter.measure(run_in_thread(in_thread)) == 7
    assert meter.seconds == pytest.approx(4.0)


async def test_errors_and_cancellations_are_the_coroutines_own() -> None:
    clock = ManualClock()
    meter, seen = CpuMeter(clock), list[str]()

    async def failing() -> None:
        clock.seconds += 1.0
        raise ValueError("so it is")

    async def waiting() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            clock.seconds += 2.0
            seen.append("cancelled")
            raise

    with pytest.raises(ValueError, match="so it is"):
        await meter.measure(failing())
    task = asyncio.ensure_future(meter.measure(waiting()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]
    assert meter.seconds == pytest.approx(3.0)
    assert CPU_METER.get() is None
