"""The order of a recovery's changes to a state: transactions, lost objects, commits of the intake, sessions, ids (S9).

In: a snapshot's state, and the intake objects that it does not know. Out: the state in which the next incarnation
begins. Offsets, duplicates and rejections come from apply's own code. Batches that were acknowledged after the snapshot
have lost their entries, so they get new offsets, in the order in which the objects were written, as far as that is
known.

A record is rather kept at another offset than lost: a batch whose predecessors are missing is kept without its
producer's sequence. Of transactions only those come back that the snapshot knows to be committed: the ends of the
others stood in the lost entries, and aborted records must never be read.
"""

from collections.abc import Container
from dataclasses import replace
from typing import Final

from coordinator.apply.chunks import commit_chunks
from coordinator.apply.sessions import end_session
from coordinator.apply.transactions import expire_transaction
from coordinator.commands.commands import ChunksCommitted, EndSession
from coordinator.commands.rules import RULES_CHECKED_STORAGE, RULES_SECURITY
from coordinator.commands.transaction import ExpireTransaction, TransactionDecided
from coordinator.ledger.port import position_first
from coordinator.recovery.intake_objects import FoundObject
from coordinator.recovery.lost_objects import Bridge, LostObjects
from coordinator.recovery.missing_batches import MissingBatches
from coordinator.recovery.recovered_topics import RecoveredTopics, TopicRecovered
from coordinator.state.state import ClusterState
from protocol.errors import ErrorCode
from protocol.types import NO_PRODUCER_ID, Milliseconds, ProducerId, SessionId, TopicId

PRODUCER_ID_BITS: Final = 40
"""An incarnation has room for so many producer ids: a million a second for twelve days, or a thousand for 34 years."""


def sessions_ended_unseen(state: ClusterState) -> set[SessionId]:
    """The sessions that the last recovery ended, as far as the state shows: it began the state's incarnation, and ended
    those of an earlier one that ended last, all at one time.

    It committed everything of them that was in the bucket. What is there now and unknown came later: of agents that
    went on, for their ledger was another one than was recovered, and acknowledged it (safety rule S9).
    """
    first = position_first(state.incarnation)
    earlier = {session: ended_ms for session, ended_ms in state.sessions_ended.items() if session < first}
    last_ms = max(earlier.values(), default=state.time_ms)
    return {session for session, ended_ms in earlier.items() if ended_ms == last_ms}


