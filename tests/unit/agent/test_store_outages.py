"""What an outage of the object store leaves in the log. Time moves by the retries' pauses alone."""

import logging

import pytest

from agent.store_outages import WARNING_INTERVAL_SECONDS, StoreOutages
from storage.failing import FailingStore, Fault, FaultKind, Operation
from storage.memory_store import MemoryStore
from storage.object_store import StoreUnavailable
from storage.retrying import RetryingStore, RetryPolicy, RetryPorts

Line = tuple[str, str, int, float]
"""Level, operation, failures, seconds."""


class World:
    """A pause lasts ten seconds; a request is given up after a hundred."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.failing = FailingStore(MemoryStore())
        self.store = RetryingStore(
            self.failing,
            policy=RetryPolicy(deadline_s=100.0, pause_first_s=10.0, pause_s_max=10.0),
            ports=RetryPorts(monotonic_s=self.monotonic_s, sleep=self.sleep, chance=lambda: 1.0),
            observer=StoreOutages(monotonic_s=self.monotonic_s),
        )

    def monotonic_s(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def fail(self, operation: Operation, times: int) -> None:
        self.failing.script(*[Fault(kind=FaultKind.BEFORE, operation=operation)] * times)


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture) -> World:
    caplog.set_level(logging.INFO, "agent.store_outages")
    return World()


def lines(caplog: pytest.LogCaptureFixture) -> list[Line]:
    rows = [vars(record) for record in caplog.records]
    return [(row["levelname"], row["operation"], row["failures"], row["seconds"]) for row in rows]


async def test_an_outage_is_told_when_it_begins_while_it_lasts_and_when_it_ends(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.fail(Operation.PUT, 8)
    await world.store.put("intake/1/1", [b"x"])
    assert lines(caplog) == [
        ("WARNING", "put", 1, 0.0),
        ("WARNING", "put", 4, 30.0),
        ("WARNING", "put", 7, 60.0),
        ("INFO", "put", 8, 80.0),
    ]


async def test_the_first_line_says_of_which_key_and_why(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.fail(Operation.GET, 1)
    await world.store.put("a", [b"x"])
    await world.store.get("a")
    first = vars(caplog.records[0])
    assert (first["operation"], first["key"], first["reason"]) == ("get", "a", "get a: refused")


async def test_requests_that_are_given_up_end_no_outage(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.fail(Operation.HEAD, 11)
    with pytest.raises(StoreUnavailable):
        await world.store.head("a")
    world.now_s += 50.0
    world.fail(Operation.HEAD, 1)
    await world.store.put("a", [b"x"])
    await world.store.head("a")
    assert lines(caplog)[-2:] == [("WARNING", "head", 12, 150.0), ("INFO", "head", 12, 160.0)]


async def test_what_still_works_does_not_end_the_outage_of_what_does_not(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.store.put("a", [b"x"])
    world.fail(Operation.PUT, 11)
    with pytest.raises(StoreUnavailable):
        await world.store.put("b", [b"x"])
    await world.store.get("a")
    assert {(level, operation) for level, operation, *_ in lines(caplog)} == {("WARNING", "put")}


async def test_a_store_that_comes_and_goes_does_not_fill_the_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(12):
        world.fail(Operation.PUT, 1)
        await world.store.put(f"a/{number}", [b"x"])
    warnings = [line for line in lines(caplog) if line[0] == "WARNING"]
    assert len(warnings) == 120.0 / WARNING_INTERVAL_SECONDS
    assert len(lines(caplog)) == 2 * len(warnings)


async def test_the_clock_of_the_store_counts_as_well(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.fail(Operation.TIME, 1)
    with pytest.raises(StoreUnavailable):
        await world.store.server_time_ms()
    await world.store.server_time_ms()
    assert [line[:2] for line in lines(caplog)] == [("WARNING", "time"), ("INFO", "time")]
