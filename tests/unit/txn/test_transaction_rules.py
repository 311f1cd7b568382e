"""The rules of KIP-98, KIP-360 and KIP-890 on the coordinator's side, one sentence a test.

The whole table is in `test_transitions`; what Kafka answered is in `test_recorded_transactions`.
"""

from itertools import product

import pytest

from protocol.errors import ErrorCode
from protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId
from tests.support.transactions.transition_pairs import EPOCH, FOREIGN, FRESH, LAST, PREVIOUS, PRODUCER, V1, V2, event
from txn.transaction import (
    AddToTransactionEvent,
    Decision,
    EndTransactionEvent,
    InitProducerId,
    TransactionMetadata,
    TransactionStatus,
)
from txn.transition_table import COLUMNS, EventKind
from txn.transitions import decide

EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT = COLUMNS
SETTLED = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)


def stored(
    status: TransactionStatus,
    *,
    epoch: int = EPOCH,
    last_epoch: int = EPOCH - 1,
    previous: ProducerId = NO_PRODUCER_ID,
) -> TransactionMetadata:
    return TransactionMetadata(
        producer_id=PRODUCER,
        epoch=ProducerEpoch(epoch),
        timeout_ms=1,
        status=status,
        last_epoch=ProducerEpoch(last_epoch),
        previous_producer_id=previous,
    )


def followed(decision: Decision) -> TransactionMetadata:
    assert decision.following is not None
    return decision.following


def initialised(current: TransactionMetadata, producer_id: int = -1, epoch: int = -1) -> Decision:
    asked = InitProducerId(timeout_ms=1, producer_id=ProducerId(producer_id), epoch=ProducerEpoch(epoch))
    return decide(current, asked, FRESH)


def ended(current: TransactionMetadata, *, version: int, is_commit: bool, behind: int = 0) -> Decision:
    """EndTxn with the current epoch, or one that is `behind`."""
    kind = {
        (1, True): EventKind.COMMIT_V1,
        (1, False): EventKind.ABORT_V1,
        (2, True): EventKind.COMMIT_V2,
        (2, False): EventKind.ABORT_V2,
    }
    return decide(
        current, event(kind[version, is_commit], current.producer_id, ProducerEpoch(current.epoch - behind)), FRESH
    )


