"""Which session is the cluster's maintenance leader. Called by `coordinator.apply.apply`.

Rule: one live session holds the role, and keeps it until it ends or drains. The epoch counts the holders: a claim that
was made of an older state is rejected, so of several concurrent claims only the first succeeds.
"""

from coordinator.commands.commands import ClaimMaintenanceLeader, Done, Outcome, Rejected
from coordinator.state.state import ClusterState
from protocol.errors import ErrorCode
from protocol.types import SessionId


def needs_maintenance_leader(state: ClusterState) -> bool:
    """Whether no session has the role, or its holder is stopping."""
    return state.maintenance_leader is None or state.sessions[state.maintenance_leader].is_draining


def claim_maintenance_leader(state: ClusterState, session_id: SessionId, command: ClaimMaintenanceLeader) -> Outcome:
    """Give the role to the session that asks for it, which is live."""
    # The proposer saw another holder than the state has now: it lost the race for the role.
    if command.epoch != state.maintenance_leader_epoch + 1:
        return Rejected(
            error_code=ErrorCode.not_controller,
            reason=f"epoch {command.epoch} was claimed, {state.maintenance_leader_epoch} is in force",
        )
    if not needs_maintenance_leader(state):
        return Rejected(
            error_code=ErrorCode.not_controller, reason=f"session {state.maintenance_leader} is the maintenance leader"
        )
    if state.sessions[session_id].is_draining:
        return Rejected(error_code=ErrorCode.not_controller, reason=f"session {session_id} is stopping")
    state.maintenance_leader = session_id
    state.maintenance_leader_epoch = command.epoch
    return Done()
