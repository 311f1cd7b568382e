"""Who is the maintenance leader for the cluster. Part of `coordinator.apply.apply`.

Rule: one live session holds the role, and nobody takes it from a session that is alive and stays. The epoch counts the
holders: a claim that was made of an older state is refused, so of several only the first succeeds.
"""

from coordinator.commands.commands import ClaimHousekeeper, Done, Outcome, Refused
from coordinator.state.state import ClusterState
from protocol.errors import ErrorCode
from protocol.types import SessionId


def is_housekeeper_wanted(state: ClusterState) -> bool:
    """Whether nobody has the role, or its holder is stopping."""
    return state.housekeeper is None or state.sessions[state.housekeeper].is_draining


def claim_housekeeper(state: ClusterState, session_id: SessionId, command: ClaimHousekeeper) -> Outcome:
    """Give the role to the session that asks for it, which is live."""
    if command.epoch != state.housekeeper_epoch + 1:
        return Refused(
            error_code=ErrorCode.not_controller,
            reason=f"epoch {command.epoch} of the housekeeper was claimed, {state.housekeeper_epoch} is in force",
        )
    if not is_housekeeper_wanted(state):
        return Refused(error_code=ErrorCode.not_controller, reason=f"session {state.housekeeper} keeps house")
    if state.sessions[session_id].is_draining:
        return Refused(error_code=ErrorCode.not_controller, reason=f"session {session_id} is stopping")
    state.housekeeper = session_id
    state.housekeeper_epoch = command.epoch
    return Done()
