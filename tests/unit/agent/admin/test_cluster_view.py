"""Who is told to clients, and which zone a client is in."""

import pytest

from agent.admin.cluster_view import BrokerView, Placements, brokers, client_zone, controller
from coordinator.commands.commands import Endpoint, EndSession, StartDrain
from coordinator.state.rendezvous import Placement
from coordinator.state.state import ClusterState, SessionState
from protocol.types import SessionId
from tests.support.commands.commands import Cluster, start


def two_agents() -> Cluster:
    cluster = Cluster()
    cluster.do(start("a", node=9), session=1)
    cluster.do(start("b", node=2), session=2)
    return cluster


def node_ids(state: ClusterState) -> list[int]:
    return [broker.node_id for broker in brokers(state.sessions, "PLAINTEXT", start("asked", node=5))]


class TestBrokers:
    def test_live_agents_are_told_by_node_id(self) -> None:
        assert node_ids(two_agents().state) == [2, 9]

    def test_who_drains_or_has_ended_is_not_told(self) -> None:
        cluster = two_agents()
        cluster.do(StartDrain(session=SessionId(1)))
        assert node_ids(cluster.state) == [2]
        cluster.do(EndSession(session=SessionId(1)))
        assert node_ids(cluster.state) == [2]

    def test_where_all_drain_all_are_told(self) -> None:
        cluster = two_agents()
        for session in (1, 2):
            cluster.do(StartDrain(session=SessionId(session)), session=session)
        assert node_ids(cluster.state) == [2, 9]

    def test_while_none_lives_it_is_the_agent_that_is_asked(self) -> None:
        cluster = two_agents()
        for session in (1, 2):
            cluster.do(EndSession(session=SessionId(session)), session=session)
        assert node_ids(cluster.state) == [5]

    def test_an_address_is_that_of_the_listener_or_the_first(self) -> None:
        state = ClusterState.empty("c", 1)
        endpoints = (Endpoint(listener="IN", host="h", port=1), Endpoint(listener="OUT", host="o", port=2))
        state.sessions[SessionId(1)] = SessionState(
            name="a", node_id=1, endpoints=endpoints, zone="z", rules_version=1, entry_next=1
        )
        assert brokers(state.sessions, "OUT", start()) == [BrokerView(node_id=1, host="o", port=2, zone="z")]
        assert brokers(state.sessions, "OTHER", start()) == [BrokerView(node_id=1, host="h", port=1, zone="z")]


class TestPlacements:
    def test_a_placement_is_kept_until_sessions_change(self) -> None:
        cluster, placements = two_agents(), Placements()
        first = placements.of(cluster.state.sessions)
        assert placements.of(cluster.state.sessions) is first
        cluster.do(StartDrain(session=SessionId(1)))
        second = placements.of(cluster.state.sessions)
        assert second is not first
        cluster.do(EndSession(session=SessionId(2)))
        assert placements.of(cluster.state.sessions) is not second


class TestZones:
    @pytest.mark.parametrize(
        ("client_id", "listener", "expected"),
        [
            ("", "PLAINTEXT", None),
            ("zone=eu-1a", "PLAINTEXT", "eu-1a"),
            ("orders,zone=eu-1a", "PLAINTEXT", "eu-1a"),
            ("zone=eu-1a,orders-StreamThread-1-producer", "EU_1B", "eu-1a"),
            ("orders", "EU_1B", "eu-1b"),
            ("myzone=eu-1a", "PLAINTEXT", None),
            ("zone=nowhere", "EU_1B", "nowhere"),
        ],
    )
    def test_a_zone_is_in_the_client_id_or_the_listeners_name(
        self, client_id: str, listener: str, expected: str | None
    ) -> None:
        sessions = {
            SessionId(number): SessionState(
                name=zone, node_id=number, endpoints=(), zone=zone, rules_version=1, entry_next=1
            )
            for number, zone in enumerate(("eu-1a", "eu-1b"), 1)
        }
        assert client_zone(Placement(sessions), client_id, listener) == expected


class TestController:
    def test_an_agent_names_itself_unless_it_sends_its_clients_away(self) -> None:
        """Another one may be dead, though its session is not over: a client that waits for it waits in vain."""
        alive = [BrokerView(node_id=node_id, host="h", port=1, zone=None) for node_id in (3, 7)]
        assert [controller(alive, answering) for answering in (3, 7, 9)] == [3, 7, 3]
        assert controller([], 3) == -1
