"""What a read_committed fetch of a partition sees, as Apache Kafka 4.3.1 answered where a test says so."""

import pytest

from protocol.types import Offset, ProducerId
from txn.isolation import AbortedBatches, AbortedExtent, AbortedRange, PartitionTransactions

P, Q, R = ProducerId(10), ProducerId(11), ProducerId(12)


def begin(log: PartitionTransactions, producer: ProducerId, offset: int) -> None:
    log.begin(producer, Offset(offset))


def abort(log: PartitionTransactions, producer: ProducerId, marker: int) -> None:
    log.end(producer, Offset(marker), is_commit=False)


def commit(log: PartitionTransactions, producer: ProducerId, marker: int) -> None:
    log.end(producer, Offset(marker), is_commit=True)


def aborted(log: PartitionTransactions, first: int, end: int) -> list[tuple[int, int]]:
    return [(row.producer_id, row.offset_first) for row in log.aborted_between(Offset(first), Offset(end))]


def stable(log: PartitionTransactions, *, end: int, start: int = 0) -> int:
    return log.last_stable_offset(Offset(start), Offset(end))


def overlapping() -> PartitionTransactions:
    """P writes 0, Q writes 1, Q aborts at 2, P at 3; P writes 4 and aborts at 5."""
    log = PartitionTransactions()
    begin(log, P, 0)
    begin(log, Q, 1)
    abort(log, Q, 2)
    abort(log, P, 3)
    begin(log, P, 4)
    abort(log, P, 5)
    return log


class TestLastStableOffset:
    def test_without_a_transaction_it_is_the_end(self) -> None:
        assert stable(PartitionTransactions(), end=7) == 7

    def test_it_is_the_first_offset_of_the_oldest_open_transaction(self) -> None:
        log = PartitionTransactions()
        begin(log, Q, 3)
        begin(log, P, 5)
        begin(log, Q, 6)
        assert stable(log, end=9) == 3
        commit(log, Q, 9)
        assert stable(log, end=10) == 5
        abort(log, P, 10)
        assert stable(log, end=11) == 11

    def test_it_is_not_below_the_start_of_the_log(self) -> None:
        log = PartitionTransactions()
        begin(log, P, 3)
        assert stable(log, start=5, end=9) == 5


class TestAbortedRanges:
    @pytest.mark.parametrize(
        ("fetched", "listed"),
        [
            (0, [(Q, 1), (P, 0), (P, 4)]),
            (2, [(Q, 1), (P, 0), (P, 4)]),
            (3, [(P, 0), (P, 4)]),
            (4, [(P, 4)]),
            (5, [(P, 4)]),
            (6, []),
        ],
    )
    def test_a_fetch_lists_what_kafka_lists(self, fetched: int, listed: list[tuple[int, int]]) -> None:
        assert aborted(overlapping(), fetched, 6) == listed

    def test_a_short_fetch_lists_only_what_it_meets(self) -> None:
        assert aborted(overlapping(), 0, 1) == [(P, 0)]
        assert aborted(overlapping(), 0, 2) == [(Q, 1), (P, 0)]

    def test_a_committed_transaction_is_not_listed(self) -> None:
        log = PartitionTransactions()
        begin(log, P, 0)
        commit(log, P, 1)
        assert aborted(log, 0, 2) == []
        assert log.is_empty

    def test_a_marker_without_records_is_not_listed(self) -> None:
        log = PartitionTransactions()
        abort(log, P, 0)
        assert aborted(log, 0, 1) == []

    def test_a_transaction_that_stays_open_does_not_hide_what_ends_behind_it(self) -> None:
        log = PartitionTransactions()
        begin(log, R, 0)
        begin(log, P, 1)
        abort(log, P, 2)
        begin(log, P, 3)
        abort(log, P, 4)
        commit(log, R, 5)
        assert aborted(log, 1, 6) == [(P, 1), (P, 3)]
        assert aborted(log, 1, 3) == [(P, 1)]

    def test_rows_are_named(self) -> None:
        assert overlapping().aborted_between(Offset(5), Offset(6)) == [AbortedRange(P, Offset(4))]


