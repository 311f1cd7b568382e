"""The order in which clients read and write: each anomaly once there and once, nearly the same, not."""

import pytest

from tests.jepsen.checks.history_fixtures import KEY, Made, polled, read, sent
from tests.jepsen.checks.order import external_polls, external_sends, internal_polls, internal_sends
from tests.jepsen.history.history import Type

OTHER = "a-1"
Found = list[tuple[str, tuple[int, ...], int]]


def three_sent() -> Made:
    return Made().did(9, sent(1, 5)).did(9, sent(2, 6)).did(9, sent(3, 9))


def read_within(made: Made) -> Found:
    return [(each.kind, each.values, each.delta) for each in internal_polls(*made.known())]


def read_between(made: Made) -> Found:
    return [(each.kind, each.values, each.delta) for each in external_polls(*made.known())]


def sent_within(made: Made) -> Found:
    return [(each.kind, each.values, each.delta) for each in internal_sends(*made.known())]


def sent_between(made: Made) -> Found:
    return [(each.kind, each.values, each.delta) for each in external_sends(*made.known())]


class TestPollsOfOneTransaction:
    def test_one_leaves_out_what_is_between(self) -> None:
        assert read_within(three_sent().did(1, read((5, 1), (9, 3)))) == [("int-poll-skip", (1, 3), 2)]

    def test_one_reads_all_of_it(self) -> None:
        assert read_within(three_sent().did(1, read((5, 1), (6, 2), (9, 3)))) == []

    def test_offsets_without_a_value_are_not_left_out(self) -> None:
        assert read_within(three_sent().did(1, read((6, 2), (9, 3)))) == []

    def test_one_goes_back(self) -> None:
        assert read_within(three_sent().did(1, read((6, 2), (5, 1)))) == [("int-nonmonotonic-poll", (2, 1), -1)]

    def test_one_reads_the_same_again(self) -> None:
        assert read_within(three_sent().did(1, read((6, 2), (6, 2)))) == [("int-nonmonotonic-poll", (2, 2), 0)]

    def test_two_polls_of_it_leave_out_what_is_between(self) -> None:
        assert read_within(three_sent().did(1, read((5, 1)), read((9, 3)))) == [("int-poll-skip", (1, 3), 2)]

    @pytest.mark.parametrize("kind", ["fail", "info"])
    def test_how_it_ends_does_not_matter(self, kind: Type) -> None:
        assert read_within(three_sent().did(1, read((5, 1), (9, 3)), kind=kind)) == [("int-poll-skip", (1, 3), 2)]

    def test_a_key_that_was_assigned_again_meanwhile_is_exempt(self) -> None:
        assert read_within(three_sent().did(1, read((5, 1), (9, 3)), rebalanced=[KEY])) == []

    def test_another_key_that_was_assigned_again_exempts_nothing(self) -> None:
        found = read_within(three_sent().did(1, read((5, 1), (9, 3)), rebalanced=[OTHER]))
        assert found == [("int-poll-skip", (1, 3), 2)]

    def test_records_of_two_keys_may_come_mixed(self) -> None:
        made = three_sent().did(9, sent(4, 1, key=OTHER))
        made.did(1, polled({KEY: [(5, 1)], OTHER: [(1, 4)]}), read((6, 2)))
        assert read_within(made) == []

    def test_the_text_names_what_was_left_out(self) -> None:
        (found,) = internal_polls(*three_sent().did(1, read((5, 1), (9, 3))).known())
        assert found.text.endswith("read value 1 of a-0, then 3; between them stand 2")
        assert found.offsets == (5, 9)

    def test_the_text_does_not_name_very_many(self) -> None:
        made = Made()
        for value in range(20):
            made.did(9, sent(value, value))
        (found,) = internal_polls(*made.did(1, read((0, 0), (19, 19))).known())
        assert found.text.endswith("between them stand 1, 2, 3, 4, 5 and 13 more")


