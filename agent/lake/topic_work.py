"""Background work on one topic after the other: a topic that fails does not stop the others.

A step fails because of damage, an outage, or a bug that the data of one topic triggers. Each failure is counted, logged
once for each reason, and tried again after a growing pause.
"""

import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from coordinator.ledger.port import LedgerCorrupt, LedgerError, LedgerUnavailable, OutcomeUnknown
from coordinator.state.state import TopicState
from iceberg_export.parquet.source_chunks import ChunkMismatch
from iceberg_export.rows.footer import FileUnreadable
from iceberg_export.tables.metadata import TableUnreadable
from protocol.errors import InvalidBatch
from protocol.limits import TOPIC_PAUSE_OUTAGE_SECONDS_MAX, TOPIC_PAUSE_SECONDS_FIRST, TOPIC_PAUSE_SECONDS_MAX
from protocol.types import TopicId
from storage.object_store import ObjectDamaged, ObjectMissing, StoreError, StoreUnavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

PASSING = (StoreUnavailable, LedgerUnavailable, OutcomeUnknown, TimeoutError)
"""Temporary errors. `agent.runtime.outages` reports them for all tasks together."""
REMEDY_TABLE = 'docs/operations/damage.md, "A table\'s metadata is damaged"'
REMEDY_DAMAGED = 'docs/operations/damage.md, "A damaged file"'
REMEDY_MISSING = 'docs/operations/damage.md, "Objects are missing"'
REMEDY_BUG = "this is a bug: save the log, and report it"


@dataclass(slots=True)
class _TopicBackoff:
    """The pause of a topic whose step failed."""

    seconds: float
    until_s: float
    version: str
    """The metadata key of the topic's table at the failure."""
    reason: str


class TopicWork:
    """The topics of one task. `failing`: the consequence of a failed step, for the log."""

    def __init__(self, task: str, *, failing: str, clock: Clock, metrics: Metrics) -> None:
        self._task = task
        self._failing = failing
        self._clock = clock
        self._errors = metrics.background_errors
        self._paused = metrics.background_topics_failing.labels(task)
        self._pauses: dict[TopicId, _TopicBackoff] = {}

    def is_due(self, topic: TopicState) -> bool:
        """Whether the topic may run: it is not paused, or its table changed since, perhaps by a repair."""
        pause = self._pauses.get(topic.topic_id)
        if pause is None:
            return True
        return pause.version != _version(topic) or self._clock.monotonic_s() >= pause.until_s

    async def run(self, topic: TopicState, step: Callable[[], Awaitable[T]]) -> T | None:
        """Run the step; return its result, or None where it failed. Raises only `LedgerCorrupt` and cancellation."""
        try:
            result = await step()
        # The only place where work on a topic catches every exception: a bug that the data of one topic triggers must
        # not stop the others. A corrupt ledger still ends the agent (safety rule S3).
        except Exception as error:
            if _is_corrupt(error):
                raise
            self._failed(topic, error)
            return None
        self.works(topic)
        return result

    def works(self, topic: TopicState) -> None:
        """The topic's step succeeded: end its pause."""
        pause = self._pauses.pop(topic.topic_id, None)
        if pause is not None:
            self._paused.set(len(self._pauses))
            log.info("background work on a topic succeeds again", extra={"task": self._task, "topic": topic.name})

    def delay(self, topic: TopicState, reason: str) -> None:
        """Pause a topic whose step did nothing and should run again later: another agent was faster, for example."""
        self._pause(topic, reason, TOPIC_PAUSE_OUTAGE_SECONDS_MAX)

    def forget_others(self, topics: Collection[TopicId]) -> None:
        """Forget all topics except these."""
        for topic_id in self._pauses.keys() - set(topics):
            del self._pauses[topic_id]
        self._paused.set(len(self._pauses))

    def _failed(self, topic: TopicState, error: Exception) -> None:
        before = self._pauses.get(topic.topic_id)
        kind, reason = _kind(error), f"{type(error).__name__}: {error}"
        self._errors.labels(self._task, kind).inc()
        is_passing = kind == "outage"
        pause = self._pause(topic, reason, TOPIC_PAUSE_OUTAGE_SECONDS_MAX if is_passing else TOPIC_PAUSE_SECONDS_MAX)
        if before is not None and before.reason == reason:
            return
        log.log(
            logging.INFO if is_passing else logging.ERROR,
            "%s; other topics are not affected: %s",
            self._failing,
            "it is tried again" if is_passing else remedy_of(error),
            extra={
                "task": self._task,
                "topic": topic.name,
                "topic_id": topic.topic_id.hex(),
                "reason": reason,
                "pause_s": pause.seconds,
            },
            exc_info=error if kind == "bug" else None,
        )

    def _pause(self, topic: TopicState, reason: str, seconds_max: float) -> _TopicBackoff:
        before = self._pauses.get(topic.topic_id)
        seconds = TOPIC_PAUSE_SECONDS_FIRST if before is None else min(before.seconds * 2, seconds_max)
        until_s = self._clock.monotonic_s() + seconds
        pause = self._pauses[topic.topic_id] = _TopicBackoff(seconds, until_s, _version(topic), reason)
        self._paused.set(len(self._pauses))
        return pause


def _version(topic: TopicState) -> str:
    return "" if topic.table is None else topic.table.metadata_key


def _is_corrupt(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_is_corrupt(each) for each in error.exceptions)
    return isinstance(error, LedgerCorrupt)


def _kind(error: Exception) -> str:
    if isinstance(error, PASSING):
        return "outage"
    return "damage" if isinstance(error, StoreError | LedgerError | InvalidBatch | ChunkMismatch | OSError) else "bug"


def remedy_of(error: Exception) -> str:
    """The remedy, for log lines and error messages."""
    match error:
        case TableUnreadable():
            return REMEDY_TABLE
        case FileUnreadable() | ObjectDamaged() | InvalidBatch() | ChunkMismatch():
            return REMEDY_DAMAGED
        case ObjectMissing():
            return REMEDY_MISSING
        case StoreError() | LedgerError() | OSError():
            return "see the reason"
        case _:
            return REMEDY_BUG
