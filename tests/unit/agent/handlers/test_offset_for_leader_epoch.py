"""There is one epoch, 0: it ends where the log does."""

from agent.handlers.offset_for_leader_epoch import end_of_epoch
from coordinator.state.state import PartitionState
from protocol.types import Offset

PARTITION = PartitionState(log_start=Offset(3), log_end=Offset(9))


def test_the_current_epoch_ends_at_the_end() -> None:
    assert end_of_epoch(PARTITION, 0) == (0, 9)


def test_a_later_epoch_and_none_at_all_are_not_known() -> None:
    assert end_of_epoch(PARTITION, 1) == (-1, -1)
    assert end_of_epoch(PARTITION, -1) == (-1, -1)


def test_an_epoch_before_the_first_ended_where_the_log_starts() -> None:
    assert end_of_epoch(PARTITION, -5) == (-5, 3)
