"""What holds of transactions whatever is asked, in whatever order, by whomever."""

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ErrorCode
from protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Milliseconds, Offset, ProducerEpoch, ProducerId
from tests.support.transactions.transition_pairs import TIMEOUT_MS
from txn.isolation import AbortedRange, PartitionTransactions
from txn.producer_state import ACCEPT, ProducerState, advance, decide, mark
from txn.transaction import (
    EPOCH_EXHAUSTED,
    AddToTransactionEvent,
    Decision,
    EndTransactionEvent,
    Event,
    ExpireTransactionEvent,
    ForceTerminate,
    InitProducerId,
    TransactionMetadata,
    TransactionStatus,
    TransactionVersion,
    VerifyInTransaction,
)
from txn.transition_table import Sender
from txn.transitions import decide as decide_transaction
from txn.transitions import sender_of

Identity = tuple[ProducerId, ProducerEpoch]
NOBODY: Identity = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
KNOWN = (Sender.CURRENT, Sender.BEFORE, Sender.ROTATED)


@dataclass
class Coordinator:
    """One transactional id, everything that was ever answered, and what must hold of it."""

    metadata: TransactionMetadata | None = None
    fresh: int = 100
    identities: list[Identity] = field(default_factory=list)
    """All that ever were current, in order."""
    outdated: set[Identity] = field(default_factory=set)
    """Those of them that were seen to be neither current nor the one before."""
    ended: list[int] = field(default_factory=list)
    """Serials of the transactions that ended."""
    markers: list[Identity] = field(default_factory=list)

    def handle(self, event: Event) -> Decision:
        current, fresh = self.metadata, ProducerId(self.fresh)
        decision = decide_transaction(current, event, fresh)
        assert decision == decide_transaction(current, event, fresh)
        if decision.error_code:
            assert decision == Decision(error_code=decision.error_code)
        if current is not None:
            self._check(current, event, decision)
        if decision.is_fresh_id_used:
            self.fresh += 1
        if decision.following is not None:
            assert (decision.following.producer_id == fresh) == decision.is_fresh_id_used
            self.metadata = decision.following
        self._look()
        return decision

    def _check(self, current: TransactionMetadata, event: Event, decision: Decision) -> None:
        sender = sender_of(current, event)
        if sender not in (Sender.ANYONE, Sender.CURRENT):
            assert decision.ending is None, "only the current producer, or another instance, ends a transaction"
            if decision.following is not None:
                assert decision.following.status is TransactionStatus.EMPTY
                assert (decision.following.producer_id, decision.following.epoch) == (
                    current.producer_id,
                    current.epoch,
                )
        if (event.producer_id, event.epoch) in self.outdated and not isinstance(event, ForceTerminate):
            assert decision.error_code, "an outdated producer never succeeds"
        if decision.ending is not None:
            assert current.is_ongoing
            assert decision.ending.producer_id == current.producer_id
            is_v1 = isinstance(event, EndTransactionEvent) and event.version is TransactionVersion.V1
            assert decision.ending.epoch == current.epoch + (0 if is_v1 else 1)
            self.ended.append(current.serial)
            self.markers.append((decision.ending.producer_id, decision.ending.epoch))
            assert decision.following is not None
            assert not decision.following.is_ongoing
        elif decision.following is not None:
            assert not current.is_ongoing, "an open transaction goes on until it ends"
            assert decision.following.serial == current.serial + decision.is_beginning

    def _look(self) -> None:
        if self.metadata is None:
            return
        now = (self.metadata.producer_id, self.metadata.epoch)
        assert 0 <= now[1] <= EPOCH_EXHAUSTED
        if now not in self.identities:
            assert now[0] == 100 or all(now > before for before in self.identities), "ids and epochs only rise"
            self.identities.append(now)
        for identity in self.identities:
            probe = InitProducerId(timeout_ms=1, producer_id=identity[0], epoch=identity[1])
            if sender_of(self.metadata, probe) not in KNOWN:
                self.outdated.add(identity)
            elif identity != now:
                assert not self.metadata.is_ongoing, "who is in a transaction has learnt of the newest epoch"
                assert identity not in self.outdated, "who was outdated stays so"
            else:
                assert identity not in self.outdated, "who was outdated stays so"
        assert len(set(self.ended)) == len(self.ended), "a transaction ends once"
        assert self.markers == sorted(self.markers), "markers never go back"


