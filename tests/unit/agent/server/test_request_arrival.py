"""What counts as progress of a request that is arriving."""

from agent.server.request_arrival import RequestArrival
from protocol.limits import RECEIVE_PROGRESS_BYTES_MIN


def test_a_request_stalls_from_the_look_that_saw_it_first() -> None:
    arrival = RequestArrival()
    assert [arrival.stalled_s(0, 50, now_s) for now_s in (10.0, 20.0, 70.0)] == [0.0, 10.0, 60.0]


def test_enough_bytes_are_progress_and_fewer_add_up() -> None:
    arrival, half = RequestArrival(), RECEIVE_PROGRESS_BYTES_MIN // 2
    assert [arrival.stalled_s(0, 1 + count * half, 10.0 * count) for count in range(4)] == [0.0, 10.0, 0.0, 10.0]


def test_another_request_is_progress() -> None:
    arrival = RequestArrival()
    assert [arrival.stalled_s(number, 50, 10.0 * number) for number in range(3)] == [0.0, 0.0, 0.0]


def test_between_requests_nothing_stalls() -> None:
    arrival = RequestArrival()
    assert [arrival.stalled_s(0, count, 10.0 * n) for n, count in enumerate((50, 0, 50))] == [0.0, 0.0, 0.0]


def test_what_is_forgotten_begins_again() -> None:
    arrival = RequestArrival()
    arrival.stalled_s(0, 50, 0.0)
    arrival.forget()
    assert arrival.stalled_s(0, 50, 100.0) == 0.0
