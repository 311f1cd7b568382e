"""The table of transactions: every pair of status and event, and what each step does."""

from dataclasses import replace
from itertools import product

import pytest

from protocol.errors import ErrorCode
from protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId
from tests.support.transactions.transition_pairs import (
    EPOCH,
    FRESH,
    LAST,
    PREVIOUS,
    PRODUCER,
    SERIAL,
    TIMEOUT_MS,
    V1,
    V2,
    described,
    event,
    identity,
    remembered,
)
from txn.transaction import (
    AddToTransactionEvent,
    Decision,
    Ending,
    EndTransactionEvent,
    ExpireTransactionEvent,
    ForceTerminate,
    InitProducerId,
    TransactionMetadata,
    TransactionStatus,
)
from txn.transition_table import COLUMNS, TABLE, UNKNOWN_ID, EventKind, Sender
from txn.transitions import decide, kind_of, sender_of

EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT = COLUMNS

FENCED, STATE, MAPPING = "producer_fenced", "invalid_txn_state", "invalid_producer_id_mapping"
ABORTABLE, OLD = "transaction_abortable", "invalid_producer_epoch"
NEXT, FENCED_NEXT = "Empty+1 told", "abort@+1 Empty+2 told"

EXPECTED: dict[EventKind, dict[Sender, list[str]]] = {
    # sender              Empty, Ongoing, CompleteCommit, CompleteAbort
    EventKind.INIT: {
        Sender.ANYONE: [NEXT, FENCED_NEXT, NEXT, NEXT],
        Sender.CURRENT: [NEXT, "abort@+1 Empty+1 told", NEXT, NEXT],
        Sender.BEFORE: ["Empty+0 told", FENCED, "Empty+0 told", "Empty+0 told"],
        Sender.ROTATED: ["Empty+0 told", FENCED, "Empty+0 told", "Empty+0 told"],
        Sender.OUTDATED: [FENCED] * 4,
        Sender.FOREIGN: [FENCED] * 4,
    },
    EventKind.ADD: {
        Sender.CURRENT: ["Ongoing+0", "nothing", "Ongoing+0", "Ongoing+0"],
        Sender.BEFORE: [FENCED] * 4,
        Sender.ROTATED: [MAPPING] * 4,
        Sender.OUTDATED: [FENCED] * 4,
        Sender.FOREIGN: [MAPPING] * 4,
    },
    EventKind.VERIFY_ADDED: {
        Sender.CURRENT: [ABORTABLE, "nothing", ABORTABLE, ABORTABLE],
        Sender.BEFORE: [FENCED] * 4,
        Sender.ROTATED: [MAPPING] * 4,
        Sender.OUTDATED: [FENCED] * 4,
        Sender.FOREIGN: [MAPPING] * 4,
    },
    EventKind.VERIFY_MISSING: {
        Sender.CURRENT: [ABORTABLE] * 4,
        Sender.BEFORE: [FENCED] * 4,
        Sender.ROTATED: [MAPPING] * 4,
        Sender.OUTDATED: [FENCED] * 4,
        Sender.FOREIGN: [MAPPING] * 4,
    },
    EventKind.COMMIT_V1: {
        Sender.CURRENT: [STATE, "commit@+0 CompleteCommit+0", "nothing", STATE],
        Sender.BEFORE: [FENCED] * 4,
        Sender.ROTATED: [MAPPING] * 4,
        Sender.OUTDATED: [FENCED] * 4,
        Sender.FOREIGN: [MAPPING] * 4,
    },
    EventKind.ABORT_V1: {
        Sender.CURRENT: [STATE, "abort@+0 CompleteAbort+0", STATE, "nothing"],
        Sender.BEFORE: [FENCED] * 4,
        Sender.ROTATED: [MAPPING] * 4,
        Sender.OUTDATED: [FENCED] * 4,
        Sender.FOREIGN: [MAPPING] * 4,
    },
    EventKind.COMMIT_V2: {
        Sender.CURRENT: [STATE, "commit@+1 CompleteCommit+1 told", STATE, STATE],
        Sender.BEFORE: [FENCED, FENCED, "told", FENCED],
        Sender.ROTATED: [FENCED, FENCED, "told", FENCED],
        Sender.OUTDATED: [FENCED] * 4,
        Sender.FOREIGN: [MAPPING] * 4,
    },
    EventKind.ABORT_V2: {
        Sender.CURRENT: [
            "CompleteAbort+1 told",
            "abort@+1 CompleteAbort+1 told",
            "CompleteAbort+1 told",
            "CompleteAbort+1 told",
        ],
        Sender.BEFORE: [FENCED, FENCED, STATE, "told"],
        Sender.ROTATED: [FENCED, FENCED, STATE, "told"],
        Sender.OUTDATED: [FENCED] * 4,
        Sender.FOREIGN: [MAPPING] * 4,
    },
    EventKind.EXPIRE: {
        Sender.CURRENT: [STATE, "abort@+1 CompleteAbort+1", STATE, STATE],
        Sender.BEFORE: [FENCED] * 4,
        Sender.ROTATED: [MAPPING] * 4,
        Sender.OUTDATED: [FENCED] * 4,
        Sender.FOREIGN: [MAPPING] * 4,
    },
    EventKind.TERMINATE: {
        Sender.CURRENT: ["nothing", "abort@+1 CompleteAbort+1", "nothing", "nothing"],
        Sender.BEFORE: [OLD] * 4,
        Sender.ROTATED: [OLD] * 4,
        Sender.OUTDATED: [OLD] * 4,
        Sender.FOREIGN: ["nothing"] * 4,
    },
    EventKind.TERMINATE_COMMIT: {
        Sender.CURRENT: [STATE] * 4,
        Sender.BEFORE: [STATE] * 4,
        Sender.ROTATED: [STATE] * 4,
        Sender.OUTDATED: [STATE] * 4,
        Sender.FOREIGN: [STATE] * 4,
    },
}