class StateRecovery:
    """A state on its way into the next incarnation. `abort_transactions` first, `finish` last."""

    def __init__(self, state: ClusterState, topic_names: dict[TopicId, str]) -> None:
        """`topic_names`: those that the bucket knows, for topics that the state does not."""
        self.state = state
        self.sessions_ended_count = 0
        self.transactions_aborted_count = 0
        self.tokens_removed_count = 0
        self._topics = RecoveredTopics(state, topic_names)
        self._missing_batches = MissingBatches(state)

    @property
    def topics(self) -> dict[TopicId, TopicRecovered]:
        """The outcomes for the topics that the recovery touched."""
        return self._topics.outcomes

    def abort_transactions(self) -> None:
        """Abort what is open, and forget who had transactional ids; before anything else.

        What was committed after the snapshot is dropped by that, which is a loss; to take what was aborted for
        committed would be an error that is never noticed. Epochs that were given after the snapshot must not be given
        again, so producers start again, with producer ids of the incarnation.
        """
        state = self.state
        for transactional_id in list(state.open_transactions):
            metadata = state.transactional_ids[transactional_id].metadata
            expired = ExpireTransaction(
                transactional_id=transactional_id,
                producer_id=metadata.producer_id,
                epoch=metadata.epoch,
                serial=metadata.serial,
            )
            decided = expire_transaction(state, expired)
            assert isinstance(decided, TransactionDecided), decided
            assert decided.error_code is ErrorCode.none, decided
            self.transactions_aborted_count += 1
        state.transactional_ids.clear()
        state.producers_of_transactions.clear()

    def expect(self, intake_object: FoundObject) -> None:
        """Learn which batches will be committed later: all objects first, then `commit` each."""
        self._missing_batches.expect(intake_object.command)

    def is_in_order(self, intake_object: FoundObject) -> bool:
        """Whether, by their sequences, no batch has a predecessor of its producer that is still to come."""
        return next(self._missing_batches.rows_behind_a_gap(intake_object.command), None) is None

    def commit(self, intake_object: FoundObject) -> None:
        """Commit the batches of an object, with offsets at the ends of their logs."""
        command = intake_object.command
        self.state.time_ms = max(self.state.time_ms, intake_object.modified_ms)
        for topic_index, partition in zip(command.chunks.topic, command.chunks.partition, strict=True):
            self._topics.ensure(command.topic_ids[topic_index], partition)
        gaps = set(self._missing_batches.rows_behind_a_gap(command))
        self._missing_batches.remove(command)
        columns = command.batches
        producer_ids = [
            NO_PRODUCER_ID if row in gaps else producer_id for row, producer_id in enumerate(columns.producer_id)
        ]
        ends = self._topics.log_ends(command.topic_ids)
        # Agents of older rules, which the state keeps, do not know checksums of chunks.
        batch_crcs = command.batch_crcs if self.state.rules_version >= RULES_CHECKED_STORAGE else b""
        committed = replace(command, batches=replace(columns, producer_id=producer_ids), batch_crcs=batch_crcs)
        outcome = commit_chunks(self.state, command.object_session, committed)
        assert isinstance(outcome, ChunksCommitted), outcome
        self._topics.count(command, outcome, rows_behind_a_gap=gaps, ends_before=ends)

    def forget_lost(self, keys: Container[str], incarnation: int) -> Bridge | None:
        """Remove objects that are not in the bucket any more. Returns the bridge to put, if one is needed."""
        return LostObjects(self.state, self._topics, keys).remove(incarnation)

    def advance_time(self, now_ms: Milliseconds) -> None:
        """Let the state's time be no earlier than now, by a checked clock (safety rule S2).

        The grace of objects that the ended sessions left begins now: while no agent ran they could not be looked at.
        """
        self.state.time_ms = max(self.state.time_ms, now_ms)

    def doubt_acls(self) -> None:
        """Let super users alone be served until somebody has looked at the ACLs: a revocation may be lost.

        Agents of rules without ACLs have none to look at. Delegation tokens are removed: one that was expired at its
        owner's wish may be among them, and clients can ask for others.
        """
        self.tokens_removed_count = len(self.state.tokens)
        self.state.tokens.clear()
        if self.state.rules_version >= RULES_SECURITY:
            self.state.is_acls_confirmed = False

    def end_sessions(self, others: set[SessionId]) -> None:
        """End every session, and the `others`, which wrote what the state does not know: what is left of it is garbage
        now.
        """
        for session in list(self.state.sessions):
            end_session(self.state, EndSession(session=session))
            self.sessions_ended_count += 1
        for session in sorted(others - self.state.sessions_ended.keys()):
            self.state.sessions_ended[session] = self.state.time_ms
            self.sessions_ended_count += 1

    def finish(self, incarnation: int) -> None:
        """Make the state the one in which the incarnation begins.

        Producer ids that were given out after the snapshot must not be given again, so those of an incarnation begin
        where no earlier one comes. Producers from before may have lost their state, as where it was dropped (S8).
        """
        self.state.incarnation = incarnation
        self.state.position = position_first(incarnation)
        self.state.appends_count = 0
        first = ProducerId((incarnation - 1) << PRODUCER_ID_BITS)
        self.state.producer_id_next = max(self.state.producer_id_next, first)
        self.state.producers_before_deletion = self.state.producer_id_next
        for topic in self.state.topics.values():
            for partition in topic.partitions:
                partition.unknown_producers_below = self.state.producer_id_next
