"""What guards transactions where the ledger is lost (safety rule S9), where transactional ids expire (S2), and where
transaction.version is lowered and raised, switched off.

Rule: as `tests.simulation.mutations.safety_rules`, which has them from here.
"""

from collections.abc import Callable, Container, Iterator
from dataclasses import replace
from typing import Any

from msgspec import structs

from agent.maintenance.producer_expiry import ProducerExpiry
from agent.maintenance.transactional_id_expiry import TransactionalIdExpiry
from agent.recovery.report import RecoveryReport
from coordinator.apply import chunks as apply_chunks
from coordinator.apply import topics as apply_topics
from coordinator.apply import transactions as apply_transactions
from coordinator.commands.commands import CommitChunks, Done, Outcome
from coordinator.commands.transaction import EndTransaction, ExpireTransaction, ExpireTransactionalIds
from coordinator.recovery import intake_objects
from coordinator.recovery.state_recovery import StateRecovery
from coordinator.state.state import NO_TIME, ClusterState
from protocol.errors import ErrorCode
from protocol.types import Milliseconds, ProducerEpoch, ProducerId, SessionId
from tests.simulation.faults.fault_names import FaultName
from tests.simulation.mutations.losses import loses_ledger
from tests.simulation.mutations.mutation import mutation
from tests.simulation.mutations.patches import patched
from tests.simulation.mutations.transactions import deciding, has
from tests.simulation.plan import Plan, ProducerFate
from txn import producer_state
from txn.producer_state import NO_ACTIVITY_TIME, ProducerState
from txn.transaction import Decision

Recover = Callable[[StateRecovery], None]


def loses_transactions(plan: Plan) -> bool:
    """Whether some are open, or end, after the newest snapshot that a recovery finds."""
    return has(plan, lambda one: one.pause_s < 1) and loses_ledger(plan) and plan.snapshot_entries < 100


def expires(plan: Plan) -> bool:
    return plan.transactions is not None and plan.transactions.expiration_ms > 0


def expires_used(plan: Plan) -> bool:
    """Whether ids expire whose producers go on."""
    return expires(plan) and has(plan, lambda one: ProducerFate.PAUSE in one.fates)


def changes_version(plan: Plan) -> bool:
    speaks_v2 = has(plan, lambda one: one.version > 1 and one.rests_chance > 0)
    return speaks_v2 and plan.transactions is not None and plan.transactions.has_version_changes


@mutation(where=loses_transactions)
def s9_a_recovery_keeps_transactions_open() -> Iterator[None]:
    """Of producers that nobody knows any more."""

    def abort(self: StateRecovery) -> None:
        self.state.transactional_ids.clear()
        self.state.producers_of_transactions.clear()
        self.state.open_transactions.clear()

    with patched(StateRecovery, "abort_transactions", abort):
        yield


@mutation(where=loses_transactions)
def s9_a_recovery_commits_what_was_open() -> Iterator[None]:
    """It is taken for committed, by an entry that is lost."""

    def change(right: Any, current: Any, event: Any, fresh: ProducerId) -> Decision:
        decision: Decision = right(current, event, fresh)
        return (
            decision if decision.ending is None else replace(decision, ending=replace(decision.ending, is_commit=True))
        )

    def abort(self: StateRecovery) -> None:
        with deciding(change):
            abort_right(self)

    abort_right = StateRecovery.abort_transactions
    with patched(StateRecovery, "abort_transactions", abort):
        yield


@mutation(where=loses_transactions)
def s9_a_recovery_keeps_transactional_ids() -> Iterator[None]:
    """Epochs that were given after the snapshot are given again."""

    def abort(self: StateRecovery) -> None:
        ids, producers = dict(self.state.transactional_ids), dict(self.state.producers_of_transactions)
        abort_right(self)
        kept.append((ids, producers))

    def finish(self: StateRecovery, incarnation: int) -> None:
        finish_right(self, incarnation)
        self.state.transactional_ids, _ = kept[-1]
        self.state.producers_of_transactions.update(
            {held.metadata.producer_id: one for one, held in self.state.transactional_ids.items()}
        )

    kept: list[Any] = []
    abort_right, finish_right = StateRecovery.abort_transactions, StateRecovery.finish
    with patched(StateRecovery, "abort_transactions", abort), patched(StateRecovery, "finish", finish):
        yield