PAIRS = [
    (kind, sender, status, said)
    for kind, rows in EXPECTED.items()
    for sender, row in rows.items()
    for status, said in zip(COLUMNS, row, strict=True)
]


class TestTheTable:
    def test_has_a_cell_for_every_pair(self) -> None:
        senders = set(Sender) - {Sender.ANYONE}
        assert tuple(TransactionStatus) == COLUMNS
        assert {kind: set(rows) for kind, rows in TABLE.items()} == {
            kind: senders | {Sender.ANYONE} if kind is EventKind.INIT else senders for kind in EventKind
        }
        assert set(UNKNOWN_ID) == set(EventKind)
        assert len(PAIRS) == (len(EventKind) * len(senders) + 1) * len(TransactionStatus)

    def test_each_pair(self) -> None:
        for kind, sender, status, said in PAIRS:
            case = f"{kind} of {sender} in {status}"
            current = remembered(status, sender)
            asked = event(kind, *identity(current, sender))
            assert kind_of(asked) is kind, case
            assert sender_of(current, asked) is sender, case
            assert described(current, decide(current, asked, FRESH)) == said, case

    @pytest.mark.parametrize("kind", EventKind)
    def test_an_id_that_is_not_known_is_only_initialised(self, kind: EventKind) -> None:
        decision = decide(None, event(kind, PRODUCER, EPOCH), FRESH)
        if kind is EventKind.INIT:
            first = TransactionMetadata(producer_id=FRESH, epoch=ProducerEpoch(0), timeout_ms=TIMEOUT_MS + 1)
            assert decision == Decision(
                producer_id=FRESH, epoch=ProducerEpoch(0), following=first, is_fresh_id_used=True
            )
        elif kind is EventKind.TERMINATE:
            assert decision == Decision()
        elif kind is EventKind.TERMINATE_COMMIT:
            assert decision == Decision(error_code=ErrorCode.invalid_txn_state)
        else:
            assert decision == Decision(error_code=ErrorCode.invalid_producer_id_mapping)

    def test_no_answer_asks_to_wait_for_another_transaction(self) -> None:
        cells = [cell for rows in TABLE.values() for row in rows.values() for cell in row]
        assert ErrorCode.concurrent_transactions not in cells