def test_valid_previous_states() -> None:
    """Of Kafka's table, without the states that do not last here: PrepareCommit, PrepareAbort, PrepareEpochFence."""
    previous: dict[TransactionStatus, set[TransactionStatus]] = {status: set() for status in TransactionStatus}
    for status, kind, is_current in product(TransactionStatus, EventKind, (True, False)):
        sent = (PRODUCER, EPOCH) if is_current else (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        decision = decide(stored(status), event(kind, *sent), FRESH)
        if decision.following is not None:
            previous[decision.following.status].add(status)
    assert previous[ONGOING] == {EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}
    assert previous[COMPLETE_COMMIT] == {ONGOING}
    assert previous[COMPLETE_ABORT] == {ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}
    assert previous[EMPTY] == {EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT, ONGOING}  # the last: a fence and its repeat


class TestInitProducerId:
    def test_a_given_producer_id_is_the_stored_one(self) -> None:
        assert initialised(stored(EMPTY), FOREIGN, EPOCH).error_code is ErrorCode.producer_fenced

    def test_or_the_previous_one_with_its_last_epoch(self) -> None:
        current = stored(EMPTY, epoch=0, last_epoch=LAST, previous=PREVIOUS)
        assert not initialised(current, PREVIOUS, LAST).error_code
        assert initialised(current, PREVIOUS, LAST - 1).error_code is ErrorCode.producer_fenced

    def test_or_any_where_none_is_stored(self) -> None:
        asked = InitProducerId(timeout_ms=1, producer_id=FOREIGN, epoch=EPOCH)
        assert (decide(None, asked, FRESH).producer_id, decide(None, asked, FRESH).epoch) == (FRESH, 0)

    @pytest.mark.parametrize("status", SETTLED)
    def test_no_expected_epoch_bumps_and_forgets(self, status: TransactionStatus) -> None:
        following = followed(initialised(stored(status)))
        assert (following.epoch, following.last_epoch, following.status) == (EPOCH + 1, NO_PRODUCER_EPOCH, EMPTY)

    @pytest.mark.parametrize("status", SETTLED)
    def test_the_expected_epoch_that_is_stored_bumps_and_remembers(self, status: TransactionStatus) -> None:
        following = followed(initialised(stored(status), PRODUCER, EPOCH))
        assert (following.epoch, following.last_epoch, following.status) == (EPOCH + 1, EPOCH, EMPTY)

    @pytest.mark.parametrize("status", SETTLED)
    def test_the_expected_epoch_that_was_last_is_a_retry_without_bump(self, status: TransactionStatus) -> None:
        decision = initialised(stored(status), PRODUCER, EPOCH - 1)
        assert (decision.producer_id, decision.epoch) == (PRODUCER, EPOCH)
        assert followed(decision).last_epoch == EPOCH - 1

    @pytest.mark.parametrize("status", TransactionStatus)
    @pytest.mark.parametrize("epoch", [EPOCH - 2, EPOCH + 1])
    def test_any_other_expected_epoch_is_fenced(self, status: TransactionStatus, epoch: int) -> None:
        assert initialised(stored(status), PRODUCER, epoch) == Decision(error_code=ErrorCode.producer_fenced)

    @pytest.mark.parametrize("status", SETTLED)
    def test_an_exhausted_epoch_takes_a_new_producer_id(self, status: TransactionStatus) -> None:
        for expected, last in ((-1, NO_PRODUCER_EPOCH), (LAST, LAST)):
            following = followed(initialised(stored(status, epoch=LAST), PRODUCER if expected > 0 else -1, expected))
            assert (following.producer_id, following.epoch, following.last_epoch) == (FRESH, 0, last)

    def test_an_open_transaction_is_aborted_by_one_bump_and_the_answer_is_another(self) -> None:
        decision = initialised(stored(ONGOING))
        assert decision.ending is not None
        assert (decision.ending.is_commit, decision.ending.epoch, decision.epoch) == (False, EPOCH + 1, EPOCH + 2)


class TestAddToTransaction:
    @pytest.mark.parametrize("version", [V1, V2])
    def test_the_order_of_checks(self, version: int) -> None:
        def added(current: TransactionMetadata | None, producer_id: ProducerId, epoch: int) -> ErrorCode:
            asked = AddToTransactionEvent(
                producer_id=producer_id, epoch=ProducerEpoch(epoch), version=V1 if version == V1 else V2
            )
            return decide(current, asked, FRESH).error_code

        assert added(None, PRODUCER, EPOCH) is ErrorCode.invalid_producer_id_mapping
        assert added(stored(EMPTY), FOREIGN, EPOCH + 1) is ErrorCode.invalid_producer_id_mapping
        assert added(stored(EMPTY), PRODUCER, EPOCH + 1) is ErrorCode.producer_fenced
        assert added(stored(EMPTY), PRODUCER, EPOCH - 1) is ErrorCode.producer_fenced
        assert added(stored(ONGOING), PRODUCER, EPOCH) is ErrorCode.none
        assert added(stored(COMPLETE_ABORT), PRODUCER, EPOCH) is ErrorCode.none

    @pytest.mark.parametrize("status", TransactionStatus)
    def test_what_was_not_added_is_abortable(self, status: TransactionStatus) -> None:
        asked = event(EventKind.VERIFY_MISSING, PRODUCER, EPOCH)
        assert decide(stored(status), asked, FRESH).error_code is ErrorCode.transaction_abortable


class TestEndTxnV2:
    FENCED = ErrorCode.producer_fenced
    ITS = ErrorCode.invalid_txn_state
    RETRY = Decision(producer_id=PRODUCER, epoch=EPOCH)

    def test_empty(self) -> None:
        self._row(EMPTY, Decision(error_code=self.FENCED), Decision(error_code=self.FENCED))

    def test_complete_abort(self) -> None:
        """Commit of the epoch before: KAFKA-20785."""
        self._row(COMPLETE_ABORT, self.RETRY, Decision(error_code=self.FENCED))

    def test_complete_commit(self) -> None:
        self._row(COMPLETE_COMMIT, Decision(error_code=self.ITS), self.RETRY)

    def _row(self, status: TransactionStatus, abort_retry: Decision, commit_retry: Decision) -> None:
        """Of the current epoch, in each row alike: an abort bumps the epoch, a commit is an invalid state."""
        current = stored(status)
        assert ended(current, version=2, is_commit=False, behind=1) == abort_retry
        assert ended(current, version=2, is_commit=True, behind=1) == commit_retry
        bumped = ended(current, version=2, is_commit=False)
        assert (bumped.epoch, followed(bumped).last_epoch, bumped.ending) == (EPOCH + 1, EPOCH, None)
        assert ended(current, version=2, is_commit=True) == Decision(error_code=self.ITS)

    @pytest.mark.parametrize("is_commit", [True, False])
    def test_ongoing(self, *, is_commit: bool) -> None:
        decision = ended(stored(ONGOING), version=2, is_commit=is_commit)
        assert decision.ending is not None
        assert (decision.ending.is_commit, decision.ending.epoch) == (is_commit, EPOCH + 1)
        assert (decision.producer_id, decision.epoch, followed(decision).last_epoch) == (PRODUCER, EPOCH + 1, EPOCH)
        assert followed(decision).status is (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT)
        assert ended(stored(ONGOING), version=2, is_commit=is_commit, behind=1).error_code is self.FENCED

    def test_a_foreign_producer_id(self) -> None:
        for status, is_commit in product(TransactionStatus, (True, False)):
            asked = EndTransactionEvent(producer_id=FOREIGN, epoch=EPOCH, version=V2, is_commit=is_commit)
            assert decide(stored(status), asked, FRESH).error_code is ErrorCode.invalid_producer_id_mapping

    @pytest.mark.parametrize("is_commit", [True, False])
    def test_retry_on_overflow(self, *, is_commit: bool) -> None:
        status = COMPLETE_COMMIT if is_commit else COMPLETE_ABORT
        current = stored(status, epoch=0, last_epoch=LAST, previous=PREVIOUS)
        asked = EndTransactionEvent(producer_id=PREVIOUS, epoch=LAST, version=V2, is_commit=is_commit)
        assert decide(current, asked, FRESH) == Decision(producer_id=PRODUCER, epoch=ProducerEpoch(0))


class TestEndTxnV1:
    @pytest.mark.parametrize(
        ("status", "commit", "abort"),
        [
            (EMPTY, ErrorCode.invalid_txn_state, ErrorCode.invalid_txn_state),
            (COMPLETE_COMMIT, ErrorCode.none, ErrorCode.invalid_txn_state),
            (COMPLETE_ABORT, ErrorCode.invalid_txn_state, ErrorCode.none),
        ],
    )
    def test_a_retry_is_reported_by_the_state(
        self, status: TransactionStatus, commit: ErrorCode, abort: ErrorCode
    ) -> None:
        assert ended(stored(status), version=1, is_commit=True) == Decision(error_code=commit)
        assert ended(stored(status), version=1, is_commit=False) == Decision(error_code=abort)

    @pytest.mark.parametrize("status", TransactionStatus)
    @pytest.mark.parametrize("behind", [1, 2, -1])
    def test_the_epoch_is_the_current_one(self, status: TransactionStatus, behind: int) -> None:
        for is_commit in (True, False):
            decision = ended(stored(status), version=1, is_commit=is_commit, behind=behind)
            assert decision.error_code is ErrorCode.producer_fenced

    @pytest.mark.parametrize("is_commit", [True, False])
    def test_the_epoch_stays_and_is_not_answered(self, *, is_commit: bool) -> None:
        decision = ended(stored(ONGOING), version=1, is_commit=is_commit)
        assert decision.ending is not None
        assert (decision.ending.epoch, followed(decision).epoch) == (EPOCH, EPOCH)
        assert (decision.producer_id, decision.epoch) == (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class TestTimeOuts:
    def test_the_epoch_moves_on_and_the_producer_can_learn_of_it(self) -> None:
        decision = decide(stored(ONGOING), event(EventKind.EXPIRE, PRODUCER, EPOCH), FRESH)
        assert decision.error_code  # of another transaction of the same epoch
        seen = TransactionMetadata(producer_id=PRODUCER, epoch=EPOCH, timeout_ms=1, status=ONGOING, serial=3)
        following = followed(decide(seen, event(EventKind.EXPIRE, PRODUCER, EPOCH), FRESH))
        assert (following.status, following.epoch, following.last_epoch) == (COMPLETE_ABORT, EPOCH + 1, EPOCH)
        assert initialised(following, PRODUCER, EPOCH).epoch == EPOCH + 1
        assert ended(following, version=2, is_commit=False, behind=1).epoch == EPOCH + 1

    @pytest.mark.parametrize("status", SETTLED)
    def test_what_ended_does_not_expire(self, status: TransactionStatus) -> None:
        seen = TransactionMetadata(producer_id=PRODUCER, epoch=EPOCH, timeout_ms=1, status=status, serial=3)
        assert decide(seen, event(EventKind.EXPIRE, PRODUCER, EPOCH), FRESH) == Decision(
            error_code=ErrorCode.invalid_txn_state
        )
