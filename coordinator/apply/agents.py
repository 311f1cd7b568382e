"""Descriptions of agents, and drains on request. Called by `coordinator.apply.apply`."""

from typing import assert_never

from coordinator.commands.agents import AgentCommand, DescribeAgent, RequestDrain
from coordinator.commands.commands import Done, Outcome, Rejected
from coordinator.state.state import NO_TIME, ClusterState
from protocol.errors import ErrorCode
from protocol.types import SessionId


def apply_agent_command(state: ClusterState, session_id: SessionId, command: AgentCommand) -> Outcome:
    """The part of `coordinator.apply.apply` that is about agents."""
    match command:
        case DescribeAgent():
            return describe_agent(state, session_id, command)
        case RequestDrain():
            return request_drain(state, command)
        case _:
            assert_never(command)


def describe_agent(state: ClusterState, session_id: SessionId, command: DescribeAgent) -> Outcome:
    """Keep what the session's agent says of itself."""
    session = state.sessions[session_id]
    session.http_url = command.http_url
    session.version = command.version
    session.started_ms = NO_TIME if command.started_ms is None else command.started_ms
    return Done()


def request_drain(state: ClusterState, command: RequestDrain) -> Outcome:
    """Let the session's agent know that it is to drain, unless it would be the last one that serves."""
    session = state.sessions.get(command.session)
    if session is None:
        return Rejected(error_code=ErrorCode.broker_id_not_registered, reason=f"session {command.session} is not live")
    # Those that are asked to drain count as draining: of two requests at once, one would take the last agent.
    staying = [
        other
        for session_id, other in state.sessions.items()
        if session_id != command.session and not other.is_draining and not other.is_drain_requested
    ]
    if not staying:
        return Rejected(
            error_code=ErrorCode.invalid_request,
            reason=f"without {session.name!r} no agent would be left to serve",
        )
    session.is_drain_requested = True
    return Done()