VERSIONS = st.sampled_from(TransactionVersion)
REQUESTS = st.sampled_from(["init", "add", "verify", "end", "end", "expire", "terminate"])
WHO = st.one_of(st.just(0), st.integers(0, 4), st.just(-1), st.tuples(st.integers(98, 104), st.integers(-1, 3)))
"""How many identities ago; -1: nobody; or any producer id and epoch."""


def made(coordinator: Coordinator, request: str, who: int | tuple[int, int], version: int, *, flag: bool) -> Event:
    if isinstance(who, tuple):
        producer_id, epoch = ProducerId(who[0]), ProducerEpoch(who[1])
    elif who < 0 or who >= len(coordinator.identities):
        producer_id, epoch = NOBODY
    else:
        producer_id, epoch = coordinator.identities[-1 - who]
    spoken = TransactionVersion(version)
    match request:
        case "init":
            return InitProducerId(timeout_ms=TIMEOUT_MS, producer_id=producer_id, epoch=epoch)
        case "add":
            return AddToTransactionEvent(producer_id=producer_id, epoch=epoch, version=spoken)
        case "verify":
            return VerifyInTransaction(producer_id=producer_id, epoch=epoch, is_added=flag)
        case "end":
            return EndTransactionEvent(producer_id=producer_id, epoch=epoch, version=spoken, is_commit=flag)
        case "expire":
            serial = 0 if coordinator.metadata is None else coordinator.metadata.serial - flag
            return ExpireTransactionEvent(producer_id=producer_id, epoch=epoch, serial=serial)
        case _:
            return ForceTerminate(producer_id=producer_id, epoch=epoch, is_commit=flag)


STEPS = st.lists(st.tuples(REQUESTS, WHO, VERSIONS, st.booleans()), max_size=40)
EPOCHS = st.one_of(st.none(), st.integers(EPOCH_EXHAUSTED - 4, EPOCH_EXHAUSTED))


def coordinator_at(epoch: int | None) -> Coordinator:
    """New, or near its producer id's last epoch."""
    if epoch is None:
        return Coordinator()
    metadata = TransactionMetadata(producer_id=ProducerId(99), epoch=ProducerEpoch(epoch), timeout_ms=TIMEOUT_MS)
    return Coordinator(metadata=metadata, identities=[(metadata.producer_id, metadata.epoch)])


@given(EPOCHS, STEPS)
def test_no_sequence_of_events_breaks_the_rules_of_transactions(
    epoch: int | None, steps: list[tuple[str, int | tuple[int, int], TransactionVersion, bool]]
) -> None:
    coordinator = coordinator_at(epoch)
    for request, who, version, flag in steps:
        coordinator.handle(made(coordinator, request, who, version, flag=flag))


@given(EPOCHS, STEPS, st.booleans())
def test_a_repeat_of_endtxn_v2_is_answered_alike_and_changes_nothing(
    epoch: int | None, steps: list[tuple[str, int | tuple[int, int], TransactionVersion, bool]], is_commit: bool
) -> None:
    coordinator = coordinator_at(epoch)
    for request, who, version, flag in steps:
        coordinator.handle(made(coordinator, request, who, version, flag=flag))
    if coordinator.metadata is None:
        return
    now = coordinator.metadata
    end = EndTransactionEvent(
        producer_id=now.producer_id, epoch=now.epoch, version=TransactionVersion.V2, is_commit=is_commit
    )
    first = coordinator.handle(end)
    if first.error_code:
        assert first.error_code is ErrorCode.invalid_txn_state
        return
    after = coordinator.metadata
    for _ in range(3):
        again = coordinator.handle(end)
        assert (again.error_code, again.producer_id, again.epoch) == (ErrorCode.none, first.producer_id, first.epoch)
        assert coordinator.metadata == after


