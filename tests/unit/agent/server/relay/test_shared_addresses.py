"""An agent says that it shares an address for clients, and that nothing relays requests of groups."""

from collections.abc import Sequence

import pytest

from agent.runtime.notices import NoticeKind
from agent.server.relay.shared_addresses import REMEDY, SharedAddresses, groups_fault
from coordinator.commands.commands import Endpoint
from coordinator.state.state import SessionState
from tests.support.agent.ledger_parts import ManualClock

LB = Endpoint(listener="EXTERNAL", host="lb.example", port=9094)
RELAY = Endpoint(listener="RELAY", host="10.0.0.1", port=9095)
OWN = Endpoint(listener="INTERNAL", host="10.0.0.1", port=9092)


def session(name: str, *endpoints: Endpoint) -> SessionState:
    return SessionState(name=name, node_id=1, endpoints=endpoints, zone=None, rules_version=1, entry_next=0)


@pytest.mark.parametrize(
    ("endpoints", "sessions", "named"),
    [
        ((OWN, LB), [session("b", LB)], "of 2 agents, and 2 of them (a, ...) have no listener RELAY"),
        ((OWN, LB, RELAY), [session("b", LB)], "agent b has"),
        ((OWN, LB), [session("b", LB, RELAY), session("c", LB, RELAY)], "of 3 agents, and agent a has"),
        ((OWN, LB, RELAY), [session("b", LB, RELAY)], ""),
        ((OWN,), [session("b", LB)], ""),
        ((OWN, LB), [session("a", LB)], ""),
        ((LB,), [session("b", Endpoint(listener="OTHER", host=LB.host, port=LB.port))], ""),
    ],
)
def test_the_agents_without_a_relay_are_named(
    endpoints: tuple[Endpoint, ...], sessions: Sequence[SessionState], named: str
) -> None:
    fault = groups_fault("a", endpoints, sessions)
    assert named in fault
    assert bool(fault) is bool(named)
    assert not fault or fault.startswith("lb.example:9094 of listener EXTERNAL is the address of")


async def test_it_is_said_once_it_lasts_longer_than_the_session_of_a_dead_agent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, sessions = ManualClock(), [session("b", LB)]
    shared = SharedAddresses("a", (LB,), sessions=lambda: sessions, clock=clock)
    await shared.check()
    clock.seconds += 9.0
    await shared.check()
    assert (shared.notices(), caplog.messages) == ([], [])
    clock.seconds += 2.0
    for _ in range(2):
        await shared.check()
    (notice,) = shared.notices()
    assert notice.kind is NoticeKind.GROUPS_DO_NOT_FORM
    assert REMEDY in notice.detail
    assert "--listen RELAY://HOST:9095" in notice.detail
    assert caplog.messages == [NoticeKind.GROUPS_DO_NOT_FORM.value]
    sessions.clear()
    await shared.check()
    assert shared.notices() == []