class TestSenders:
    @pytest.mark.parametrize(("producer_id", "epoch"), [(-1, -1), (-1, EPOCH - 1), (PRODUCER, -1)])
    @pytest.mark.parametrize("last_epoch", [-1, EPOCH - 1])
    def test_who_has_no_id_or_no_epoch_is_nobody(self, producer_id: int, epoch: int, last_epoch: int) -> None:
        current = replace(remembered(COMPLETE_COMMIT, Sender.BEFORE), last_epoch=ProducerEpoch(last_epoch))
        asked = event(EventKind.COMMIT_V2, ProducerId(producer_id), ProducerEpoch(epoch))
        assert sender_of(current, asked) in (Sender.OUTDATED, Sender.FOREIGN)
        assert decide(current, asked, FRESH).error_code

    def test_the_last_epoch_belongs_to_the_producer_id_that_had_it(self) -> None:
        current = remembered(EMPTY, Sender.ROTATED)
        asked = InitProducerId(timeout_ms=1, producer_id=PRODUCER, epoch=LAST)
        assert sender_of(current, asked) is Sender.OUTDATED
        foreign = InitProducerId(timeout_ms=1, producer_id=PREVIOUS, epoch=ProducerEpoch(0))
        assert sender_of(current, foreign) is Sender.FOREIGN

    def test_a_time_out_is_of_one_transaction(self) -> None:
        current = remembered(ONGOING, Sender.CURRENT)
        seen = ExpireTransactionEvent(producer_id=PRODUCER, epoch=EPOCH, serial=SERIAL - 1)
        assert sender_of(current, seen) is Sender.OUTDATED
        assert decide(current, seen, FRESH) == Decision(error_code=ErrorCode.producer_fenced)


class TestSteps:
    def test_a_transaction_begins(self) -> None:
        current = remembered(COMPLETE_COMMIT, Sender.BEFORE)
        decision = decide(current, AddToTransactionEvent(producer_id=PRODUCER, epoch=EPOCH, version=V1), FRESH)
        assert decision.is_beginning
        assert decision.following == replace(
            current, status=ONGOING, version=V1, serial=SERIAL + 1, last_epoch=NO_PRODUCER_EPOCH
        )
        assert decision.following is not None
        assert decision.following.is_ongoing

    def test_who_began_a_transaction_has_learnt_of_its_producer_id(self) -> None:
        current = remembered(COMPLETE_COMMIT, Sender.ROTATED)
        decision = decide(
            current, AddToTransactionEvent(producer_id=PRODUCER, epoch=ProducerEpoch(0), version=V2), FRESH
        )
        assert decision.following is not None
        assert decision.following.previous_producer_id == NO_PRODUCER_ID

    def test_another_instance_forgets_the_epoch_before(self) -> None:
        decision = decide(remembered(EMPTY, Sender.CURRENT), InitProducerId(timeout_ms=9), FRESH)
        assert decision.following is not None
        assert (decision.following.last_epoch, decision.following.timeout_ms) == (NO_PRODUCER_EPOCH, 9)

    def test_the_same_instance_remembers_it(self) -> None:
        asked = InitProducerId(timeout_ms=9, producer_id=PRODUCER, epoch=EPOCH)
        decision = decide(remembered(EMPTY, Sender.CURRENT), asked, FRESH)
        assert decision.following is not None
        assert (decision.following.last_epoch, decision.following.timeout_ms) == (EPOCH, 9)

    def test_a_decision_that_ends_nothing_begins_nothing(self) -> None:
        decision = decide(remembered(EMPTY, Sender.CURRENT), InitProducerId(timeout_ms=9), FRESH)
        assert not decision.is_beginning
        assert not Decision().is_beginning

    def test_s15_a_tool_aborts_the_transaction_and_fences_its_producer(self) -> None:
        current = remembered(ONGOING, Sender.CURRENT)
        decision = decide(current, ForceTerminate(producer_id=PRODUCER, epoch=EPOCH, is_commit=False), FRESH)
        assert decision.ending == Ending(is_commit=False, producer_id=PRODUCER, epoch=ProducerEpoch(EPOCH + 1))
        after = decision.following
        assert after is not None
        late = AddToTransactionEvent(producer_id=PRODUCER, epoch=EPOCH, version=V2)
        assert decide(after, late, FRESH) == Decision(error_code=ErrorCode.producer_fenced)

    def test_s15_a_tool_does_not_commit(self) -> None:
        for status in TransactionStatus:
            current = remembered(status, Sender.CURRENT)
            asked = ForceTerminate(producer_id=PRODUCER, epoch=EPOCH, is_commit=True)
            assert decide(current, asked, FRESH) == Decision(error_code=ErrorCode.invalid_txn_state)


