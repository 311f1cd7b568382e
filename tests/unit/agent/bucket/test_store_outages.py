"""What an outage of the object store leaves in the log. Time moves by the retries' pauses alone, or by the test."""

import logging

import pytest

from agent.bucket.store_outages import StoreOutages
from protocol.limits import OUTAGE_CHECK_INTERVAL_S, OUTAGE_REMINDER_SECONDS, STORE_SILENT_SECONDS
from storage.decorators.failing import FailingStore, FaultKind, InjectedFault, StoreOperation
from storage.decorators.retrying import RetryingStore, RetryPolicy, RetryPorts
from storage.memory_store import MemoryStore
from storage.object_store import StoreUnavailable
from tests.support.agent.ledger_parts import ManualClock

Line = tuple[str, str, int, float]
"""Level, operation, failures, seconds."""


class World:
    """A pause lasts twenty seconds; a request is given up after two hundred."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.failing = FailingStore(MemoryStore())
        self.outages = StoreOutages(clock=self.clock)
        self.store = RetryingStore(
            self.failing,
            policy=RetryPolicy(deadline_s=200.0, pause_first_s=20.0, pause_s_max=20.0),
            ports=RetryPorts(monotonic_s=self.clock.monotonic_s, sleep=self.clock.sleep, chance=lambda: 1.0),
            observer=self.outages,
        )

    def fail(self, operation: StoreOperation, times: int) -> None:
        self.failing.script(*[InjectedFault(kind=FaultKind.BEFORE, operation=operation)] * times)


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture) -> World:
    caplog.set_level(logging.INFO, "agent.runtime.outages")
    return World()


def lines(caplog: pytest.LogCaptureFixture) -> list[Line]:
    rows = [vars(record) for record in caplog.records]
    return [(row["levelname"], row["operation"], row["failures"], row["seconds"]) for row in rows]


async def test_an_outage_is_reported_when_it_begins_while_it_lasts_and_when_it_ends(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.fail(StoreOperation.PUT, 8)
    await world.store.put("intake/1/1", [b"x"])
    assert lines(caplog) == [
        ("WARNING", "put", 1, 0.0),
        ("WARNING", "put", 4, 60.0),
        ("WARNING", "put", 7, 120.0),
        ("INFO", "put", 8, 160.0),
    ]


async def test_the_first_line_says_of_which_key_and_why(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.fail(StoreOperation.GET, 1)
    await world.store.put("a", [b"x"])
    await world.store.get("a")
    first = vars(caplog.records[0])
    assert (first["operation"], first["key"], first["reason"]) == ("get", "a", "get a: refused")
    assert "docs/operations/bucket.md" in first["message"]


async def test_requests_that_are_given_up_end_no_outage(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.fail(StoreOperation.HEAD, 11)
    with pytest.raises(StoreUnavailable):
        await world.store.head("a")
    world.clock.seconds += 50.0
    world.fail(StoreOperation.HEAD, 1)
    await world.store.put("a", [b"x"])
    await world.store.head("a")
    assert lines(caplog)[-2:] == [("WARNING", "head", 12, 250.0), ("INFO", "head", 12, 270.0)]


async def test_what_still_works_does_not_end_the_outage_of_what_does_not(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.store.put("a", [b"x"])
    world.fail(StoreOperation.PUT, 11)
    with pytest.raises(StoreUnavailable):
        await world.store.put("b", [b"x"])
    await world.store.get("a")
    assert {(level, operation) for level, operation, *_ in lines(caplog)} == {("WARNING", "put")}


async def test_a_store_that_comes_and_goes_does_not_fill_the_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(12):
        world.fail(StoreOperation.PUT, 1)
        await world.store.put(f"a/{number}", [b"x"])
    warnings = [line for line in lines(caplog) if line[0] == "WARNING"]
    assert len(warnings) == 240.0 / OUTAGE_REMINDER_SECONDS
    assert len(lines(caplog)) == 2 * len(warnings)


async def test_the_clock_of_the_store_counts_as_well(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.fail(StoreOperation.TIME, 1)
    with pytest.raises(StoreUnavailable):
        await world.store.server_time_ms()
    await world.store.server_time_ms()
    assert [line[:2] for line in lines(caplog)] == [("WARNING", "time"), ("INFO", "time")]


async def test_the_metric_shows_the_longest_outage_and_none_that_nobody_meets_any_more(world: World) -> None:
    assert world.outages.seconds == 0.0
    world.fail(StoreOperation.PUT, 11)
    with pytest.raises(StoreUnavailable):
        await world.store.put("b", [b"x"])
    assert world.outages.seconds == 200.0
    world.clock.seconds += OUTAGE_REMINDER_SECONDS
    assert world.outages.seconds == 0.0


class TestAStoreThatHangs:
    def test_requests_that_wait_are_told_long_before_their_time_is_over(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        with world.outages.under_way("put", "a"), world.outages.under_way("put", "b"):
            world.clock.seconds += STORE_SILENT_SECONDS - 1
            world.outages.check()
            assert lines(caplog) == []
            for _ in range(int(OUTAGE_REMINDER_SECONDS)):
                world.clock.seconds += 1
                world.outages.check()
            row = vars(caplog.records[0])
            assert (row["operation"], row["key"], row["reason"]) == (
                "put",
                "a",
                "no answer for 5 s; requests that wait: 2",
            )
            waited_s = OUTAGE_REMINDER_SECONDS + STORE_SILENT_SECONDS - 1
            assert world.outages.seconds == waited_s
        world.outages.answered("put")
        assert lines(caplog) == [("WARNING", "put", 0, STORE_SILENT_SECONDS), ("INFO", "put", 0, waited_s)]

    def test_one_long_request_beside_others_that_are_answered_is_nothing_to_tell(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        with world.outages.under_way("put", "large"):
            for _ in range(int(3 * STORE_SILENT_SECONDS)):
                world.clock.seconds += 1
                with world.outages.under_way("put", "small"):
                    world.outages.answered("put")
                world.outages.check()
        assert lines(caplog) == []

    def test_what_was_given_up_waits_no_longer(self, world: World, caplog: pytest.LogCaptureFixture) -> None:
        with pytest.raises(TimeoutError), world.outages.under_way("get", "a"):
            raise TimeoutError
        world.clock.seconds += 2 * STORE_SILENT_SECONDS
        world.outages.check()
        assert lines(caplog) == []

    async def test_it_is_looked_at_again_and_again(self, world: World, caplog: pytest.LogCaptureFixture) -> None:
        class Enough(Exception):
            pass

        sleep = world.clock.sleep

        async def sleep_for_a_while(seconds: float) -> None:
            if world.clock.seconds > STORE_SILENT_SECONDS:
                raise Enough
            await sleep(seconds)

        world.clock.sleep = sleep_for_a_while  # type: ignore[method-assign]
        with pytest.raises(Enough), world.outages.under_way("get", "a"):
            await world.outages.run()
        assert set(world.clock.slept) == {OUTAGE_CHECK_INTERVAL_S}
        assert [line[:2] for line in lines(caplog)] == [("WARNING", "get")]
