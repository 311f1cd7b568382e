"""Applies entries of the ledger to the state: the only code that changes a `ClusterState`.

Rule: total and deterministic. What happens depends on the state and the entry alone: no clock, randomness,
environment or hash order. A command that cannot be carried out changes nothing but the session's entry count, and
says why in its outcome. One thing raises: bytes that cannot be read (`LedgerCorrupt`), because every other way on
would be a guess.
"""

from typing import assert_never

from coordinator.apply.agents import apply_agent_command
from coordinator.apply.chunks import commit_chunks
from coordinator.apply.configs import apply_admin_command
from coordinator.apply.delegation_tokens import apply_token_command
from coordinator.apply.digest_comparison import compare_digest, report_digest
from coordinator.apply.groups import apply_group_command
from coordinator.apply.maintenance_leader import claim_maintenance_leader
from coordinator.apply.objects import stamp_untimed
from coordinator.apply.pending_offsets import commit_transactional_offsets
from coordinator.apply.registry import apply_registry_command
from coordinator.apply.replace import forget_objects, replace_chunks
from coordinator.apply.retention import advance_log_start, apply_retention
from coordinator.apply.security import apply_security_command
from coordinator.apply.sessions import (
    check_start,
    end_session,
    forget_sessions,
    raise_rules,
    start_drain,
    start_session,
)
from coordinator.apply.tables import commit_table
from coordinator.apply.topics import allocate_producer_ids, create_topic, delete_topic, expire_producers
from coordinator.apply.transactions import apply_transaction_command
from coordinator.codec.codec import WrittenEntry, decode
from coordinator.commands.admin import AdminCommand
from coordinator.commands.agents import AgentCommand
from coordinator.commands.commands import (
    AdvanceLogStart,
    AllocateProducerIds,
    ApplyRetention,
    ClaimMaintenanceLeader,
    Command,
    CommitChunks,
    CommitTable,
    CompareDigest,
    CreateTopic,
    DeleteTopic,
    Done,
    EndSession,
    ExpireProducers,
    ForgetObjects,
    ForgetSessions,
    Outcome,
    Proposal,
    RaiseRules,
    Rejected,
    ReplaceChunks,
    ReportDigest,
    ReportTime,
    StartDrain,
    StartSession,
)
from coordinator.commands.delegation_tokens import TokenCommand
from coordinator.commands.group import GroupCommand
from coordinator.commands.registry import RegistryCommand
from coordinator.commands.security import SecurityCommand
from coordinator.commands.transaction import CommitTransactionalOffsets, PlainTransactionCommand
from coordinator.ledger.port import LedgerRecord
from coordinator.state.state import NO_TIME, ClusterState
from protocol.errors import ErrorCode
from protocol.types import Milliseconds, SessionId

REPEATED = Rejected(
    error_code=ErrorCode.request_timed_out, reason="the entry is a repeat: its outcome was given at its first copy"
)
"""The outcome for a proposer that still waits: unknown, since the first copy was applied before it waited (S1)."""


def apply(
    state: ClusterState, record: LedgerRecord, written: WrittenEntry | None = None
) -> tuple[Proposal | None, Outcome]:
    """Apply one record. The proposal is None where the record is a repeat and changed nothing but the position.

    `written`: the entry of this session and number as this agent wrote it. If the record has the same bytes, they are
    not read again.

    Raises `LedgerCorrupt`, before anything is changed, if the payload cannot be read: do not serve.
    """
    proposal = written.proposal if written is not None and written.payload == record.payload else decode(record)
    if record.position > state.position:
        state.position = record.position
        state.appends_count += 1
    return apply_proposal(state, record.session, record.number, proposal)


def apply_proposal(
    state: ClusterState, session_id: SessionId, number: int, proposal: Proposal
) -> tuple[Proposal | None, Outcome]:
    """Apply a proposal that was read already, as entry `number` of a session."""
    session = state.sessions.get(session_id)
    if session is None:
        return proposal, _apply_unopened(state, session_id, number, proposal)
    if number < session.entry_next:
        return None, REPEATED
    if number > session.entry_next:
        return proposal, Rejected(
            error_code=ErrorCode.not_leader_or_follower,
            reason=f"entry {number} of session {session_id}, whose next one is {session.entry_next}: one is missing",
        )
    session.entry_next = number + 1
    _advance_time(state, proposal.time_ms)
    return proposal, _check_form(state, proposal) or _apply_command(state, session_id, proposal.command)


