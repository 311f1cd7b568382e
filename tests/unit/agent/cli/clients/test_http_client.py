"""A command's requests carry the token of --token-file, and a rejection says how to give one."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent.cli.clients.http_client import AgentServer, get
from agent.cli.clients.security import ClientSecurity
from agent.cli.failure import EXIT_USAGE, CommandFailed
from agent.cli.main import app
from iceberg_export.jobs.agents import AUTHORIZATION_VARIABLE

TOKEN = "0123456789abcdef"


class OnlyWithToken(BaseHTTPRequestHandler):
    """Answers like an agent that has one token."""

    def do_GET(self) -> None:
        is_known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        answer: object = (
            {"topics": []} if is_known else {"error": {"message": "a token is required", "remedy": "send one"}}
        )
        body = json.dumps(answer).encode()
        self.send_response(200 if is_known else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: a test's output is its own."""


@pytest.fixture
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), OnlyWithToken) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    file = tmp_path / "tokens"
    file.write_text(f"User:alice {TOKEN}\n")
    return str(file)


@pytest.mark.parametrize("way", ["flag", "variable"])
def test_a_command_sends_the_token_of_its_file(address: str, token_file: str, way: str) -> None:
    arguments = ["topics", "list", "--server", address, *(["--token-file", token_file] if way == "flag" else [])]
    env = {"PENSTOCK_TOKEN_FILE": token_file} if way == "variable" else {}
    done = CliRunner().invoke(app, arguments, env=env)
    assert (done.exit_code, done.stdout) == (0, "There are no topics yet.\n")


def test_without_a_token_the_error_says_how_to_give_one(address: str) -> None:
    with pytest.raises(CommandFailed, match=r"a token is required; send one \(--token-file FILE"):
        get(AgentServer(address=address), "/api/topics")


def test_a_file_that_is_not_there_is_the_callers_error(address: str, tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="cannot be read") as failed:
        get(AgentServer(address=address, token_file=str(tmp_path / "none")), "/api/topics")
    assert failed.value.exit_code == EXIT_USAGE


def test_jobs_get_the_file_and_not_the_token() -> None:
    """A process's arguments are seen by every user of the machine."""
    assert AgentServer(address="a:1").job_arguments == ["--agent", "a:1"]
    assert AgentServer(address="a:1", token_file="t").job_arguments == ["--agent", "a:1", "--token-file", "t"]
    security = ClientSecurity(ca=Path("/ca.pem"))
    assert AgentServer(address="a:1", security=security).job_arguments == ["--agent", "a:1", "--ca", "/ca.pem"]


def test_jobs_get_authorities_by_the_properties_and_the_user_by_their_environment(token_file: str) -> None:
    configs = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": 'x.ScramLoginModule required username="alice" password="w";',
        "ssl.truststore.location": "/trust.pem",
        "ssl.truststore.type": "PEM",
    }
    server = AgentServer(address="https://a:1", security=ClientSecurity(configs=configs))
    assert server.job_arguments == ["--agent", "https://a:1", "--ca", "/trust.pem"]
    assert server.job_environment == {AUTHORIZATION_VARIABLE: "Basic YWxpY2U6dw=="}
    assert replace(server, address="http://a:1").job_environment == {}, "no password leaves without encryption"
    assert replace(server, token_file=token_file).job_environment == {}
    keystore = ClientSecurity(configs={**configs, "ssl.truststore.type": "PKCS12"})
    with pytest.raises(CommandFailed, match="Give theirs with --ca FILE"):
        _ = replace(server, security=keystore).job_arguments
