"""Sessions and the version of the rules (safety rules S3 and S12). Called by `coordinator.apply.apply`."""

from coordinator.apply.digest_comparison import excuse
from coordinator.apply.producer_bounds import put_in_order
from coordinator.commands.commands import (
    Done,
    EndSession,
    ForgetSessions,
    Outcome,
    RaiseRules,
    Rejected,
    StartDrain,
    StartSession,
)
from coordinator.commands.rules import RULES_AGENTS, RULES_CHECKED_STORAGE
from coordinator.state.state import ClusterState, SessionState
from protocol.errors import ErrorCode
from protocol.types import SessionId


def check_start(state: ClusterState, command: StartSession) -> Rejected | None:
    """Why no session may start so; None where one may."""
    if command.rules_version < state.rules_version:
        return Rejected(
            error_code=ErrorCode.unsupported_version,
            reason=f"rules {state.rules_version} are in force, the agent knows {command.rules_version}: upgrade it",
        )
    for session in state.sessions.values():
        if session.node_id == command.node_id and session.name != command.name:
            return Rejected(
                error_code=ErrorCode.duplicate_broker_registration,
                reason=f"node id {command.node_id} is taken by the agent {session.name!r}: choose another one",
            )
    return None


def start_session(state: ClusterState, session_id: SessionId, command: StartSession) -> Outcome:
    """Open a session that `check_start` allows; its predecessor of the same name is over, as the lease says (S12)."""
    predecessors = [other for other, session in state.sessions.items() if session.name == command.name]
    for predecessor in predecessors:
        _end(state, predecessor)
    state.sessions[session_id] = SessionState(
        name=command.name,
        node_id=command.node_id,
        endpoints=command.endpoints,
        zone=command.zone,
        rules_version=command.rules_version,
        entry_next=1,
    )
    return Done()


def end_session(state: ClusterState, command: EndSession) -> Outcome:
    """Close a session: from here on nothing of it can become true, so what it left behind may be deleted (S6)."""
    if command.session not in state.sessions:
        return Rejected(error_code=ErrorCode.broker_id_not_registered, reason=f"session {command.session} is not live")
    _end(state, command.session)
    return Done()


def start_drain(state: ClusterState, command: StartDrain) -> Outcome:
    """Let clients be sent to the other agents. What the session commits until it ends counts as before."""
    session = state.sessions.get(command.session)
    if session is None:
        return Rejected(error_code=ErrorCode.broker_id_not_registered, reason=f"session {command.session} is not live")
    if state.rules_version >= RULES_AGENTS and not session.is_draining:
        session.draining_since_ms = state.known_time_ms
    session.is_draining = True
    return Done()


def _end(state: ClusterState, session_id: SessionId) -> None:
    del state.sessions[session_id]
    if state.maintenance_leader == session_id:
        state.maintenance_leader = None
    excuse(state, session_id)
    state.sessions_ended[session_id] = state.time_ms


def forget_sessions(state: ClusterState, command: ForgetSessions) -> Outcome:
    """Stop remembering ended sessions. Unknown ones are skipped: two maintenance leaders may report the same."""
    for session_id in command.sessions:
        state.sessions_ended.pop(session_id, None)
    return Done()


def raise_rules(state: ClusterState, command: RaiseRules) -> Outcome:
    """Put newer rules in force, if every live agent knows them (safety rule S3)."""
    if command.rules_version <= state.rules_version:
        return Rejected(
            error_code=ErrorCode.invalid_update_version, reason=f"rules {state.rules_version} are in force already"
        )
    # Agents without these rules apply the raise all the same, so under older rules only the proposer asks for a hold.
    if state.rules_version >= RULES_AGENTS and state.rules_hold_since_ms is not None:
        return Rejected(
            error_code=ErrorCode.invalid_update_version, reason=f"the rules are held at {state.rules_version}"
        )
    for session in state.sessions.values():
        if session.rules_version < command.rules_version:
            return Rejected(
                error_code=ErrorCode.invalid_update_version,
                reason=f"the agent {session.name!r} knows rules up to {session.rules_version}: upgrade it first",
            )
    if state.rules_version < RULES_CHECKED_STORAGE <= command.rules_version:
        put_in_order(state)
    state.rules_version = command.rules_version
    return Done()