@mutation(where=loses_transactions)
def s9_a_recovery_takes_batches_whose_transactions_are_lost() -> Iterator[None]:
    """As if they had been written without any."""

    def commit(*args: Any) -> CommitChunks:
        command = commit_right(*args)
        batches = replace(command.batches, is_transactional=[0] * len(command.batches.is_transactional))
        return replace(command, batches=batches)

    commit_right = intake_objects._commit
    with patched(intake_objects, "_commit", commit):
        yield


@mutation(where=loses_transactions)
def s9_a_recovery_is_silent_about_lost_transactions() -> Iterator[None]:
    """Nobody is asked whether they may be lost."""
    with patched(RecoveryReport, "has_losses", property(lambda self: bool(self.missing or self.damaged))):
        yield


def expiring(change: Callable[[ClusterState, ExpireTransactionalIds], Milliseconds]) -> Any:
    """Apply forgets who is due by what `change` returns for the cutoff, and after what it did to the state."""
    right = apply_transactions.expire_transactional_ids

    def expire(state: ClusterState, command: ExpireTransactionalIds) -> Outcome:
        return right(state, structs.replace(command, cutoff_ms=change(state, command)))

    return patched(apply_transactions, "expire_transactional_ids", expire)


@mutation(*(FaultName.CLOCK, FaultName.STORE_CUT, FaultName.STORE_SHAKY), where=expires)
def s2_a_transactional_id_that_was_used_untimed_expires_at_once() -> Iterator[None]:
    """What nobody told the time of is as old as time."""

    def change(state: ClusterState, command: ExpireTransactionalIds) -> Milliseconds:
        for held in state.transactional_ids.values():
            held.updated_ms = Milliseconds(max(held.updated_ms, NO_TIME + 1))
        return command.cutoff_ms

    with expiring(change):
        yield


@mutation(FaultName.CLOCK, where=expires)
def s2_transactional_ids_expire_by_any_clock() -> Iterator[None]:
    """Neither who proposes it asks whether the clock is checked, nor apply what the others say."""

    async def expire(self: TransactionalIdExpiry) -> int:
        with patched(self, "_proposed_time", self._clock.now_ms):
            return await expire_right(self)

    def apply_believing(state: ClusterState, command: ExpireTransactionalIds) -> Outcome:
        time_ms, state.time_ms = state.time_ms, command.cutoff_ms
        outcome = apply_right(state, command)
        state.time_ms = time_ms
        return outcome

    expire_right, apply_right = TransactionalIdExpiry.expire, apply_transactions.expire_transactional_ids
    with (
        patched(TransactionalIdExpiry, "expire", expire),
        patched(apply_transactions, "expire_transactional_ids", apply_believing),
    ):
        yield


@mutation(where=expires)
def transactional_ids_expire_too_early() -> Iterator[None]:
    """As soon as somebody looks."""
    with expiring(lambda state, command: state.time_ms):
        yield


@mutation(where=expires)
def no_transactional_id_ever_expires() -> Iterator[None]:
    """The maintenance leader never looks."""

    async def expire(self: TransactionalIdExpiry) -> int:
        return 0

    with patched(TransactionalIdExpiry, "expire", expire):
        yield


@mutation(where=expires_used)
def an_id_expires_while_its_transaction_is_open() -> Iterator[None]:
    """What it has written is never decided."""

    def expire(state: ClusterState, command: ExpireTransactionalIds) -> Outcome:
        outcome = expire_right(state, command)
        for transactional_id, held in list(state.transactional_ids.items()):
            if NO_TIME < held.updated_ms < min(command.cutoff_ms, state.time_ms):
                del state.transactional_ids[transactional_id]
                del state.producers_of_transactions[held.metadata.producer_id]
                state.open_transactions.pop(transactional_id, None)
        return outcome

    expire_right = apply_transactions.expire_transactional_ids
    with patched(apply_transactions, "expire_transactional_ids", expire):
        yield


@mutation(where=expires_used)
def batches_of_an_expired_id_are_taken() -> Iterator[None]:
    """Its producer goes on writing, outside of any transaction."""

    def join(state: ClusterState, key: Any, producer_id: ProducerId, epoch: ProducerEpoch, version: int) -> ErrorCode:
        error_code = join_right(state, key, producer_id, epoch, version)
        return ErrorCode.none if error_code is ErrorCode.invalid_producer_id_mapping else error_code

    join_right = apply_transactions.join_partition
    with patched(apply_chunks, "join_partition", join):
        yield