class TestPollsOfOneProcess:
    def test_it_leaves_out_what_is_between(self) -> None:
        made = three_sent().did(1, read((5, 1))).did(1, read((9, 3)))
        assert read_between(made) == [("poll-skip", (1, 3), 2)]

    def test_it_goes_on_where_it_was(self) -> None:
        assert read_between(three_sent().did(1, read((5, 1))).did(1, read((6, 2), (9, 3)))) == []

    def test_it_goes_back(self) -> None:
        made = three_sent().did(1, read((6, 2))).did(1, read((5, 1), (6, 2)))
        assert read_between(made) == [("nonmonotonic-poll", (2, 1), -1)]

    def test_it_reads_its_last_again(self) -> None:
        assert read_between(three_sent().did(1, read((6, 2))).did(1, read((6, 2)))) == [
            ("nonmonotonic-poll", (2, 2), 0)
        ]

    def test_another_process_begins_where_it_likes(self) -> None:
        assert read_between(three_sent().did(1, read((5, 1))).did(2, read((9, 3)))) == []

    def test_an_empty_poll_moves_nothing(self) -> None:
        made = three_sent().did(1, read((5, 1))).did(1, read()).did(1, read((9, 3)))
        assert read_between(made) == [("poll-skip", (1, 3), 2)]

    @pytest.mark.parametrize("kind", ["fail", "info"])
    def test_a_call_that_is_not_ok_does_not_move_the_position(self, kind: Type) -> None:
        made = three_sent().did(1, read((5, 1))).did(1, read((6, 2)), kind=kind)
        assert read_between(made.did(1, read((6, 2)))) == []

    @pytest.mark.parametrize("kind", ["fail", "info"])
    def test_a_call_that_is_not_ok_is_judged(self, kind: Type) -> None:
        made = three_sent().did(1, read((5, 1))).did(1, read((9, 3)), kind=kind)
        assert read_between(made) == [("poll-skip", (1, 3), 2)]

    def test_a_position_that_is_not_taken_back_after_an_abort_is_a_skip_each_time(self) -> None:
        made = three_sent().did(9, sent(4, 10)).did(1, read((5, 1)))
        made.did(1, read((6, 2)), kind="fail").did(1, read((9, 3)), kind="fail").did(1, read((10, 4)))
        assert read_between(made) == [("poll-skip", (1, 3), 2), ("poll-skip", (1, 4), 3)]

    def test_a_key_that_is_no_longer_assigned_is_forgotten(self) -> None:
        made = three_sent().did(1, read((5, 1))).assigned(1, OTHER).assigned(1, KEY)
        assert read_between(made.did(1, read((9, 3)))) == []

    def test_a_key_that_remains_assigned_is_not_forgotten(self) -> None:
        made = three_sent().did(1, read((5, 1))).assigned(1, OTHER, KEY)
        assert read_between(made.did(1, read((9, 3)))) == [("poll-skip", (1, 3), 2)]

    def test_an_assign_that_failed_changes_nothing(self) -> None:
        made = three_sent().did(1, read((5, 1))).assigned(1, OTHER, kind="fail")
        assert read_between(made.did(1, read((9, 3)))) == [("poll-skip", (1, 3), 2)]

    def test_an_assign_that_may_have_happened_has_happened(self) -> None:
        made = three_sent().did(1, read((5, 1))).assigned(1, OTHER, kind="info")
        assert read_between(made.did(1, read((9, 3)))) == []

    def test_a_topic_that_remains_subscribed_is_not_forgotten(self) -> None:
        made = three_sent().did(1, read((5, 1))).assigned(1, "a", f="subscribe")
        assert read_between(made.did(1, read((9, 3)))) == [("poll-skip", (1, 3), 2)]

    def test_a_topic_that_is_no_longer_subscribed_is_forgotten(self) -> None:
        made = three_sent().did(1, read((5, 1))).assigned(1, "b", f="subscribe")
        assert read_between(made.did(1, read((9, 3)))) == []

    def test_the_final_read_begins_again(self) -> None:
        made = three_sent().did(1, read((6, 2))).assigned(1, KEY, final=True)
        assert read_between(made.did(1, read((5, 1), (6, 2), (9, 3)))) == []

    def test_what_is_not_known_is_no_skip(self) -> None:
        made = Made().did(9, sent(1)).did(1, read((5, 1))).did(1, read((9, 4)))
        assert read_between(made) == []


class TestSendsOfOneTransaction:
    def test_others_write_between_its_values(self) -> None:
        made = Made().did(0, sent(1, 5), sent(2, 7)).did(1, sent(3, 6))
        assert sent_within(made) == [("int-send-skip", (1, 2), 2)]

    def test_nobody_writes_between_its_values(self) -> None:
        assert sent_within(Made().did(0, sent(1, 5), sent(2, 7)).did(1, sent(3, 8))) == []

    def test_its_values_stand_in_the_other_order(self) -> None:
        assert sent_within(Made().did(0, sent(1, 7), sent(2, 5))) == [("int-nonmonotonic-send", (1, 2), -1)]

    def test_readers_say_that_its_values_stand_in_the_other_order(self) -> None:
        made = Made().did(0, sent(1), sent(2)).did(1, read((5, 2), (7, 1)))
        assert sent_within(made) == [("int-nonmonotonic-send", (1, 2), -1)]

    def test_sends_to_two_keys_have_no_order(self) -> None:
        assert sent_within(Made().did(0, sent(1, 7), sent(2, 5, key=OTHER))) == []


class TestSendsOfOneProcess:
    def test_the_later_stands_before_the_earlier(self) -> None:
        assert sent_between(Made().did(0, sent(1, 7)).did(0, sent(2, 5))) == [("nonmonotonic-send", (1, 2), -1)]

    def test_the_later_stands_behind_the_earlier(self) -> None:
        assert sent_between(Made().did(0, sent(1, 5)).did(1, sent(3, 6)).did(0, sent(2, 7))) == []

    def test_two_processes_have_no_order(self) -> None:
        assert sent_between(Made().did(0, sent(1, 7)).did(1, sent(2, 5))) == []

    def test_a_call_that_failed_does_not_count(self) -> None:
        made = Made().did(0, sent(1, 7), kind="fail").did(0, sent(2, 5)).did(1, read((5, 2), (7, 1)))
        assert sent_between(made) == []

    def test_a_call_that_may_have_happened_counts(self) -> None:
        made = Made().did(0, sent(1), kind="info").did(0, sent(2, 5)).did(1, read((5, 2), (7, 1)))
        assert sent_between(made) == [("nonmonotonic-send", (1, 2), -1)]

    def test_assigning_keys_to_read_does_not_allow_it(self) -> None:
        made = Made().did(0, sent(1, 7)).assigned(0, OTHER).did(0, sent(2, 5))
        assert sent_between(made) == [("nonmonotonic-send", (1, 2), -1)]

    def test_the_last_of_the_one_is_held_against_the_first_of_the_other(self) -> None:
        assert sent_between(Made().did(0, sent(1, 5), sent(2, 8)).did(0, sent(3, 7), sent(4, 9))) == [
            ("nonmonotonic-send", (2, 3), -1)
        ]
