"""The rules of a producer's sequence on one partition, as Kafka's ProducerAppendInfo has them."""

import pytest

from coordinator.state.state import NO_TIME
from protocol.errors import ErrorCode
from protocol.types import Milliseconds, Offset, ProducerEpoch, ProducerId, Sequence
from txn.producer_state import (
    ACCEPT,
    NO_ACTIVITY_TIME,
    NO_SEQUENCE,
    Decision,
    Duplicate,
    ProducerState,
    Reject,
    RememberedBatch,
    advance,
    any_idle,
    decide,
    expire,
    is_stale,
    mark,
    sequence_after,
)

LAST_SEQUENCE = (1 << 31) - 1
OUT_OF_ORDER = Reject(ErrorCode.out_of_order_sequence_number)
APPENDED_BEFORE = Reject(ErrorCode.duplicate_sequence_number)


def judge(
    state: ProducerState | None,
    sequence: int,
    *,
    records: int = 1,
    epoch: int = 0,
    producer: int = 7,
    below: int = 0,
    outside: bool = False,
) -> Decision:
    return decide(
        state,
        producer_id=producer,
        epoch=epoch,
        base_sequence=sequence,
        record_count=records,
        unknown_producers_below=ProducerId(below),
        is_outside_transaction=outside,
    )


def producer(*batches: tuple[int, int, int], epoch: int = 0) -> ProducerState:
    """State with batches (first sequence, records, offset)."""
    producers: dict[ProducerId, ProducerState] = {}
    for sequence, records, offset in batches:
        advance(
            producers,
            producer_id=7,
            epoch=epoch,
            base_sequence=sequence,
            record_count=records,
            base_offset=offset,
            time_ms=Milliseconds(offset),
            is_run_kept=True,
        )
    return producers[ProducerId(7)]


@pytest.mark.parametrize(
    ("base", "count", "after"), [(0, 1, 1), (LAST_SEQUENCE, 1, 0), (LAST_SEQUENCE - 1, 3, 1), (5, 10, 15)]
)
def test_sequences_wrap_around_after_the_31st_bit(base: int, count: int, after: int) -> None:
    assert sequence_after(base, count) == after


class TestWithoutState:
    def test_the_first_sequence_is_0(self) -> None:
        assert judge(None, 0) == ACCEPT

    def test_s8_another_first_sequence_is_out_of_order(self) -> None:
        assert judge(None, 1) == OUT_OF_ORDER

    def test_s8_a_producer_whose_state_may_have_been_dropped_goes_on(self) -> None:
        assert judge(None, 12, producer=7, below=8) == ACCEPT
        assert judge(None, 12, producer=8, below=8) == OUT_OF_ORDER

    @pytest.mark.parametrize(("epoch", "sequence"), [(-1, 0), (0, -1)])
    def test_an_epoch_and_a_sequence_belong_to_a_producer(self, epoch: int, sequence: int) -> None:
        assert judge(None, sequence, epoch=epoch) == Reject(ErrorCode.invalid_record)


