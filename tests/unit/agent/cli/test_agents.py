"""What `penstock agents` prints."""

import pytest

from agent.cli import agents
from agent.cli.clients.http_client import AgentServer, Json
from protocol.limits import LEDGER_WAIT_SECONDS_MAX

SERVER = AgentServer(address="127.0.0.1:9644")
AGENT: Json = {
    "name": "a",
    "node_id": 1,
    "session": 3,
    "zone": None,
    "version": None,
    "http": None,
    "rules_known": 6,
    "is_drain_requested": False,
    "is_draining": False,
    "draining_since_ms": None,
    "since_ms": None,
}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "no"),
        ({"is_drain_requested": True}, "requested"),
        ({"is_draining": True}, "yes"),
        ({"is_draining": True, "draining_since_ms": 1_700_000_000_999}, "2023-11-14 22:13:20Z"),
    ],
)
def test_a_drain_is_shown_with_what_is_known_of_it(changes: Json, text: str) -> None:
    assert agents.draining_text({**AGENT, **changes}) == text


@pytest.mark.parametrize(("since_ms", "text"), [(None, "not held"), (1_700_000_000_000, "2023-11-14 22:13:20Z")])
def test_a_hold_of_the_rules_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], since_ms: int | None, text: str
) -> None:
    answer: Json = {"rules_version": 6, "rules_known_by_all": 7, "rules_held_since_ms": since_ms, "agents": [AGENT]}

    def get(server: AgentServer, path: str) -> Json:
        assert (server, path) == (SERVER, "/api/agents")
        return answer

    monkeypatch.setattr(agents, "get", get)
    agents.list_agents(server=SERVER.address, token_file=None, command_config=None, ca=None)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["rules", "in", "force", "6"]
    assert lines[1] == ["rules", "known", "by", "all", "7"]
    assert lines[2] == ["rules", "held", "since", *text.split()]
    assert lines[4] == ["a", "-", "-", "6", "no", "-", "-"]


@pytest.mark.parametrize(("is_draining", "words"), [(True, "b drains: its clients"), (False, "b is asked to drain")])
def test_a_drain_says_whether_it_has_begun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_draining: bool, words: str
) -> None:
    def post(server: AgentServer, path: str, body: Json, *, seconds_max: float) -> Json:
        assert (server, path, body) == (SERVER, "/api/agents/b%2F/drain", {})
        assert seconds_max > LEDGER_WAIT_SECONDS_MAX
        return {"agent": "b/", "is_draining": is_draining}

    monkeypatch.setattr(agents, "post", post)
    agents.drain("b/", server=SERVER.address, token_file=None, command_config=None, ca=None)
    assert words.replace("b", "b/", 1) in capsys.readouterr().out
