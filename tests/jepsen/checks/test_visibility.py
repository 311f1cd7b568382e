"""What is seen of transactions: each anomaly once there and once, nearly the same, not."""

import pytest

from tests.jepsen.checks.history_fixtures import KEY, Made, read, sent
from tests.jepsen.checks.visibility import aborted_reads, lost_writes, precommitted_reads, torn_transactions, unseen
from tests.jepsen.history.history import Type

OTHER = "b-0"


def lost(made: Made) -> list[tuple[str, int]]:
    return [(each.key, each.values[0]) for each in lost_writes(*made.known())]


def torn(made: Made) -> list[tuple[str, int]]:
    evidence, orders = made.known()
    found = torn_transactions(evidence, orders, list(lost_writes(evidence, orders)), list(aborted_reads(evidence)))
    return [(each.key, each.values[0]) for each in found]


def left(made: Made) -> list[tuple[str, int]]:
    return [(each.key, each.values[0]) for each in unseen(made.known()[0])]


class TestAbortedRead:
    def test_a_value_of_a_failed_transaction_is_read(self) -> None:
        made = Made().did(0, sent(1), kind="fail").did(1, read((5, 1)))
        (found,) = aborted_reads(made.known()[0])
        assert (found.kind, found.key, found.values, found.offsets, found.calls) == ("G1a", KEY, (1,), (5,), (0, 1))

    @pytest.mark.parametrize("kind", ["ok", "info"])
    def test_a_transaction_that_may_have_been_committed_may_be_read(self, kind: Type) -> None:
        made = Made().did(0, sent(1), kind=kind).did(1, read((5, 1)))
        assert not list(aborted_reads(made.known()[0]))

    @pytest.mark.parametrize("kind", ["fail", "info"])
    def test_a_reader_that_is_not_ok_accuses_nobody(self, kind: Type) -> None:
        made = Made().did(0, sent(1), kind="fail").did(1, read((5, 1)), kind=kind)
        assert not list(aborted_reads(made.known()[0]))

    def test_reading_before_the_writer_failed_is_an_aborted_read_as_well(self) -> None:
        made = Made().begun(0, sent(1)).did(1, read((5, 1))).ended(0, sent(1), kind="fail")
        assert [each.kind for each in aborted_reads(made.known()[0])] == ["G1a"]


class TestPrecommittedRead:
    @pytest.mark.parametrize("kind", ["ok", "info", "fail"])
    def test_a_transaction_reads_what_it_sent(self, kind: Type) -> None:
        made = Made().did(0, sent(1), read((5, 1)), kind=kind)
        assert [each.values for each in precommitted_reads(made.known()[0])] == [(1,)]

    def test_a_transaction_reads_what_another_sent(self) -> None:
        made = Made().did(0, sent(1)).did(0, sent(2), read((5, 1)))
        assert not list(precommitted_reads(made.known()[0]))

    def test_the_same_value_of_another_key_is_another_record(self) -> None:
        made = Made().did(0, sent(1, key=OTHER)).did(0, sent(1), read((5, 1), key=OTHER))
        assert not list(precommitted_reads(made.known()[0]))


class TestLostWrite:
    def test_a_later_value_is_read_and_this_one_never(self) -> None:
        made = Made().did(0, sent(1, 5)).did(0, sent(2, 6)).did(1, read((6, 2)))
        (found,) = lost_writes(*made.known())
        assert (found.key, found.values, found.offsets, found.calls) == (KEY, (1, 2), (5, 6), (0, 2))

    def test_somebody_else_read_it(self) -> None:
        made = Made().did(0, sent(1, 5)).did(0, sent(2, 6)).did(1, read((6, 2))).did(2, read((5, 1)))
        assert lost(made) == []

    def test_only_a_call_that_failed_read_it(self) -> None:
        made = Made().did(0, sent(1, 5)).did(0, sent(2, 6)).did(1, read((6, 2))).did(2, read((5, 1)), kind="fail")
        assert lost(made) == [(KEY, 1)]

    def test_nothing_behind_it_was_read(self) -> None:
        made = Made().did(0, sent(1, 5)).did(0, sent(2, 6)).did(1, read((5, 1)))
        assert lost(made) == []

    def test_only_a_call_that_failed_read_what_is_behind_it(self) -> None:
        made = Made().did(0, sent(1, 5)).did(0, sent(2, 6)).did(1, read((6, 2)), kind="fail")
        assert lost(made) == []

    @pytest.mark.parametrize("kind", ["fail", "info"])
    def test_a_transaction_that_may_not_have_taken_place_owes_nothing(self, kind: Type) -> None:
        made = Made().did(0, sent(1, 5), kind=kind).did(0, sent(2, 6)).did(1, read((6, 2)))
        assert lost(made) == []

    def test_an_unknown_transaction_of_which_one_value_was_read_owes_the_others(self) -> None:
        made = Made().did(0, sent(1, 5), sent(9, 3, key=OTHER), kind="info").did(0, sent(2, 6))
        made.did(1, read((6, 2)), read((3, 9), key=OTHER))
        assert lost(made) == [(KEY, 1)]

    def test_a_value_of_which_nobody_knows_where_it_belongs_is_not_lost(self) -> None:
        made = Made().did(0, sent(1)).did(0, sent(2, 6)).did(1, read((6, 2)))
        assert lost(made) == []

    def test_a_value_that_stands_again_behind_what_was_read_is_not_due(self) -> None:
        made = Made().did(0, sent(1, 5)).did(0, sent(2, 6)).did(1, read((7, 1)), kind="fail").did(1, read((6, 2)))
        assert lost(made) == []

    def test_a_value_that_stands_twice_bounds_by_its_first_place(self) -> None:
        made = Made().did(0, sent(1, 5)).did(0, sent(2, 6)).did(0, sent(3, 7))
        made.did(1, read((5, 1))).did(2, read((9, 1)), kind="fail")
        assert lost(made) == []

    def test_a_value_at_an_offset_that_another_took_is_lost_all_the_same(self) -> None:
        made = Made().did(0, sent(1, 5)).did(0, sent(2, 5)).did(0, sent(3, 6)).did(1, read((5, 2), (6, 3)))
        assert lost(made) == [(KEY, 1)]

    def test_a_value_at_the_very_offset_that_was_read_with_another_is_lost(self) -> None:
        assert lost(Made().did(0, sent(1, 5)).did(0, sent(2, 5)).did(1, read((5, 2)))) == [(KEY, 1)]

    @pytest.mark.parametrize("kind", ["fail", "info"])
    def test_a_value_that_only_a_failed_call_read_does_not_prove_that_its_transaction_took_place(
        self, kind: Type
    ) -> None:
        made = Made().did(0, sent(1), kind=kind).did(0, sent(2, 6)).did(1, read((5, 1)), kind="fail")
        assert lost(made.did(1, read((6, 2)))) == []

    def test_each_key_is_judged_by_itself(self) -> None:
        made = Made().did(0, sent(1, 5)).did(0, sent(2, 6, key=OTHER)).did(1, read((6, 2), key=OTHER))
        assert lost(made) == []


