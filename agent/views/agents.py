"""The agents of the cluster and the rules version as plain values for JSON and tables: /api/agents and /api/status.

Rule: as `agent.views.state`. None stands for what is not known: an agent under older rules has not described itself.
"""

from agent.views.state import View
from coordinator.state.state import NO_TIME, ClusterState
from protocol.types import Milliseconds


def agent_rows(state: ClusterState) -> list[View]:
    """Live agents by name. `since_ms`: when its process began to serve; times are ms since 1970."""
    return [
        {
            "name": session.name,
            "node_id": session.node_id,
            "session": session_id,
            "zone": session.zone,
            "version": session.version,
            "http": session.http_url,
            "rules_known": session.rules_version,
            "is_drain_requested": session.is_drain_requested,
            "is_draining": session.is_draining,
            "draining_since_ms": _known(session.draining_since_ms),
            "since_ms": _known(session.started_ms),
        }
        for session_id, session in sorted(state.sessions.items(), key=lambda item: item[1].name)
    ]


def rules_view(state: ClusterState) -> View:
    """The rules version in force, the newest one that all live agents know, and since when it is held (None: not)."""
    return {
        "rules_version": state.rules_version,
        "rules_known_by_all": min((session.rules_version for session in state.sessions.values()), default=None),
        "rules_held_since_ms": state.rules_hold_since_ms,
    }


def maintenance_leader_name(state: ClusterState) -> str | None:
    """The agent that is the maintenance leader; None while there is none."""
    leader = None if state.maintenance_leader is None else state.sessions.get(state.maintenance_leader)
    return None if leader is None else leader.name


def _known(time_ms: Milliseconds) -> Milliseconds | None:
    return None if time_ms == NO_TIME else time_ms
