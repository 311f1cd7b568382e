"""What clients are told of the cluster: brokers, leaders, epochs. Pure functions of the state.

Rule: an agent is in the answer while its session is in the state. A leader is only a hint for caches: any agent serves
any partition, and its epoch never changes (architecture: fetch).
"""

from dataclasses import dataclass

from coordinator.state import ClusterState, SessionState
from protocol.errors import ErrorCode
from protocol.types import LEADER_EPOCH, SessionId

NO_LEADER_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerView:
    node_id: int
    host: str
    port: int
    zone: str | None


def brokers(state: ClusterState, listener: str) -> list[BrokerView]:
    """Every live agent with the address of its listener of that name (or its first), by node id."""
    return sorted((_view(session, listener) for session in state.sessions.values()), key=lambda view: view.node_id)


def this_broker(state: ClusterState, session: SessionId, listener: str) -> BrokerView | None:
    """The agent whose session it is; None while the session is being replaced."""
    known = state.sessions.get(session)
    return None if known is None else _view(known, listener)


def _view(session: SessionState, listener: str) -> BrokerView:
    named = [endpoint for endpoint in session.endpoints if endpoint.listener == listener]
    endpoint = (named or list(session.endpoints))[0]
    return BrokerView(node_id=session.node_id, host=endpoint.host, port=endpoint.port, zone=session.zone)


def leader_epoch_error(epoch: int) -> ErrorCode:
    """What a client with this idea of the leader's epoch is told (KIP-320); -1 means that it has none."""
    if epoch in (NO_LEADER_EPOCH, LEADER_EPOCH):
        return ErrorCode.none
    return ErrorCode.fenced_leader_epoch if epoch < LEADER_EPOCH else ErrorCode.unknown_leader_epoch
