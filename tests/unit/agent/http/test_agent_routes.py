"""Any agent lists all of them, and asks any of them to drain."""

from collections.abc import Callable

import pytest

from agent.http import agent_routes
from coordinator.commands.agents import RequestDrain
from coordinator.commands.commands import Command, Outcome, Rejected
from coordinator.commands.rules import RULES_AGENTS, RULES_NEWEST, RULES_QUOTA_USE
from coordinator.ledger.port import OutcomeUnknown
from coordinator.state.state import SessionState
from protocol.errors import ErrorCode
from protocol.types import SessionId
from tests.support.agent.asgi_client import Answer, AsgiClient
from tests.support.agent.http_app import http_app
from tests.support.agent.small_agent import SmallAgent, rows_of

OTHER = SessionId(4)


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> SmallAgent:
    """It has the name `a`, and there is another one, `b`, which does nothing."""
    monkeypatch.setattr(agent_routes, "REQUESTED_DRAIN_WAIT_SECONDS", 0.0)
    agent = SmallAgent()
    agent.state.rules_version = RULES_NEWEST
    for session in agent.state.sessions.values():
        session.rules_version = RULES_NEWEST
    agent.state.sessions[OTHER] = SessionState(
        name="b", node_id=2, endpoints=(), zone=None, rules_version=RULES_NEWEST, entry_next=1
    )
    return agent


async def drain(agent: SmallAgent, name: str = "b") -> Answer:
    return await AsgiClient(app=http_app(agent))("POST", f"/api/agents/{name}/drain", b"{}")


def code_of(answer: Answer) -> tuple[int, object]:
    error = answer.json()["error"]
    assert isinstance(error, dict)
    assert error["remedy"]
    return answer.status, error["code"]


async def test_agents_are_listed_with_the_rules(agent: SmallAgent) -> None:
    answer = await AsgiClient(app=http_app(agent))("GET", "/api/agents")
    told = answer.json()
    assert (answer.status, told["rules_version"], told["rules_held_since_ms"]) == (200, RULES_NEWEST, None)
    assert [row["name"] for row in rows_of(told, "agents")] == ["a", "b"]


class TestDrains:
    async def test_an_agent_is_asked_and_may_not_have_begun(self, agent: SmallAgent) -> None:
        answer = await drain(agent)
        assert (answer.status, answer.json()) == (200, {"agent": "b", "is_draining": False})
        assert agent.state.sessions[OTHER].is_drain_requested

    async def test_the_answer_says_that_it_has_begun(self, agent: SmallAgent, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(agent_routes, "REQUESTED_DRAIN_WAIT_SECONDS", 60.0)
        monkeypatch.setattr(agent_routes, "REQUESTED_DRAIN_POLL_SECONDS", 0.0)
        session = agent.state.sessions[OTHER]

        def begin(_: Command) -> None:
            session.is_draining = True

        agent.ledger.before = begin
        assert (await drain(agent)).json() == {"agent": "b", "is_draining": True}

    async def test_an_agent_that_ends_meanwhile_does_not_drain(self, agent: SmallAgent) -> None:
        apply = agent.ledger.apply

        def end(command: Command) -> Outcome:
            outcome = apply(command)
            del agent.state.sessions[OTHER]
            return outcome

        agent.ledger.apply = end  # type: ignore[method-assign]
        assert (await drain(agent)).json() == {"agent": "b", "is_draining": False}

    async def test_an_agent_that_is_not_there_is_unknown(self, agent: SmallAgent) -> None:
        assert code_of(await drain(agent, "c")) == (404, "unknown_agent")

    async def test_the_last_agent_goes_on(self, agent: SmallAgent) -> None:
        assert (await drain(agent)).status == 200
        assert code_of(await drain(agent, "a")) == (409, "last_agent")

    async def test_s3_older_rules_have_no_requests(self, agent: SmallAgent) -> None:
        agent.state.rules_version = RULES_QUOTA_USE
        assert RULES_QUOTA_USE < RULES_AGENTS
        assert code_of(await drain(agent)) == (409, "older_rules")
        assert not agent.state.sessions[OTHER].is_drain_requested

    @pytest.mark.parametrize(
        ("error_code", "expected"),
        [
            (ErrorCode.broker_id_not_registered, (404, "unknown_agent")),
            (ErrorCode.request_timed_out, (503, "unavailable")),
        ],
    )
    async def test_what_the_ledger_rejects_is_an_error(
        self, agent: SmallAgent, error_code: ErrorCode, expected: tuple[int, str]
    ) -> None:
        def reject(command: Command) -> Outcome:
            assert command == RequestDrain(session=OTHER)
            return Rejected(error_code=error_code, reason="so")

        agent.ledger.apply = reject  # type: ignore[method-assign]
        assert code_of(await drain(agent)) == expected

    async def test_an_outcome_that_is_not_known_is_said(self, agent: SmallAgent) -> None:
        def fail(command: Command) -> None:
            assert command == RequestDrain(session=OTHER)
            raise OutcomeUnknown("lost")

        before: Callable[[Command], None] = fail
        agent.ledger.before = before
        assert code_of(await drain(agent)) == (503, "outcome_unknown")
