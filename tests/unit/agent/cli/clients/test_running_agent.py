"""An agent that answers is the one of some settings by its name and its bucket, and its ports are known."""

import json
import threading
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from agent.cli.clients.running_agent import AgentHidden, RunningAgent, agent_of
from agent.cli.clients.security import ClientSecurity, client_security
from agent.config.addresses import HostPort
from agent.config.settings import CliCommand, Settings, load_settings
from tests.support.ports import free_port

STORE = "file:///srv/store"
LEDGER = "etcd://127.0.0.1:2379/c"
HTTP = HostPort(host="127.0.0.1", port=9644)
ALICE = "Basic " + b64encode(b"alice:w").decode()


def settings(**options: str) -> Settings:
    given = {"name": "a", "store": STORE, "ledger": LEDGER, **options}
    return load_settings(CliCommand.AGENT, given, environment={})


def running(name: str = "a") -> RunningAgent:
    return RunningAgent(name=name, store=STORE, http=HTTP, listeners=["IN://127.0.0.1:9092", "OUT://[::1]:9093"])


def test_it_is_of_settings_with_its_name_and_its_bucket() -> None:
    assert running().is_of(settings())
    assert not running().is_of(settings(name="b"))
    assert not running().is_of(settings(store="file:///srv/other"))


def test_of_several_processes_the_first_has_the_ports_that_are_named() -> None:
    assert running("a-0").is_of(settings(processes="2"))
    assert not running("a").is_of(settings(processes="2"))


@pytest.mark.parametrize(
    ("host", "port", "is_taken"),
    [("127.0.0.1", 9644, True), ("127.0.0.1", 9092, True), ("::1", 9093, True), ("127.0.0.1", 9093, False)],
)
def test_its_ports_are_those_of_its_listeners_and_of_http(host: str, port: int, is_taken: bool) -> None:
    assert running().has_taken(HostPort(host=host, port=port)) is is_taken


def test_without_a_process_there_is_no_agent() -> None:
    assert agent_of(settings(http=f"127.0.0.1:{free_port()}")) is None


class ProtectedAgent(BaseHTTPRequestHandler):
    """Shows what it runs on to alice, its name to others, and rejects wrong passwords."""

    def do_GET(self) -> None:
        shown = self.headers.get("Authorization")
        status: object = {"name": "a", "is_ready": True}
        if shown == ALICE:
            status = {"name": "a", "store": STORE, "listeners": ["SASL_PLAINTEXT://127.0.0.1:9092"]}
        elif shown is not None:
            status = {"error": {"message": "the password is wrong", "remedy": "send another"}}
        body = json.dumps(status).encode()
        self.send_response(200 if shown in (None, ALICE) else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: a test's output is its own."""


@pytest.fixture
def protected() -> Iterator[Settings]:
    """The settings of a protected agent that runs."""
    with ThreadingHTTPServer(("127.0.0.1", 0), ProtectedAgent) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield settings(http=f"127.0.0.1:{server.server_address[1]}")
        server.shutdown()
        thread.join()


def user(folder: Path, password: str) -> ClientSecurity:
    path = folder / "client.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config=x.PlainLoginModule required username="alice" password="{password}";\n'
    )
    return client_security(str(path), None)


def test_a_protected_agent_is_known_by_a_user_that_may_describe_the_cluster(
    protected: Settings, tmp_path: Path
) -> None:
    with pytest.raises(AgentHidden, match=r"the agent a uses it.*give --command-config FILE"):
        agent_of(protected)
    agent = agent_of(protected, user(tmp_path, "w"))
    assert agent is not None
    assert agent.is_of(protected)
    assert agent.has_taken(HostPort(host="127.0.0.1", port=9092))


def test_the_reason_is_given_why_an_agent_does_not_answer_a_user(protected: Settings, tmp_path: Path) -> None:
    with pytest.raises(AgentHidden, match="does not say which agent it is: the password is wrong; send another"):
        agent_of(protected, user(tmp_path, "other"))
    with pytest.raises(AgentHidden, match="no agent answers at"):
        agent_of(settings(http=f"127.0.0.1:{free_port()}"), user(tmp_path, "w"))