class TestForgetting:
    def test_s5_a_range_goes_with_its_marker(self) -> None:
        log = overlapping()
        log.forget_markers(Offset(0), Offset(3))
        assert aborted(log, 0, 6) == [(P, 0), (P, 4)]
        log.forget_markers(Offset(5), Offset(6))
        assert aborted(log, 0, 6) == [(P, 0)]

    def test_s5_a_range_stays_while_its_marker_is_served(self) -> None:
        log = overlapping()
        log.forget_markers(Offset(0), Offset(2))
        log.forget_markers(Offset(4), Offset(5))
        assert log == overlapping()

    def test_what_forgot_everything_is_empty(self) -> None:
        log = overlapping()
        log.forget_markers(Offset(0), Offset(6))
        assert log.is_empty
        assert log.aborted_count == 0

    def test_what_remembers_anything_is_not_empty(self) -> None:
        log = PartitionTransactions()
        begin(log, P, 0)
        assert [log.is_empty, overlapping().is_empty] == [False, False]


class TestColumns:
    def test_what_was_written_is_read(self) -> None:
        log = overlapping()
        begin(log, R, 7)
        begin(log, P, 6)
        again = PartitionTransactions.from_columns(log.open, [memoryview(column) for column in log.columns()])
        assert again == log
        assert log.aborted_count == 3
        assert aborted(again, 0, 6) == aborted(log, 0, 6)

    def test_open_transactions_are_put_in_order(self) -> None:
        log = PartitionTransactions.from_columns({P: Offset(7), Q: Offset(3)}, PartitionTransactions().columns())
        assert list(log.open) == [Q, P]
        assert stable(log, end=9) == 3

    def test_columns_fit_each_other(self) -> None:
        columns = overlapping().columns()
        with pytest.raises(ValueError, match="argument 2 is shorter"):
            PartitionTransactions.from_columns({}, columns[:3])
        with pytest.raises(ValueError, match=r"have \[3, 3, 2, 3\] rows"):
            PartitionTransactions.from_columns({}, [*columns[:2], columns[2][8:], columns[3]])

    @pytest.mark.parametrize("wrong", [0, 3])
    def test_markers_rise_and_so_does_what_is_stable(self, wrong: int) -> None:
        columns = overlapping().columns()
        columns[wrong] = columns[wrong][16:] + columns[wrong][:16]
        with pytest.raises(ValueError, match="order of their markers"):
            PartitionTransactions.from_columns({}, columns)

    def test_nothing_else_is_equal(self) -> None:
        assert PartitionTransactions() != 0
        assert overlapping() != PartitionTransactions()


class TestAbortedBatches:
    def test_an_extent_tells_where_the_transaction_ends(self) -> None:
        assert overlapping().aborted_extents(Offset(1), Offset(6)) == [
            AbortedExtent(Q, Offset(1), Offset(2)),
            AbortedExtent(P, Offset(0), Offset(3)),
            AbortedExtent(P, Offset(4), Offset(5)),
        ]

    def test_a_batch_is_aborted_from_the_first_of_its_transaction_to_the_marker(self) -> None:
        aborted = AbortedBatches(
            [
                AbortedExtent(P, Offset(2), Offset(4)),
                AbortedExtent(Q, Offset(1), Offset(6)),
                AbortedExtent(P, Offset(7), Offset(9)),
            ]
        )
        assert [offset for offset in range(12) if aborted.holds(P, offset)] == [2, 3, 7, 8]
        assert [offset for offset in range(12) if aborted.holds(Q, offset)] == [1, 2, 3, 4, 5]
        assert not any(aborted.holds(R, offset) for offset in range(12))

    def test_what_is_decided_ends_before_an_open_transaction_wherever_the_log_starts(self) -> None:
        log = PartitionTransactions()
        assert log.decided_end(Offset(9)) == 9
        begin(log, P, 3)
        assert (log.decided_end(Offset(9)), stable(log, end=9, start=5)) == (3, 5)
