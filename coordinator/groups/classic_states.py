"""The states of a classic group, as a table, and how long its first members wait for others.

Rule: pure; `NEXT_STATES` is the whole table. Dead is not in it: a group that is not there has no object.
Source: org.apache.kafka.coordinator.group.classic.ClassicGroupState,
GroupMetadataManager.tryCompleteInitialRebalanceElseSchedule (Kafka 4.3); KIP-134.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class ClassicGroupState(Enum):
    """By Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    """Members are to join; who has waits for the others."""
    COMPLETING = "CompletingRebalance"
    """A generation has begun; its leader has to send the assignment."""
    STABLE = "Stable"


NEXT_STATES: Final[Mapping[ClassicGroupState, frozenset[ClassicGroupState]]] = MappingProxyType(
    {
        ClassicGroupState.EMPTY: frozenset({ClassicGroupState.PREPARING}),
        ClassicGroupState.PREPARING: frozenset({ClassicGroupState.COMPLETING, ClassicGroupState.EMPTY}),
        ClassicGroupState.COMPLETING: frozenset({ClassicGroupState.STABLE, ClassicGroupState.PREPARING}),
        ClassicGroupState.STABLE: frozenset({ClassicGroupState.PREPARING}),
    }
)


class FirstJoinDelay:
    """The first members of an empty group wait a little, and longer as long as others keep coming.

    All in all it is no longer than the rebalance time-out of those that began.
    """

    def __init__(self, *, step_s: float, rebalance_timeout_s: float) -> None:
        self._step_s = step_s
        self._left_s = max(rebalance_timeout_s - step_s, 0.0)
        self.wait_s = step_s
        """How long to wait now."""
        self.has_newcomer = False
        """Whether a member joined during this wait."""

    def goes_on(self) -> bool:
        """The wait is over: whether there is another, which is then in `wait_s`."""
        if not self.has_newcomer or not self._left_s:
            return False
        waited_s = self.wait_s
        self.wait_s = min(self._step_s, self._left_s)
        self._left_s = max(self._left_s - waited_s, 0.0)
        self.has_newcomer = False
        return True
