"""Files that a merge found damaged or gone: merges leave them out, and try each again after a pause.

Chunks that cannot be archived are treated alike (`agent.lake.damaged_intake`).

Rule: a file that was put back takes part again by itself; one that stays damaged is read a few times a day, not with
every merge. What is here is this agent's memory alone.
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
    is_left_out: bool = True


class DamagedInputs(Generic[K]):
    """The name of each input, such as the key of a file, with the topic that it belongs to."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._files: dict[K, _Damaged] = {}

    @property
    def left_out(self) -> set[K]:
        """The keys whose pause was not over at the last `end_pauses`."""
        return {key for key, file in self._files.items() if file.is_left_out}

    def found(self, topic_id: TopicId, keys: Iterable[K]) -> None:
        """These inputs cannot be read: leave them out, for twice as long as the time before.

        Those whose pause was ended by somebody who asked (`end_pauses_of`) wait for the rest of it.
        """
        now_s = self._clock.monotonic_s()
        for key in keys:
            before = self._files.get(key)
            if before is not None and now_s < before.retry_s:
                before.is_left_out = True
                continue
            pause_s = COMPACTION_DAMAGED_SECONDS_FIRST
            if before is not None:
                pause_s = min(before.pause_s * 2, COMPACTION_DAMAGED_SECONDS_MAX)
            self._files[key] = _Damaged(topic_id, pause_s, now_s + pause_s)

    def end_pauses(self) -> set[TopicId]:
        """Let files take part again whose pause is over. Returns their topics, which are to be planned again."""
        now_s = self._clock.monotonic_s()
        over = [file for file in self._files.values() if file.is_left_out and now_s >= file.retry_s]
        for file in over:
            file.is_left_out = False
        return {file.topic_id for file in over}

    def end_pauses_of(self, topic_id: TopicId) -> None:
        """Let all inputs of a topic take part again."""
        for file in self._files.values():
            if file.topic_id == topic_id:
                file.is_left_out = False

    def forget_others(self, keys: Container[K]) -> None:
        """Let go of all inputs but these."""
        self._files = {key: file for key, file in self._files.items() if key in keys}