@given(EPOCHS, STEPS)
def test_a_producer_that_was_timed_out_recovers_by_aborting_or_by_initialising(
    epoch: int | None, steps: list[tuple[str, int | tuple[int, int], TransactionVersion, bool]]
) -> None:
    coordinator = coordinator_at(epoch)
    for request, who, version, flag in steps:
        coordinator.handle(made(coordinator, request, who, version, flag=flag))
    now = coordinator.metadata
    if now is None or not now.is_ongoing:
        return
    expired = ExpireTransactionEvent(producer_id=now.producer_id, epoch=now.epoch, serial=now.serial)
    assert coordinator.handle(expired).ending is not None
    after = coordinator.metadata
    assert after is not None
    v2 = TransactionVersion.V2
    aborts = EndTransactionEvent(producer_id=now.producer_id, epoch=now.epoch, version=v2, is_commit=False)
    initialises = InitProducerId(producer_id=now.producer_id, epoch=now.epoch, timeout_ms=TIMEOUT_MS)
    for event in (aborts, initialises):
        decision = coordinator.handle(event)
        assert (decision.producer_id, decision.epoch) == (after.producer_id, after.epoch)
    assert coordinator.handle(replace(aborts, is_commit=True)).error_code is ErrorCode.producer_fenced


LOGS = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(["write", "write", "commit", "abort", "plain"])), max_size=60
)


@given(LOGS, st.integers(0, 60), st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_what_a_reader_is_told_is_what_the_log_says(
    log: list[tuple[int, str]], first: int, count: int, forgotten_first: int, forgotten_count: int
) -> None:
    """Beside a model that looks at every transaction."""
    transactions = PartitionTransactions()
    began: dict[int, int] = {}
    aborted: list[tuple[int, int, int]] = []
    for offset, (producer, what) in enumerate(log):
        if what == "write":
            began.setdefault(producer, offset)
            transactions.begin(ProducerId(producer), Offset(offset))
        elif what in ("commit", "abort"):
            if producer in began and what == "abort":
                aborted.append((offset, producer, began[producer]))
            began.pop(producer, None)
            transactions.end(ProducerId(producer), Offset(offset), is_commit=what == "commit")
        stable = min(began.values(), default=offset + 1)
        assert transactions.last_stable_offset(Offset(0), Offset(offset + 1)) == stable
    transactions.forget_markers(Offset(forgotten_first), Offset(forgotten_first + forgotten_count))
    again = PartitionTransactions.from_columns(transactions.open, transactions.columns())
    assert again == transactions
    expected = [
        AbortedRange(ProducerId(producer), Offset(begin))
        for marker, producer, begin in aborted
        if marker >= first
        and begin < first + count
        and not forgotten_first <= marker < forgotten_first + forgotten_count
    ]
    assert again.aborted_between(Offset(first), Offset(first + count)) == expected


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(1, 3), st.booleans(), st.booleans()), max_size=40
    )
)
def test_accepted_batches_of_a_producer_never_go_back(steps: list[tuple[int, int, int, bool, bool]]) -> None:
    """By epoch and sequence, whatever batches and markers come; and an epoch begins at 0."""
    producer_id = ProducerId(7)
    producers: dict[ProducerId, ProducerState] = {}
    accepted: dict[int, int] = {}
    newest = -1
    for epoch, sequence, count, is_marker, is_outside in steps:
        if is_marker:
            mark(producers, producer_id=producer_id, epoch=ProducerEpoch(epoch), time_ms=Milliseconds(0))
            newest = max(newest, epoch)
            continue
        decision = decide(
            producers.get(producer_id),
            producer_id=producer_id,
            epoch=epoch,
            base_sequence=sequence,
            record_count=count,
            unknown_producers_below=ProducerId(0),
            is_outside_transaction=is_outside,
        )
        if decision is not ACCEPT:
            continue
        assert not is_outside
        assert epoch >= newest
        assert sequence == accepted.get(epoch, 0)
        newest = epoch
        accepted[epoch] = sequence + count
        advance(
            producers,
            producer_id=producer_id,
            epoch=epoch,
            base_sequence=sequence,
            record_count=count,
            base_offset=0,
            time_ms=Milliseconds(0),
            is_run_kept=True,
        )
