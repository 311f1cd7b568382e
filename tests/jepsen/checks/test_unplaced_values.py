"""What final reads wait for where nobody was told offsets: all of a call that took place."""

from tests.jepsen.checks.unplaced_values import UnplacedValues
from tests.jepsen.history.history import Micro, MicroPoll, MicroSend, Op, Type

HALVES = (MicroSend("a-0", 1), MicroSend("b-0", 2))


def op(kind: Type, *micros: Micro) -> Op:
    return Op(index=0, time_ns=0, process=0, type=kind, f="txn", micros=micros)


def read(key: str, value: int) -> MicroPoll:
    return MicroPoll({key: ((0, value),)})


def test_an_acknowledged_value_is_wanted_and_one_with_an_offset_is_waited_for_by_that() -> None:
    values = UnplacedValues()
    values.completed(op("ok", MicroSend("a-0", 1), MicroSend("a-0", 2, 7)))
    assert values.wanted == {"a-0": {1}}
    assert values.left({})
    assert not values.left({"a-0": {1, 9}})


def test_of_a_call_of_unknown_end_all_is_wanted_once_something_was_read() -> None:
    values = UnplacedValues()
    values.completed(op("info", *HALVES))
    assert not values.left({})
    values.completed(op("ok", read("a-0", 1)))
    assert values.wanted == {"a-0": {1}, "b-0": {2}}


def test_it_may_have_been_read_before_it_was_given_up() -> None:
    values = UnplacedValues()
    values.completed(op("ok", read("b-0", 2)))
    values.completed(op("info", *HALVES))
    assert values.left({"b-0": {2}})


def test_a_failed_call_and_what_failed_calls_read_want_nothing() -> None:
    values = UnplacedValues()
    values.completed(op("fail", *HALVES))
    values.completed(op("fail", read("a-0", 1)))
    values.completed(op("info", *HALVES))
    assert not values.left({})
