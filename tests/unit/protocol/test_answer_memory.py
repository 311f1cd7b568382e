"""How much a fetch may answer while others do not read, and who is ended for it."""

from protocol.answer_memory import AnswerMemory
from protocol.limits import ANSWER_BYTES_MIN, FETCH_RESPONSE_BYTES_MAX, MIB


def test_while_nothing_is_unread_no_fetch_is_bounded() -> None:
    assert AnswerMemory[str]().capacity_bytes() >= FETCH_RESPONSE_BYTES_MAX


def test_the_more_is_unread_the_less_a_fetch_answers_but_never_nothing() -> None:
    memory = AnswerMemory[str](bytes_max=64 * MIB)
    capacities = [memory.capacity_bytes()]
    for number in range(9):
        memory.set_unread(f"{number}", 8 * MIB)
        capacities.append(memory.capacity_bytes())
    assert capacities == sorted(capacities, reverse=True)
    assert capacities[0] == 16 * MIB
    assert capacities[-2:] == [ANSWER_BYTES_MIN, ANSWER_BYTES_MIN]


def test_it_is_tight_from_half_of_the_budget_on() -> None:
    memory = AnswerMemory[str](bytes_max=10)
    memory.set_unread("a", 5)
    assert not memory.is_tight
    memory.set_unread("a", 6)
    assert (memory.is_tight, memory.unread_bytes, memory.holders()) == (True, 6, ["a"])


def test_what_is_read_counts_no_more() -> None:
    memory = AnswerMemory[str](bytes_max=10)
    memory.set_unread("a", 8)
    memory.set_unread("a", 3)
    memory.set_unread("b", 4)
    assert memory.unread_bytes == 7
    memory.forget("a")
    memory.forget("never there")
    assert (memory.unread_bytes, memory.holders()) == (4, ["b"])


def test_nobody_goes_within_the_budget() -> None:
    memory = AnswerMemory[str](bytes_max=16)
    memory.set_unread("a", 16)
    assert (memory.is_over, memory.slowest()) == (False, [])


def test_beyond_it_go_those_that_have_not_read_for_longest_and_no_more_than_need_be() -> None:
    memory = AnswerMemory[str](bytes_max=16)
    for name in "abcdef":
        memory.set_unread(name, 3)
    memory.forget("a")
    memory.set_unread("a", 3)
    memory.set_unread("b", 2)
    assert (memory.is_over, memory.slowest()) == (True, ["b", "c"])


def test_one_that_leaves_more_than_all_may_goes() -> None:
    memory = AnswerMemory[str](bytes_max=16)
    memory.set_unread("a", 17)
    assert memory.slowest() == ["a"]