class TestInTheSameEpoch:
    def test_the_next_sequence_is_accepted(self) -> None:
        assert judge(producer((0, 10, 0)), 10) == ACCEPT

    def test_the_next_sequence_after_the_last_is_0(self) -> None:
        state = producer((0, LAST_SEQUENCE, 0), (LAST_SEQUENCE, 1, 100))
        assert judge(state, 0) == ACCEPT

    def test_a_batch_across_the_wrap_is_followed_by_its_remainder(self) -> None:
        state = producer((LAST_SEQUENCE - 1, 4, 50))
        assert judge(state, 2) == ACCEPT
        assert judge(state, LAST_SEQUENCE - 1, records=4) == Duplicate(Offset(50))

    def test_a_gap_is_out_of_order(self) -> None:
        assert judge(producer((0, 10, 0)), 11) == OUT_OF_ORDER

    def test_each_of_the_last_batches_is_a_duplicate_five_for_each_of_two_agents(self) -> None:
        state = producer(*[(n * 2, 2, 100 + n) for n in range(10)])
        for n in range(10):
            assert judge(state, n * 2, records=2) == Duplicate(Offset(100 + n))

    def test_a_repeat_that_is_no_longer_remembered_is_known_by_its_run(self) -> None:
        state = producer(*[(n * 2, 2, 100 + n) for n in range(12)])
        assert judge(state, 0, records=2) == judge(state, 2, records=2) == APPENDED_BEFORE
        assert judge(state, 4, records=2) == Duplicate(Offset(102))
        assert judge(state, 0, records=4) == APPENDED_BEFORE
        assert judge(state, 2, records=4) == OUT_OF_ORDER, "it reaches into a remembered batch of another length"

    def test_a_repeat_from_before_the_run_is_out_of_order(self) -> None:
        """The state began at 50 because an earlier one may have been dropped: what came before is unknown."""
        state = producer(*[(50 + n, 1, n) for n in range(12)])
        assert judge(state, 49) == judge(state, 40, records=15) == OUT_OF_ORDER
        assert judge(state, 50) == APPENDED_BEFORE

    def test_an_older_repeat_is_out_of_order_where_the_rules_keep_no_runs(self) -> None:
        producers: dict[ProducerId, ProducerState] = {}
        for n in range(12):
            advance(
                producers,
                producer_id=7,
                epoch=0,
                base_sequence=n,
                record_count=1,
                base_offset=n,
                time_ms=Milliseconds(n),
                is_run_kept=False,
            )
        assert judge(producers[ProducerId(7)], 0) == OUT_OF_ORDER

    def test_after_a_wrap_a_gap_is_no_repeat(self) -> None:
        """Sequence 10 was accepted before the wrap, and is 7 ahead now."""
        state = producer(*[(n, 1, n) for n in range(30)], (LAST_SEQUENCE - 1, 5, 50))
        assert state.sequence_next == 3
        assert judge(state, 10) == OUT_OF_ORDER
        for n in range(20):
            state.record(3 + n, 1, 60 + n, Milliseconds(0), is_run_kept=True)
        assert judge(state, 10) == APPENDED_BEFORE
        assert judge(state, LAST_SEQUENCE - 1, records=5) == OUT_OF_ORDER, "not surely old"

    def test_a_marker_that_brings_an_epoch_ends_the_run(self) -> None:
        producers = {ProducerId(7): producer(*[(n, 1, n) for n in range(12)])}
        mark(producers, producer_id=ProducerId(7), epoch=ProducerEpoch(1), time_ms=Milliseconds(9))
        state = producers[ProducerId(7)]
        assert state.run_first == NO_SEQUENCE
        state.record(0, 1, 90, Milliseconds(9), is_run_kept=True)
        assert state.run_first == 0

    def test_a_repeat_of_another_length_is_no_duplicate(self) -> None:
        assert judge(producer((0, 10, 0)), 0, records=9) == OUT_OF_ORDER


class TestInAnotherEpoch:
    def test_a_lower_epoch_is_fenced(self) -> None:
        assert judge(producer((0, 1, 0), epoch=3), 1, epoch=2) == Reject(ErrorCode.invalid_producer_epoch)

    def test_a_higher_epoch_starts_at_0(self) -> None:
        assert judge(producer((0, 1, 0)), 0, epoch=1) == ACCEPT
        assert judge(producer((0, 1, 0)), 1, epoch=1) == OUT_OF_ORDER

    def test_a_new_epoch_forgets_the_batches_of_the_old_one(self) -> None:
        producers = {ProducerId(7): producer((0, 1, 0))}
        advance(
            producers,
            producer_id=7,
            epoch=1,
            base_sequence=0,
            record_count=3,
            base_offset=9,
            time_ms=Milliseconds(5),
            is_run_kept=True,
        )
        state = producers[ProducerId(7)]
        assert state.epoch == ProducerEpoch(1)
        assert state.recent == [RememberedBatch(Sequence(0), Sequence(3), Offset(9))]
        assert state.sequence_next == 3


def marked(*batches: tuple[int, int, int], epoch: int) -> ProducerState:
    """State of epoch 0 with batches (first sequence, records, offset), after a marker with `epoch`, at time 500."""
    producers = {ProducerId(7): producer(*batches)} if batches else {}
    mark(producers, producer_id=ProducerId(7), epoch=ProducerEpoch(epoch), time_ms=Milliseconds(500))
    return producers[ProducerId(7)]


