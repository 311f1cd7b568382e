"""What people and programs are shown of agents and rules."""

from agent.views.agents import agent_rows, maintenance_leader_name, rules_view
from coordinator.configs.rules_hold import RULES_HOLD
from coordinator.state.state import EVERY_BROKER, ClusterState, SessionState
from protocol.types import Milliseconds, SessionId


def session(name: str, node: int, *, rules: int = 7) -> SessionState:
    return SessionState(name=name, node_id=node, endpoints=(), zone=None, rules_version=rules, entry_next=1)


def state_of(*sessions: SessionState) -> ClusterState:
    state = ClusterState.empty("cluster", 1)
    state.sessions = {SessionId(9 - number): one for number, one in enumerate(sessions)}
    return state


def test_agents_are_listed_by_name_with_all_that_is_known() -> None:
    known = session("b", 2)
    known.zone, known.http_url, known.version = "z", "http://b:1", "1.2.3"
    known.started_ms, known.draining_since_ms = Milliseconds(5), Milliseconds(7)
    known.is_draining = known.is_drain_requested = True
    unknown, shown = agent_rows(state_of(known, session("a", 1, rules=6)))
    assert shown == {
        "name": "b",
        "node_id": 2,
        "session": 9,
        "zone": "z",
        "version": "1.2.3",
        "http": "http://b:1",
        "rules_known": 7,
        "is_drain_requested": True,
        "is_draining": True,
        "draining_since_ms": 7,
        "since_ms": 5,
    }
    assert unknown["name"] == "a"
    assert [unknown[name] for name in ("version", "http", "since_ms", "draining_since_ms")] == [None] * 4


def test_the_rules_that_all_know_are_those_of_the_oldest_agent() -> None:
    state = state_of(session("a", 1), session("b", 2, rules=6))
    state.rules_version = 5
    assert rules_view(state) == {"rules_version": 5, "rules_known_by_all": 6, "rules_held_since_ms": None}
    state.broker_configs = {EVERY_BROKER: {RULES_HOLD: "1700"}}
    assert rules_view(state)["rules_held_since_ms"] == 1700
    assert rules_view(state_of())["rules_known_by_all"] is None


def test_the_maintenance_leader_is_named_while_its_session_lives() -> None:
    state = state_of(session("a", 1, rules=6), session("b", 2, rules=6))
    assert maintenance_leader_name(state) is None
    state.maintenance_leader = max(state.sessions)
    assert maintenance_leader_name(state) == state.sessions[max(state.sessions)].name
    del state.sessions[max(state.sessions)]
    assert maintenance_leader_name(state) is None
