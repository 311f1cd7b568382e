"""Inputs of compactions and archive passes that could not be read: excluded, and tried again after a pause.

The pauses double, so a file that stays damaged is read a few times a day and not in every compaction. A file that was
restored takes part again by itself. All of this is in the memory of one agent.
"""

from collections.abc import Container, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from agent.runtime.clock import Clock
from protocol.limits import COMPACTION_DAMAGED_SECONDS_FIRST, COMPACTION_DAMAGED_SECONDS_MAX
from protocol.types import TopicId

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _Damaged:
    topic_id: TopicId
    pause_s: float
    retry_s: float
    is_excluded: bool = True


class DamagedInputs(Generic[K]):
    """The unreadable inputs of one kind of work, by a name such as a file's key, each with its topic."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._files: dict[K, _Damaged] = {}

    @property
    def excluded(self) -> set[K]:
        """The inputs whose pause was not over at the last `end_pauses`."""
        return {key for key, file in self._files.items() if file.is_excluded}

    def exclude(self, topic_id: TopicId, keys: Iterable[K]) -> None:
        """Exclude inputs that could not be read, for twice as long as the last time.

        An input whose pause `end_pauses_of` ended early is excluded for the rest of that pause.
        """
        now_s = self._clock.monotonic_s()
        for key in keys:
            before = self._files.get(key)
            if before is not None and now_s < before.retry_s:
                before.is_excluded = True
                continue
            pause_s = COMPACTION_DAMAGED_SECONDS_FIRST
            if before is not None:
                pause_s = min(before.pause_s * 2, COMPACTION_DAMAGED_SECONDS_MAX)
            self._files[key] = _Damaged(topic_id, pause_s, now_s + pause_s)

    def end_pauses(self) -> set[TopicId]:
        """End the pauses that are over. Returns the topics of these inputs: plan them again."""
        now_s = self._clock.monotonic_s()
        ready = [file for file in self._files.values() if file.is_excluded and now_s >= file.retry_s]
        for file in ready:
            file.is_excluded = False
        return {file.topic_id for file in ready}

    def end_pauses_of(self, topic_id: TopicId) -> None:
        """End the pauses of all inputs of a topic, because a caller wants to try them now."""
        for file in self._files.values():
            if file.topic_id == topic_id:
                file.is_excluded = False

    def forget_others(self, keys: Container[K]) -> None:
        """Forget all inputs except these."""
        self._files = {key: file for key, file in self._files.items() if key in keys}
