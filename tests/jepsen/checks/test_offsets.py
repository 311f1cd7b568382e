"""Offsets and values: each anomaly once there and once, nearly the same, not."""

from collections.abc import Iterable

from tests.jepsen.checks.anomaly import Anomaly
from tests.jepsen.checks.history_fixtures import KEY, Made, read, sent
from tests.jepsen.checks.offsets import duplicates, inconsistent_offsets, phantoms


def kinds(found: Iterable[Anomaly]) -> list[str]:
    return [anomaly.kind for anomaly in found]


def inconsistent(made: Made) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [(each.offsets, each.values) for each in inconsistent_offsets(made.known()[1])]


def test_two_readers_that_see_two_values_at_one_offset() -> None:
    made = Made().did(0, sent(1), sent(2)).did(1, read((5, 1))).did(2, read((5, 2)))
    assert inconsistent(made) == [((5,), (1, 2))]


def test_two_readers_that_see_one_value_at_one_offset() -> None:
    made = Made().did(0, sent(1), sent(2)).did(1, read((5, 1))).did(2, read((5, 1), (6, 2)))
    assert inconsistent(made) == []


def test_a_writer_and_a_reader_that_are_told_two_values_of_an_offset() -> None:
    made = Made().did(0, sent(1, 5)).did(0, sent(2, 6)).did(1, read((5, 2)))
    assert inconsistent(made) == [((5,), (1, 2))]


def test_the_offset_of_a_send_that_nobody_knows_to_be_committed_says_nothing() -> None:
    made = Made().did(0, sent(1, 5), kind="info").did(0, sent(2, 5)).did(1, read((5, 2)))
    assert inconsistent(made) == []


def test_the_offset_of_an_unknown_send_counts_once_its_value_was_read() -> None:
    made = Made().did(0, sent(1, 5), kind="info").did(0, sent(2, 5)).did(1, read((5, 2))).did(1, read((6, 1)))
    assert inconsistent(made) == [((5,), (1, 2))]


def test_polls_of_calls_that_failed_count() -> None:
    made = Made().did(0, sent(1, 5)).did(0, sent(2, 6)).did(1, read((5, 2)), kind="fail")
    assert inconsistent(made) == [((5,), (1, 2))]


def test_sends_of_calls_that_failed_do_not() -> None:
    made = Made().did(0, sent(1, 5), kind="fail").did(0, sent(2, 5)).did(1, read((5, 2)))
    assert inconsistent(made) == []


def test_the_same_offset_of_another_key_is_another_place() -> None:
    made = Made().did(0, sent(1, 5)).did(0, sent(2, 5, key="a-1"))
    assert inconsistent(made) == []


def test_a_value_at_two_offsets() -> None:
    made = Made().did(0, sent(1, 5)).did(1, read((7, 1)))
    found = list(duplicates(made.known()[1]))
    assert kinds(found) == ["duplicate", "duplicate-nonzero"]
    assert {each.offsets for each in found} == {(5, 7)}


def test_a_value_at_two_offsets_of_which_one_is_0() -> None:
    made = Made().did(0, sent(1, 0)).did(1, read((7, 1)))
    assert kinds(duplicates(made.known()[1])) == ["duplicate"]


def test_a_value_that_is_read_twice_at_its_offset() -> None:
    made = Made().did(0, sent(1, 5)).did(1, read((5, 1))).did(2, read((5, 1)))
    assert kinds(duplicates(made.known()[1])) == []


def test_a_value_that_hides_behind_another_at_one_of_its_offsets() -> None:
    made = Made().did(0, sent(1), sent(2)).did(1, read((5, 2), (6, 1))).did(2, read((5, 1)))
    found = [each for each in duplicates(made.known()[1]) if each.kind == "duplicate"]
    assert [(each.values, each.offsets) for each in found] == [((1,), (5, 6))]


def test_many_values_at_the_same_two_offsets_are_all_told() -> None:
    made = Made()
    for value in range(10):
        made.did(0, sent(value, 0)).did(1, read((1, value)))
    assert inconsistent(made) == [((0,), tuple(range(10))), ((1,), tuple(range(10)))]
    assert [each.values for each in duplicates(made.known()[1])] == [(value,) for value in range(10)]


def test_a_call_that_failed_tells_where_values_stand_that_it_read_but_not_that_it_sent() -> None:
    made = Made().did(0, sent(1, 3)).did(0, sent(2, 4), kind="fail").did(1, read((11, 1), (12, 2)), kind="fail")
    found = [each for each in duplicates(made.known()[1]) if each.kind == "duplicate"]
    assert [(each.values, each.offsets) for each in found] == [((1,), (3, 11))]


def test_the_same_value_in_two_keys_is_no_duplicate() -> None:
    made = Made().did(0, sent(1, 5)).did(0, sent(1, 6, key="a-1"))
    assert kinds(duplicates(made.known()[1])) == []


def test_a_value_that_nobody_sent() -> None:
    made = Made().did(0, sent(1)).did(1, read((5, 2)))
    assert [(each.key, each.values) for each in phantoms(made.known()[0])] == [(KEY, (2,))]


def test_a_value_that_was_sent_to_another_key() -> None:
    made = Made().did(0, sent(1, key="a-1")).did(1, read((5, 1)))
    assert kinds(phantoms(made.known()[0])) == ["phantom"]


def test_a_value_whose_sender_was_never_heard_of_again_was_sent() -> None:
    made = Made().begun(0, sent(1)).did(1, read((5, 1)))
    assert kinds(phantoms(made.known()[0])) == []