class TestTornTransaction:
    def test_one_value_is_read_and_the_other_lost(self) -> None:
        made = Made().did(0, sent(1, 5), sent(9, 3, key=OTHER)).did(0, sent(2, 6))
        made.did(1, read((6, 2)), read((3, 9), key=OTHER))
        assert torn(made) == [(KEY, 1)]

    def test_all_of_it_is_read(self) -> None:
        made = Made().did(0, sent(1, 5), sent(9, 3, key=OTHER)).did(0, sent(2, 6))
        made.did(1, read((5, 1), (6, 2)), read((3, 9), key=OTHER))
        assert torn(made) == []

    def test_all_of_it_is_lost(self) -> None:
        made = Made().did(0, sent(1, 5), sent(9, 3, key=OTHER)).did(0, sent(2, 6), sent(8, 4, key=OTHER))
        made.did(1, read((6, 2)), read((4, 8), key=OTHER))
        assert torn(made) == []
        assert lost(made) == [(KEY, 1), (OTHER, 9)]

    def test_one_value_of_a_failed_transaction_is_read_and_the_other_passed_by(self) -> None:
        made = Made().did(0, sent(1, 5), sent(9, 3, key=OTHER), kind="fail").did(0, sent(2, 6))
        made.did(1, read((6, 2)), read((3, 9), key=OTHER))
        assert torn(made) == [(KEY, 1)]

    def test_all_of_a_failed_transaction_is_read(self) -> None:
        made = Made().did(0, sent(1, 5), sent(9, 3, key=OTHER), kind="fail").did(0, sent(2, 6))
        made.did(1, read((5, 1), (6, 2)), read((3, 9), key=OTHER))
        assert torn(made) == []

    @pytest.mark.parametrize("offset", [None, 7])
    def test_the_other_value_of_a_failed_transaction_may_still_come(self, offset: int | None) -> None:
        made = Made().did(0, sent(1, offset), sent(9, 3, key=OTHER), kind="fail").did(0, sent(2, 6))
        made.did(1, read((6, 2)), read((3, 9), key=OTHER))
        assert torn(made) == []

    def test_a_failed_transaction_to_a_key_of_which_nothing_is_known(self) -> None:
        made = Made().did(0, sent(1, 5, key="c-0"), sent(9, 3), kind="fail").did(1, read((3, 9)))
        assert torn(made) == []


class TestUnseen:
    def test_an_acknowledged_value_that_nobody_read(self) -> None:
        made = Made().did(0, sent(1, 5), sent(2, 6)).did(1, read((5, 1)))
        assert left(made) == [(KEY, 2)]

    def test_an_acknowledged_value_that_somebody_read(self) -> None:
        made = Made().did(0, sent(1, 5), sent(2, 6)).did(1, read((5, 1), (6, 2)))
        assert left(made) == []

    @pytest.mark.parametrize("kind", ["fail", "info"])
    def test_a_value_that_was_not_acknowledged(self, kind: Type) -> None:
        assert left(Made().did(0, sent(1, 5), kind=kind)) == []

    def test_the_other_value_of_a_call_of_which_one_was_read(self) -> None:
        made = Made().did(0, sent(1), sent(2, key="c-0"), kind="info").did(1, read((5, 1)))
        assert left(made) == [("c-0", 2)]

    @pytest.mark.parametrize("kind", ["fail", "info"])
    def test_a_reader_that_is_not_ok_has_not_seen_it(self, kind: Type) -> None:
        assert left(Made().did(0, sent(1, 5)).did(1, read((5, 1)), kind=kind)) == [(KEY, 1)]

    def test_a_value_that_was_read_before_its_writer_heard_of_it_was_seen(self) -> None:
        assert left(Made().begun(0, sent(1)).did(1, read((5, 1))).ended(0, sent(1, 5))) == []

    def test_the_text_says_whether_everything_was_read_in_the_end(self) -> None:
        made = Made().did(0, sent(1, 5))
        assert "does not end with a read" in next(unseen(made.known()[0])).text
        made.begun(1, f="poll", final=True).ended(1)
        assert "does not end with a read" not in next(unseen(made.known()[0])).text