class TestAfterAMarker:
    def test_of_v1_the_sequence_goes_on(self) -> None:
        state = marked((0, 2, 0), epoch=0)
        assert judge(state, 2) == ACCEPT
        assert judge(state, 0, records=2) == Duplicate(Offset(0))
        assert state.last_active_ms == 500

    def test_of_v2_the_new_epoch_starts_at_0(self) -> None:
        state = marked((0, 2, 0), epoch=1)
        assert judge(state, 0, epoch=1) == ACCEPT
        assert judge(state, 2, epoch=1) == OUT_OF_ORDER
        assert state.last_active_ms == 500

    def test_a_late_batch_of_the_old_epoch_is_fenced(self) -> None:
        for state in (marked((0, 2, 0), epoch=1), marked(epoch=1)):
            assert judge(state, 2) == Reject(ErrorCode.invalid_producer_epoch)
            assert is_stale(state, 0)
            assert not is_stale(state, 1)

    def test_a_marker_never_lowers_the_epoch(self) -> None:
        producers = {ProducerId(7): producer((0, 2, 0), epoch=3)}
        mark(producers, producer_id=ProducerId(7), epoch=ProducerEpoch(2), time_ms=Milliseconds(500))
        assert producers[ProducerId(7)].epoch == 3

    def test_batches_of_the_new_epoch_are_remembered(self) -> None:
        producers = {ProducerId(7): marked((0, 2, 0), epoch=1)}
        advance(
            producers,
            producer_id=7,
            epoch=1,
            base_sequence=0,
            record_count=4,
            base_offset=3,
            time_ms=Milliseconds(600),
            is_run_kept=True,
        )
        assert judge(producers[ProducerId(7)], 4, epoch=1) == ACCEPT
        assert judge(producers[ProducerId(7)], 0, epoch=1, records=4) == Duplicate(Offset(3))

    def test_s8_a_producer_whose_batches_may_have_been_forgotten_goes_on(self) -> None:
        assert judge(marked(epoch=0), 12, below=8) == ACCEPT
        assert judge(marked(epoch=0), 12) == OUT_OF_ORDER
        assert judge(marked((0, 2, 0), epoch=0), 12, below=8) == OUT_OF_ORDER

    def test_a_producer_that_is_not_known_is_not_stale(self) -> None:
        assert not is_stale(None, 0)


class TestOutsideATransaction:
    def test_a_batch_that_is_not_transactional_waits_for_the_end_of_the_transaction(self) -> None:
        assert judge(producer((0, 1, 0)), 1, outside=True) == Reject(ErrorCode.invalid_txn_state)

    def test_what_is_wrong_with_it_otherwise_comes_first(self) -> None:
        state = producer((0, 1, 0), epoch=1)
        assert judge(state, 1, epoch=0, outside=True) == Reject(ErrorCode.invalid_producer_epoch)
        assert judge(state, 2, epoch=1, outside=True) == OUT_OF_ORDER
        assert judge(state, 0, epoch=1, outside=True) == Duplicate(Offset(0))


def test_producers_with_an_open_transaction_are_not_forgotten() -> None:
    producers = {ProducerId(n): producer((0, 1, 1)) for n in range(2)}
    assert expire(producers, Milliseconds(10), Milliseconds(20), kept={ProducerId(1): Offset(0)})
    assert list(producers) == [1]
    assert not any_idle(producers, Milliseconds(10), kept={ProducerId(1): Offset(0)})
    assert any_idle(producers, Milliseconds(10))


def test_producers_idle_since_before_the_cutoff_are_forgotten() -> None:
    producers = {ProducerId(n): producer((0, 1, 5 + 5 * n)) for n in range(3)}
    assert any_idle(producers, Milliseconds(10))
    assert expire(producers, Milliseconds(10), Milliseconds(20))
    assert sorted(producers) == [1, 2]
    assert not any_idle(producers, Milliseconds(10))
    assert not expire(producers, Milliseconds(10), Milliseconds(20))


def test_what_is_not_told_is_the_same_everywhere() -> None:
    assert NO_ACTIVITY_TIME == NO_TIME


def test_s2_a_producer_that_was_active_while_nobody_told_the_time_is_as_old_as_the_expiry() -> None:
    producers = {ProducerId(0): producer((0, 1, NO_ACTIVITY_TIME))}
    assert any_idle(producers, Milliseconds(10))
    assert not expire(producers, Milliseconds(10), NO_ACTIVITY_TIME)
    assert any_idle(producers, Milliseconds(10))
    assert not expire(producers, Milliseconds(10), Milliseconds(20))
    assert producers[ProducerId(0)].last_active_ms == 20
    assert not any_idle(producers, Milliseconds(10))
