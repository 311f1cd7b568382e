"""A guesser gets slower with each failure."""

from agent.security.connections.failure_delays import FailureDelays
from protocol.limits import AUTHENTICATION_ADDRESSES_MAX


def test_ten_failures_within_a_minute_have_the_usual_delay() -> None:
    delays = FailureDelays()
    assert [delays.delay_s("a", 0.1, now_s) for now_s in range(10)] == [0.1] * 10


def test_further_ones_double_it_up_to_five_seconds() -> None:
    delays = FailureDelays()
    for _ in range(10):
        delays.delay_s("a", 0.1, 0)
    assert [delays.delay_s("a", 0.1, 1) for _ in range(7)] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_without_a_usual_delay_further_ones_have_one() -> None:
    delays = FailureDelays()
    assert [delays.delay_s("a", 0.0, 0) for _ in range(10)] == [0.0] * 10
    assert delays.delay_s("a", 0.0, 0) == 0.2


def test_a_longer_usual_delay_is_kept() -> None:
    delays = FailureDelays()
    assert {delays.delay_s("a", 20.0, 0) for _ in range(40)} == {20.0}


def test_addresses_are_counted_apart_and_a_minute_later_from_the_start() -> None:
    delays = FailureDelays()
    for _ in range(20):
        delays.delay_s("a", 0.1, 0)
    assert delays.delay_s("b", 0.1, 1) == 0.1
    assert delays.delay_s("a", 0.1, 61) == 0.1


def test_the_oldest_address_is_forgotten() -> None:
    delays = FailureDelays()
    for _ in range(20):
        delays.delay_s("first", 0.1, 0)
    for number in range(AUTHENTICATION_ADDRESSES_MAX):
        delays.delay_s(str(number), 0.1, 1)
    assert delays.delay_s("first", 0.1, 2) == 0.1
