"""The table of a classic group's states, and the wait of its first members."""

import pytest

from coordinator.groups.classic_states import NEXT_STATES, ClassicGroupState, FirstJoinDelay

KAFKA_PREVIOUS_STATES = {
    ClassicGroupState.EMPTY: {ClassicGroupState.PREPARING},
    ClassicGroupState.PREPARING: {ClassicGroupState.STABLE, ClassicGroupState.COMPLETING, ClassicGroupState.EMPTY},
    ClassicGroupState.COMPLETING: {ClassicGroupState.PREPARING},
    ClassicGroupState.STABLE: {ClassicGroupState.COMPLETING},
}
"""ClassicGroupState's static initialiser (Kafka 4.3), without Dead."""


def test_states_follow_each_other_as_in_kafka() -> None:
    ways = {(state, after) for state, states in NEXT_STATES.items() for after in states}
    assert ways == {(before, state) for state, states in KAFKA_PREVIOUS_STATES.items() for before in states}


def test_every_state_has_its_row() -> None:
    assert set(NEXT_STATES) == set(ClassicGroupState)


def test_a_wait_without_newcomers_is_the_last() -> None:
    delay = FirstJoinDelay(step_s=3.0, rebalance_timeout_s=60.0)
    assert delay.wait_s == 3.0
    assert not delay.goes_on()


def test_newcomers_lengthen_the_wait_until_the_rebalance_timeout() -> None:
    delay = FirstJoinDelay(step_s=3.0, rebalance_timeout_s=8.0)
    waits = [delay.wait_s]
    while True:
        delay.has_newcomer = True
        if not delay.goes_on():
            break
        waits.append(delay.wait_s)
    assert waits == [3.0, 3.0, 2.0]


@pytest.mark.parametrize("rebalance_timeout_s", [0.0, 3.0])
def test_a_short_rebalance_timeout_leaves_one_wait(rebalance_timeout_s: float) -> None:
    delay = FirstJoinDelay(step_s=3.0, rebalance_timeout_s=rebalance_timeout_s)
    delay.has_newcomer = True
    assert not delay.goes_on()