def exhausted(status: TransactionStatus = ONGOING, *, epoch: int = LAST) -> TransactionMetadata:
    """Of a producer in its last epoch, or near it."""
    return TransactionMetadata(
        producer_id=PRODUCER, epoch=ProducerEpoch(epoch), timeout_ms=TIMEOUT_MS, status=status, serial=SERIAL
    )


class TestTheLastEpoch:
    """What Apache Kafka 4.3.1 answers at epoch 32766, where nothing else is said (KAFKA-18660, KAFKA-20090)."""

    def test_another_instance_gets_a_new_producer_id(self) -> None:
        for status in (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT):
            decision = decide(exhausted(status), InitProducerId(timeout_ms=1), FRESH)
            assert (decision.producer_id, decision.epoch, decision.is_fresh_id_used) == (FRESH, 0, True)

    def test_the_same_instance_gets_a_new_producer_id_however_often_it_asks(self) -> None:
        asked = InitProducerId(timeout_ms=1, producer_id=PRODUCER, epoch=LAST)
        current = exhausted(EMPTY)
        for is_first in (True, False, False):
            decision = decide(current, asked, FRESH)
            assert (decision.producer_id, decision.epoch) == (FRESH, 0)
            assert decision.is_fresh_id_used or not is_first
            assert decision.following is not None
            current = decision.following
        assert (current.last_epoch, current.previous_producer_id) == (LAST, PRODUCER)

    @pytest.mark.parametrize("is_commit", [True, False])
    def test_endtxn_of_v2_ends_with_a_marker_of_epoch_32767_and_answers_a_new_producer_id(
        self, *, is_commit: bool
    ) -> None:
        end = EndTransactionEvent(producer_id=PRODUCER, epoch=LAST, version=V2, is_commit=is_commit)
        decision = decide(exhausted(), end, FRESH)
        assert decision.ending == Ending(is_commit=is_commit, producer_id=PRODUCER, epoch=ProducerEpoch(32767))
        assert (decision.producer_id, decision.epoch, decision.is_fresh_id_used) == (FRESH, 0, True)
        after = decision.following
        assert after is not None
        repeat = decide(after, end, ProducerId(100))
        assert repeat == Decision(producer_id=FRESH, epoch=ProducerEpoch(0))
        other = decide(after, replace(end, is_commit=not is_commit), ProducerId(100))
        assert other.error_code == (ErrorCode.invalid_txn_state if is_commit else ErrorCode.producer_fenced)

    def test_a_late_endtxn_is_of_a_foreign_id_once_the_new_one_began_a_transaction(self) -> None:
        end = EndTransactionEvent(producer_id=PRODUCER, epoch=LAST, version=V2, is_commit=True)
        after = decide(exhausted(), end, FRESH).following
        assert after is not None
        begun = decide(
            after, AddToTransactionEvent(producer_id=FRESH, epoch=ProducerEpoch(0), version=V2), FRESH
        ).following
        for version, is_commit in product((V1, V2), (True, False)):
            late = replace(end, version=version, is_commit=is_commit)
            assert decide(begun, late, FRESH) == Decision(error_code=ErrorCode.invalid_producer_id_mapping)

    def test_an_abort_of_nothing_gets_a_new_producer_id(self) -> None:
        decision = decide(exhausted(EMPTY), event(EventKind.ABORT_V2, PRODUCER, LAST), FRESH)
        assert decision.ending is None
        assert (decision.producer_id, decision.epoch) == (FRESH, 0)

    def test_endtxn_of_v1_keeps_it(self) -> None:
        decision = decide(exhausted(), event(EventKind.COMMIT_V1, PRODUCER, LAST), FRESH)
        assert decision.ending == Ending(is_commit=True, producer_id=PRODUCER, epoch=LAST)
        assert decision.following == exhausted(COMPLETE_COMMIT)
        assert not decision.is_fresh_id_used

    @pytest.mark.parametrize(
        ("epoch", "producer_id", "is_same", "answered"),
        [
            (32764, -1, False, (PRODUCER, 32766)),
            (32765, -1, False, (FRESH, 0)),
            (32766, -1, False, (FRESH, 1)),
            (32765, PRODUCER, True, (PRODUCER, 32766)),
            (32766, PRODUCER, True, (FRESH, 0)),
        ],
    )
    def test_initialising_fences_with_one_epoch_and_gives_the_next(
        self, epoch: int, producer_id: int, answered: tuple[int, int], *, is_same: bool
    ) -> None:
        asked = InitProducerId(
            timeout_ms=1, producer_id=ProducerId(producer_id), epoch=ProducerEpoch(epoch if is_same else -1)
        )
        decision = decide(exhausted(epoch=epoch), asked, FRESH)
        assert decision.ending == Ending(is_commit=False, producer_id=PRODUCER, epoch=ProducerEpoch(epoch + 1))
        assert (decision.producer_id, decision.epoch) == answered
        assert decision.is_fresh_id_used == (answered[0] == FRESH)
        assert decision.following is not None
        assert decision.following.last_epoch == (epoch if is_same else NO_PRODUCER_EPOCH)

    def test_a_time_out_takes_a_new_producer_id_and_the_producer_recovers(self) -> None:
        expired = decide(exhausted(), event(EventKind.EXPIRE, PRODUCER, LAST), FRESH)
        assert expired.ending == Ending(is_commit=False, producer_id=PRODUCER, epoch=ProducerEpoch(32767))
        assert (expired.producer_id, expired.is_fresh_id_used) == (NO_PRODUCER_ID, True)
        after = expired.following
        assert after is not None
        told = Decision(producer_id=FRESH, epoch=ProducerEpoch(0))
        assert decide(after, event(EventKind.ABORT_V2, PRODUCER, LAST), ProducerId(100)) == told
        assert decide(after, event(EventKind.ABORT_V1, PRODUCER, LAST), ProducerId(100)).error_code == (
            ErrorCode.invalid_producer_id_mapping
        )
        again = decide(after, event(EventKind.INIT, PRODUCER, LAST), ProducerId(100))
        assert (again.producer_id, again.epoch, again.is_fresh_id_used) == (FRESH, 0, False)

    def test_a_repeat_that_finds_the_last_epoch_is_answered(self) -> None:
        """Kafka answers UNKNOWN_SERVER_ERROR."""
        current = replace(exhausted(EMPTY), last_epoch=ProducerEpoch(32765))
        again = decide(current, event(EventKind.INIT, PRODUCER, ProducerEpoch(32765)), FRESH)
        assert (again.producer_id, again.epoch, again.is_fresh_id_used) == (PRODUCER, LAST, False)