def _check_form(state: ClusterState, proposal: Proposal) -> Rejected | None:
    """Agents that do not know its rules stop at an entry of a newer form. It must not take effect anywhere (S3)."""
    if proposal.form <= state.rules_version:
        return None
    return Rejected(
        error_code=ErrorCode.unsupported_version,
        reason=f"rules {state.rules_version} are in force, the entry has the form of rules {proposal.form}",
    )


def _apply_unopened(state: ClusterState, session_id: SessionId, number: int, proposal: Proposal) -> Outcome:
    """A session that is not in the state can only start; what it left in flight when it ended is rejected (S1, S12)."""
    command = proposal.command
    if session_id in state.sessions_ended or number != 0 or not isinstance(command, StartSession):
        return Rejected(error_code=ErrorCode.not_leader_or_follower, reason=f"session {session_id} is not live")
    rejected = _check_form(state, proposal) or check_start(state, command)
    if rejected is not None:
        return rejected
    # First, so that the end of a predecessor, from which its grace counts, is this entry's time (safety rule S6).
    _advance_time(state, proposal.time_ms)
    return start_session(state, session_id, command)


def _advance_time(state: ClusterState, time_ms: Milliseconds | None) -> None:
    """Time comes from checked clocks and never goes back (safety rule S2)."""
    if time_ms is not None and time_ms > state.time_ms:
        state.time_ms = time_ms
    state.is_time_known = time_ms is not None and state.time_ms != NO_TIME
    if state.is_time_known and state.released_untimed:
        stamp_untimed(state)


def _apply_command(state: ClusterState, session_id: SessionId, command: Command) -> Outcome:  # noqa: C901
    """Commands of a family have their own dispatch, beside what they do: a new one needs no line here."""
    if isinstance(command, CommitChunks):  # first, for there are more of them than of all others
        return commit_chunks(state, session_id, command)
    if isinstance(command, CommitTransactionalOffsets):
        return commit_transactional_offsets(state, session_id, command)
    if isinstance(command, GroupCommand):
        return apply_group_command(state, session_id, command)
    if isinstance(command, PlainTransactionCommand):
        return apply_transaction_command(state, session_id, command)
    if isinstance(command, AdminCommand):
        return apply_admin_command(state, command)
    if isinstance(command, RegistryCommand):
        return apply_registry_command(state.registry, command)
    if isinstance(command, SecurityCommand):
        return apply_security_command(state, command)
    if isinstance(command, TokenCommand):
        return apply_token_command(state, command)
    if isinstance(command, AgentCommand):
        return apply_agent_command(state, session_id, command)
    match command:
        case StartSession():
            return Rejected(error_code=ErrorCode.invalid_request, reason=f"session {session_id} has started already")
        case EndSession():
            return end_session(state, command)
        case StartDrain():
            return start_drain(state, command)
        case ClaimMaintenanceLeader():
            return claim_maintenance_leader(state, session_id, command)
        case CompareDigest():
            return compare_digest(state, command)
        case ReportDigest():
            return report_digest(state, session_id, command)
        case RaiseRules():
            return raise_rules(state, command)
        case CreateTopic():
            return create_topic(state, command)
        case DeleteTopic():
            return delete_topic(state, command)
        case AllocateProducerIds():
            return allocate_producer_ids(state, command)
        case ReplaceChunks():
            return replace_chunks(state, session_id, command)
        case CommitTable():
            return commit_table(state, session_id, command)
        case ForgetObjects():
            return forget_objects(state, command)
        case ForgetSessions():
            return forget_sessions(state, command)
        case ExpireProducers():
            return expire_producers(state, command)
        case AdvanceLogStart():
            return advance_log_start(state, command)
        case ApplyRetention():
            return apply_retention(state, command)
        case ReportTime():
            return Done()
        case _:
            assert_never(command)
