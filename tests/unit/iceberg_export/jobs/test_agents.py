"""What a job says of an address where no agent answers, and of tokens."""

import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from iceberg_export.jobs.agents import (
    AUTHORIZATION_VARIABLE,
    AgentAddress,
    AgentUnavailable,
    authorization_of_job,
    read_token,
)
from iceberg_export.spark.options import OptionError
from tests.support.certificates import TestAuthority


@pytest.mark.parametrize("address", ["127.0.0.1:1", "localhost:x", "[::1", "a" * 70 + ":9644", "a..b:9644"])
def test_an_address_where_nobody_answers_is_told(address: str) -> None:
    with pytest.raises(AgentUnavailable, match="no agent answers at http://"):
        AgentAddress(address).get("/api/status")


def test_the_token_is_the_first_of_the_agents_file(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("# of this month\n\n  0123456789abcdef \nfedcba9876543210\n")
    assert (read_token(str(file)), read_token("")) == ("0123456789abcdef", "")


def test_a_line_may_name_the_user_of_its_token(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("User:spark  0123456789abcdef\n")
    assert read_token(str(file)) == "0123456789abcdef"


def test_a_login_comes_in_the_environment_and_a_token_in_a_file_goes_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert authorization_of_job("") == ""
    monkeypatch.setenv(AUTHORIZATION_VARIABLE, "Basic YWxpY2U6dw==")
    assert authorization_of_job("") == "Basic YWxpY2U6dw=="
    file = tmp_path / "tokens"
    file.write_text("0123456789abcdef\n")
    assert authorization_of_job(str(file)) == "Bearer 0123456789abcdef"


@pytest.mark.parametrize("text", ["", "# none\n", None])
def test_a_file_without_a_token_is_reported(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "tokens"
    if text is not None:
        file.write_text(text)
    with pytest.raises(OptionError, match=r"has no token|cannot be read"):
        read_token(str(file))


def test_an_agent_that_encrypts_is_asked_over_tls(tmp_path: Path) -> None:
    authority = TestAuthority(folder=tmp_path)
    files = authority.issue("agent")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.both)

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that it overrides
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"https://127.0.0.1:{server.server_port}"
            assert AgentAddress(address, ca_file=str(authority.ca_path)).get("/api/status") == b"{}"
            with pytest.raises(AgentUnavailable, match=rf"no agent answers at {address}: .*CERTIFICATE_VERIFY_FAILED"):
                AgentAddress(address).get("/api/status")
        finally:
            server.shutdown()
            thread.join()
