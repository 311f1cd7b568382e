"""A node id follows from the name, and is nobody else's (safety rule S12)."""

import pytest

from agent.ledger.node_ids import node_id_of
from coordinator.state.state import SessionState


def session(name: str, node_id: int) -> SessionState:
    return SessionState(name=name, node_id=node_id, endpoints=(), zone=None, rules_version=1, entry_next=1)


@pytest.mark.parametrize(
    ("name", "node_id"), [("penstock", 1), ("agent-1", 226_182_553), ("agent-2", 343_020_579), ("é", 235_179_326)]
)
def test_it_is_the_same_in_every_process(name: str, node_id: int) -> None:
    assert node_id_of(name, []) == node_id


def test_s12_an_id_that_another_agent_has_is_not_taken() -> None:
    taken = [session("other", 1), session("another", 2), session("penstock", 3)]
    assert node_id_of("penstock", taken) == 3
    assert node_id_of("agent-1", [session("x", node_id_of("agent-1", []))]) == node_id_of("agent-1", []) + 1