@mutation(where=expires)
def the_producer_id_of_an_expired_id_is_given_again() -> Iterator[None]:
    """To whoever comes next, from its first epoch on."""

    def expire(state: ClusterState, command: ExpireTransactionalIds) -> Outcome:
        before = dict(state.transactional_ids)
        outcome = expire_right(state, command)
        for transactional_id, held in before.items():
            is_newest = held.metadata.producer_id == state.producer_id_next - 1
            if transactional_id not in state.transactional_ids and is_newest:
                state.producer_id_next = held.metadata.producer_id
        return outcome

    expire_right = apply_transactions.expire_transactional_ids
    with patched(apply_transactions, "expire_transactional_ids", expire):
        yield


def forgetting(change: Callable[[dict[ProducerId, ProducerState], Milliseconds], Milliseconds], **others: Any) -> Any:
    """Partitions forget producers by what `change` returns for the time before which they were active, and after what
    it did to them; `others` of the arguments are what they are here."""

    def expire(
        producers: dict[ProducerId, ProducerState],
        before_ms: Milliseconds,
        now_ms: Milliseconds,
        kept: Container[ProducerId] = (),
    ) -> bool:
        return right(producers, change(producers, before_ms), now_ms, **{"kept": kept, **others})

    right = producer_state.expire
    return patched(apply_topics, "expire", expire)


@mutation(*(FaultName.CLOCK, FaultName.STORE_CUT, FaultName.STORE_SHAKY), where=expires)
def s2_a_producer_that_wrote_untimed_is_forgotten_at_once() -> Iterator[None]:
    """What nobody told the time of is as old as time."""

    def change(producers: dict[ProducerId, ProducerState], before_ms: Milliseconds) -> Milliseconds:
        for producer in producers.values():
            if producer.last_active_ms == NO_ACTIVITY_TIME:
                producer.last_active_ms = Milliseconds(NO_ACTIVITY_TIME + 1)
        return before_ms

    with forgetting(change):
        yield


@mutation(is_scripted=True)
def a_producer_is_forgotten_while_its_transaction_is_open() -> Iterator[None]:
    """Where it is idle for long enough."""
    with forgetting(lambda producers, before_ms: before_ms, kept=()):
        yield


@mutation(where=expires)
def no_producer_is_ever_forgotten() -> Iterator[None]:
    """The maintenance leader never looks."""

    async def expire(self: ProducerExpiry) -> bool:
        return False

    with patched(ProducerExpiry, "expire", expire):
        yield


@mutation(where=changes_version)
def open_transactions_end_when_the_version_is_lowered() -> Iterator[None]:
    """They are aborted, as if their producers had to begin again."""

    def lower(state: ClusterState, command: Any) -> Outcome:
        if command.level < state.transaction_version:
            for transactional_id in list(state.open_transactions):
                metadata = state.transactional_ids[transactional_id].metadata
                expired = ExpireTransaction(
                    transactional_id=transactional_id,
                    producer_id=metadata.producer_id,
                    epoch=metadata.epoch,
                    serial=metadata.serial,
                )
                apply_transactions.expire_transaction(state, expired)
        return set_right(state, command)

    set_right = apply_transactions.set_transaction_version
    with patched(apply_transactions, "set_transaction_version", lower):
        yield


@mutation(where=changes_version)
def the_level_decides_what_a_request_means() -> Iterator[None]:
    """Where it is lowered, what a V2 client has open ends as V1's would: its epoch stays."""

    def end(state: ClusterState, session_id: SessionId, command: EndTransaction) -> Outcome:
        version = min(command.version, max(state.transaction_version, 1))
        return end_right(state, session_id, structs.replace(command, version=type(command.version)(version)))

    end_right = apply_transactions.end_transaction
    with patched(apply_transactions, "end_transaction", end):
        yield


@mutation(where=changes_version)
def what_is_open_is_refused_when_the_version_is_lowered() -> Iterator[None]:
    """A V2 client may not go on as it began."""

    def join(state: ClusterState, key: Any, producer_id: ProducerId, epoch: ProducerEpoch, version: int) -> ErrorCode:
        return join_right(state, key, producer_id, epoch, min(version, max(state.transaction_version, 1)))

    join_right = apply_transactions.join_partition
    with patched(apply_chunks, "join_partition", join):
        yield


@mutation(where=changes_version)
def a_level_has_the_epoch_of_the_one_before() -> Iterator[None]:
    """Clients that keep the newest epoch cannot tell which level is newer."""

    def lower(state: ClusterState, command: Any) -> Outcome:
        state.transaction_version = command.level
        return Done()

    with patched(apply_transactions, "set_transaction_version", lower):
        yield
