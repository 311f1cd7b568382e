"""What a start waits for, for how long, and what strangers read about it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from agent.runtime.start_retries import once_there
from agent.runtime.start_waits import StartNeed, StartWaits
from coordinator.ledger.port import LedgerUnavailable
from protocol.limits import OUTAGE_REMINDER_SECONDS, START_RETRY_SECONDS_FIRST, START_RETRY_SECONDS_MAX
from storage.object_store import StoreUnavailable
from tests.support.agent.ledger_parts import ManualClock

STARTS = "not ready: the agent starts"


def seconds(waits: StartWaits) -> dict[str, float]:
    return {need.value: waits.seconds(need) for need in StartNeed}


def attempts(*errors: Exception) -> Callable[[], Awaitable[str]]:
    """A step of a start that raises these first."""
    left = list(errors)

    async def attempt() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return attempt


class TestWaits:
    def test_a_start_that_waits_for_nothing_says_that_it_starts(self) -> None:
        waits = StartWaits(ManualClock())
        assert waits.line == STARTS
        assert seconds(waits) == {"ledger": 0.0, "store": 0.0, "name": 0.0}

    @pytest.mark.parametrize(
        ("need", "words"),
        [
            (StartNeed.LEDGER, "the ledger (etcd)"),
            (StartNeed.STORE, "the object store"),
            (StartNeed.NAME, "the end of another session under this agent's name"),
        ],
    )
    def test_a_wait_is_named_and_measured_from_its_beginning(self, need: StartNeed, words: str) -> None:
        clock = ManualClock()
        waits = StartWaits(clock, kinds={StartNeed.LEDGER: "etcd"})
        waits.begin(need)
        clock.seconds += 2
        waits.begin(need)
        clock.seconds += 1
        assert waits.seconds(need) == sum(seconds(waits).values()) == 3.0
        assert waits.line == f"not ready: the start waits for {words}"
        waits.end()
        assert (waits.line, waits.seconds(need)) == (STARTS, 0.0)

    def test_a_start_waits_for_one_thing_at_a_time(self) -> None:
        clock = ManualClock()
        waits = StartWaits(clock)
        waits.begin(StartNeed.LEDGER)
        clock.seconds += 2
        waits.begin(StartNeed.NAME)
        clock.seconds += 1
        assert seconds(waits) == {"ledger": 0.0, "store": 0.0, "name": 1.0}

    def test_an_outage_that_others_observe_is_a_wait(self) -> None:
        clock, outage_s = ManualClock(), 0.0
        waits = StartWaits(clock)
        waits.observe(StartNeed.STORE, lambda: outage_s)
        assert waits.line == STARTS
        outage_s = 7.0
        assert waits.seconds(StartNeed.STORE) == 7.0
        assert waits.line == "not ready: the start waits for the object store"
        waits.begin(StartNeed.LEDGER)
        clock.seconds += 8
        assert waits.line == "not ready: the start waits for the ledger"

    def test_after_the_start_nothing_is_waited_for(self) -> None:
        clock = ManualClock()
        waits = StartWaits(clock)
        waits.observe(StartNeed.STORE, lambda: 7.0)
        waits.finish()
        waits.begin(StartNeed.LEDGER)
        clock.seconds += 1
        assert seconds(waits) == {"ledger": 0.0, "store": 0.0, "name": 0.0}
        assert waits.line == "not ready: the agent is stopping"


class TestRetries:
    @pytest.mark.parametrize(
        ("error", "need"),
        [(LedgerUnavailable("away"), StartNeed.LEDGER), (StoreUnavailable("away"), StartNeed.STORE)],
    )
    async def test_a_step_is_repeated_after_growing_pauses(self, error: Exception, need: StartNeed) -> None:
        clock = ManualClock()
        waits = StartWaits(clock)
        assert await once_there(attempts(*[error] * 6), clock, waits) == "done"
        first = START_RETRY_SECONDS_FIRST
        assert clock.slept == [first, 2 * first, 4 * first, *[START_RETRY_SECONDS_MAX] * 3]
        assert waits.seconds(need) == 0.0

    async def test_a_step_that_asks_one_service_waits_for_it_from_the_first_try_on(self) -> None:
        clock = ManualClock()
        waits = StartWaits(clock)
        asked = asyncio.Event()

        async def hang() -> None:
            asked.set()
            await asyncio.Event().wait()

        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(once_there(hang, clock, waits, StartNeed.STORE))
            await asked.wait()
            clock.seconds += 4
            assert waits.seconds(StartNeed.STORE) == 4.0
            running.cancel()

    async def test_the_log_names_the_service_once_a_minute(self, caplog: pytest.LogCaptureFixture) -> None:
        clock = ManualClock()
        tries = int(2.5 * OUTAGE_REMINDER_SECONDS / START_RETRY_SECONDS_MAX)
        waits = StartWaits(clock, kinds={StartNeed.LEDGER: "etcd"})
        with caplog.at_level(logging.INFO):
            await once_there(attempts(*[LedgerUnavailable("refused")] * tries), clock, waits)
            await once_there(attempts(LedgerUnavailable("refused")), clock, waits)
        assert [record.getMessage() for record in caplog.records] == [
            *["the agent cannot start yet: the ledger (etcd) does not answer; it tries again"] * 3,
            "the ledger (etcd) answers: the start goes on",
        ]

    async def test_without_the_waits_of_an_agent_a_step_is_repeated_too(self) -> None:
        assert await once_there(attempts(LedgerUnavailable("away")), ManualClock()) == "done"
