"""The cluster as clients see it: brokers, leaders, zones, epochs.

All of it follows from the state and the request, so every agent answers alike. There are two exceptions: an agent names
itself as the controller, and one that is cut off from the ledger names others as leaders and coordinators
(`agent.request.cut_off`). A leader is only a hint for caches: any agent serves any partition, and the leader epoch
never changes.

A client's zone is the element `zone=NAME` of its client id, whose elements are separated by commas, as in
"orders,zone=eu-1a". Without one it is the zone that has the listener's name, in capitals and with `_` for each other
character. A consumer also sends its rack in Fetch (KIP-392).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coordinator.commands.commands import Endpoint, StartSession
from coordinator.state.rendezvous import Placement, staying
from coordinator.state.state import ClusterState, SessionState
from protocol.errors import ErrorCode
from protocol.types import LEADER_EPOCH, SessionId

NO_LEADER_EPOCH = -1
ZONE_ELEMENT = "zone="
_NOT_IN_LISTENER_NAMES = re.compile(r"[^A-Z0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerView:
    """One broker in an answer to a client."""

    node_id: int
    host: str
    port: int
    zone: str | None


def controller(alive: Sequence[BrokerView], answering: int) -> int:
    """Node id of the broker to which clients send admin requests, which any agent answers; -1 while none is alive.

    It is the agent that answers, unless it sends its clients away. Another one may have died and be in `alive` until
    its session is over, and librdkafka's admin client waits for such a controller until its request times out. Kafka
    names any living broker. Source: org.apache.kafka.metadata.KRaftMetadataCache.getRandomAliveBrokerId (Kafka 4.3).
    """
    if any(broker.node_id == answering for broker in alive):
        return answering
    return alive[0].node_id if alive else -1


class Placements:
    """The placement over the live sessions, cached until these change."""

    def __init__(self) -> None:
        self._live: list[tuple[SessionId, bool]] = []
        self._placement = Placement({})

    def of(self, sessions: Mapping[SessionId, SessionState]) -> Placement:
        live = [(session_id, session.is_draining) for session_id, session in sessions.items()]
        if live != self._live:
            self._live, self._placement = live, Placement(sessions)
        return self._placement


def brokers(sessions: Mapping[SessionId, SessionState], listener: str, answering: StartSession) -> list[BrokerView]:
    """Every agent of the sessions that does not drain, with its address on the listener (or its first), by node id.

    Without any it is the agent that answers: clients need a broker to retry at.
    """
    living = staying(sessions).values() or [answering]
    return sorted((_view(agent, listener) for agent in living), key=_node_id)


def leaving_brokers(state: ClusterState, listener: str) -> list[BrokerView]:
    """The agents that drain while others do not, by node id: `brokers` names all but these."""
    living = staying(state.sessions)
    leaving = (agent for session_id, agent in state.sessions.items() if session_id not in living)
    return sorted((_view(agent, listener) for agent in leaving), key=_node_id)


def agent_of(state: ClusterState, session: SessionId, listener: str) -> BrokerView | None:
    """The agent of the session; None where the session is not live."""
    agent = state.sessions.get(session)
    return None if agent is None else _view(agent, listener)


def shares_address(own: tuple[Endpoint, ...], other: tuple[Endpoint, ...], listener: str) -> bool:
    """Whether two agents have the same address for clients of a listener."""
    mine, theirs = endpoint_of(own, listener), endpoint_of(other, listener)
    return mine is not None and theirs is not None and (mine.host, mine.port) == (theirs.host, theirs.port)


def endpoint_of(endpoints: tuple[Endpoint, ...], listener: str) -> Endpoint | None:
    """An agent's address on a listener; None where it has none."""
    return next((endpoint for endpoint in endpoints if endpoint.listener == listener), None)


def sessions_behind(state: ClusterState, listener: str, answering: StartSession) -> frozenset[SessionId]:
    """The sessions of the agents that clients of a listener reach by the address of the one that answers.

    Several agents have one address where a load balancer is in front of them. A client that asks each broker of its
    metadata reaches any of them then, so each answers for all.
    """
    return frozenset(
        session_id
        for session_id, session in state.sessions.items()
        if shares_address(answering.endpoints, session.endpoints, listener)
    )


def client_zone(placement: Placement, client_id: str, listener: str) -> str | None:
    """The client's zone; None where neither client id nor listener names one. There may be no agent in it."""
    for element in client_id.split(","):
        if element.startswith(ZONE_ELEMENT):
            return element.removeprefix(ZONE_ELEMENT)
    return next((zone for zone in placement.zones if _NOT_IN_LISTENER_NAMES.sub("_", zone.upper()) == listener), None)


def leader_epoch_error(epoch: int) -> ErrorCode:
    """The error for a client that names this leader epoch (KIP-320); -1 means that it names none."""
    if epoch in (NO_LEADER_EPOCH, LEADER_EPOCH):
        return ErrorCode.none
    return ErrorCode.fenced_leader_epoch if epoch < LEADER_EPOCH else ErrorCode.unknown_leader_epoch


def _view(agent: SessionState | StartSession, listener: str) -> BrokerView:
    named = [endpoint for endpoint in agent.endpoints if endpoint.listener == listener]
    endpoint = (named or list(agent.endpoints))[0]
    return BrokerView(node_id=agent.node_id, host=endpoint.host, port=endpoint.port, zone=agent.zone)


def _node_id(broker: BrokerView) -> int:
    return broker.node_id
