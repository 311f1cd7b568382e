"""Background work on topics: what fails for one leaves the others alone, is logged once, and is tried less and less."""

import logging
from collections.abc import AsyncIterator

import pytest

from agent.lake.topic_work import REMEDY_BUG, REMEDY_DAMAGED, REMEDY_MISSING, REMEDY_TABLE, TopicWork
from agent.runtime.metrics import Metrics
from coordinator.ledger.port import LedgerCorrupt
from coordinator.state.state import TopicState
from iceberg_export.rows.footer import FileUnreadable
from iceberg_export.tables.metadata import TableUnreadable
from protocol.limits import TOPIC_PAUSE_OUTAGE_SECONDS_MAX, TOPIC_PAUSE_SECONDS_FIRST, TOPIC_PAUSE_SECONDS_MAX
from storage.object_store import ObjectMissing, StoreDenied, StoreUnavailable
from tests.support.agent.ledger_parts import ManualClock, Parts, running_parts
from tests.support.commands.commands import TOPIC, create


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    async with running_parts() as parts:
        await parts.ledger.propose(create())
        yield parts


def topic_of(parts: Parts) -> TopicState:
    return parts.ledger.state.topics[TOPIC]


class Failing:
    """A step that fails as often as it is told."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.tries = 0

    async def step(self) -> str:
        self.tries += 1
        if self.error is not None:
            raise self.error
        return "done"


def work(clock: ManualClock, metrics: Metrics) -> TopicWork:
    return TopicWork("archiver", failing="a topic is not archived", clock=clock, metrics=metrics)


def count(metrics: Metrics, kind: str) -> float:
    return float(metrics.background_errors.labels("archiver", kind)._value.get())


async def test_what_works_returns_its_result(parts: Parts) -> None:
    working = work(parts.clock, parts.metrics)
    assert working.is_due(topic_of(parts))
    assert await working.run(topic_of(parts), Failing(None).step) == "done"


@pytest.mark.parametrize(
    ("error", "kind", "remedy"),
    [
        (TableUnreadable("no"), "damage", REMEDY_TABLE),
        (FileUnreadable("no"), "damage", REMEDY_DAMAGED),
        (ObjectMissing("no"), "damage", REMEDY_MISSING),
        (StoreDenied("no"), "damage", "see the reason"),
        (KeyError("row"), "bug", REMEDY_BUG),
        (AssertionError("never"), "bug", REMEDY_BUG),
        (ExceptionGroup("reads", [ValueError("no")]), "bug", REMEDY_BUG),
    ],
)
async def test_a_lasting_error_is_logged_once_and_tried_less_and_less(
    parts: Parts, caplog: pytest.LogCaptureFixture, error: Exception, kind: str, remedy: str
) -> None:
    working, failing = work(parts.clock, parts.metrics), Failing(error)
    pauses: list[float] = []
    for _ in range(12):
        assert working.is_due(topic_of(parts))
        assert await working.run(topic_of(parts), failing.step) is None
        began_s = parts.clock.monotonic_s()
        while not working.is_due(topic_of(parts)):
            parts.clock.seconds += 1.0
        pauses.append(parts.clock.monotonic_s() - began_s)
    assert pauses[:3] == [TOPIC_PAUSE_SECONDS_FIRST * 2**number for number in range(3)]
    assert pauses[-1] == TOPIC_PAUSE_SECONDS_MAX
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert remedy in record.getMessage()
    assert (record.exc_info is not None) == (kind == "bug")
    assert count(parts.metrics, kind) == failing.tries == 12


async def test_an_outage_is_tried_again_within_half_a_minute_and_is_no_error_of_the_log(
    parts: Parts, caplog: pytest.LogCaptureFixture
) -> None:
    working, failing = work(parts.clock, parts.metrics), Failing(StoreUnavailable("away"))
    for _ in range(12):
        await working.run(topic_of(parts), failing.step)
    parts.clock.seconds += TOPIC_PAUSE_OUTAGE_SECONDS_MAX
    assert working.is_due(topic_of(parts))
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert count(parts.metrics, "outage") == 12


async def test_a_topic_that_works_again_begins_with_the_first_pause(parts: Parts) -> None:
    working, failing = work(parts.clock, parts.metrics), Failing(TableUnreadable("no"))
    for _ in range(5):
        await working.run(topic_of(parts), failing.step)
    gauge = parts.metrics.background_topics_failing.labels("archiver")
    assert gauge._value.get() == 1
    failing.error = None
    assert await working.run(topic_of(parts), failing.step) == "done"
    assert gauge._value.get() == 0
    failing.error = TableUnreadable("no")
    await working.run(topic_of(parts), failing.step)
    parts.clock.seconds += TOPIC_PAUSE_SECONDS_FIRST
    assert working.is_due(topic_of(parts))
    working.forget_others(())
    assert gauge._value.get() == 0


async def test_a_ledger_that_contradicts_itself_is_not_contained(parts: Parts) -> None:
    for error in (LedgerCorrupt("no"), ExceptionGroup("both", [ValueError("no"), LedgerCorrupt("no")])):
        with pytest.raises(type(error)):
            await work(parts.clock, parts.metrics).run(topic_of(parts), Failing(error).step)
