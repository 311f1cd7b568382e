"""A client of a running agent's HTTP port, for the commands that have --server."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote, urlencode

import typer

from agent.cli.failure import EXIT_USAGE, CommandFailed, Unavailable
from agent.config.addresses import HostPort, InvalidAddress, read_host_port, read_listener
from iceberg_export.jobs.agents import read_token
from iceberg_export.spark.options import OptionError
from protocol.decoding import Undecodable, decode_json
from protocol.limits import CLIENT_ANSWER_SECONDS_MAX

JsonOption = Annotated[bool, typer.Option("--json", envvar="PENSTOCK_JSON", help="Print one JSON document.")]
BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        envvar="PENSTOCK_BOOTSTRAP",
        metavar="HOST:PORT",
        help="Kafka address of an agent; by default the agent at --server returns it.",
    ),
]

Json = dict[str, object]
HINT_UNAUTHENTICATED = " (--token-file FILE, or PENSTOCK_TOKEN_FILE)"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentServer:
    """The HTTP port of a running agent, HOST:PORT. `agent.cli.server_flags` reads it from the command line."""

    address: str
    token_file: str | None = None
    """The file with the bearer token that requests carry; None for an agent that needs none."""

    @property
    def job_arguments(self) -> list[str]:
        """The flags of a job of `iceberg_export.jobs` that asks this agent."""
        return ["--agent", self.address, *(["--token-file", self.token_file] if self.token_file else [])]

    def headers(self) -> dict[str, str]:
        """The headers of every request. Raises `CommandFailed` where the file has no token."""
        try:
            token = read_token(self.token_file or "")
        except OptionError as error:
            raise CommandFailed(str(error), exit_code=EXIT_USAGE) from error
        return {"Authorization": f"Bearer {token}"} if token else {}


class NoAnswerInTime(Unavailable):
    """The request was not answered in time. It may still be carried out."""


def get(
    server: AgentServer,
    path: str,
    query: Mapping[str, str] | None = None,
    *,
    seconds_max: float = CLIENT_ANSWER_SECONDS_MAX,
) -> Json:
    """The JSON object at `path`. Raises `CommandFailed` with the agent's message, `Unavailable` without an answer."""
    target = path + ("?" + urlencode(query, errors="surrogateescape") if query else "")
    return _ask(server, "GET", target, None, seconds_max)


def post(server: AgentServer, path: str, body: Mapping[str, object], *, seconds_max: float) -> Json:
    """Send a JSON object; returns the answer. Raises as `get` does."""
    return _ask(server, "POST", path, json.dumps(body).encode(), seconds_max)


def path_part(text: str) -> str:
    """A name, quoted as one part of a path."""
    return quote(os.fsencode(text), safe="")


def kafka_address(server: AgentServer, bootstrap: str | None) -> HostPort:
    """The address of the agent's Kafka listener: `bootstrap`, or the first one that the agent at `server` returns."""
    try:
        if bootstrap is not None:
            return read_host_port(bootstrap)
        listeners = get(server, "/api/status")["kafka"]
        assert isinstance(listeners, list), "status lists the Kafka listeners"
        listener = read_listener(str(listeners[0]))
    except InvalidAddress as error:
        raise CommandFailed(f"--bootstrap: {error}", exit_code=EXIT_USAGE) from error
    return HostPort(host=listener.host, port=listener.port)


def _ask(server: AgentServer, method: str, path: str, body: bytes | None, seconds_max: float) -> Json:
    from http.client import BadStatusLine, HTTPConnection, HTTPException

    try:
        address = read_host_port(server.address)
    except InvalidAddress as error:
        raise CommandFailed(f"--server: {error}", exit_code=EXIT_USAGE) from error
    headers = server.headers() | ({"Content-Type": "application/json"} if body else {})
    connection = HTTPConnection(address.host or "127.0.0.1", address.port, timeout=seconds_max)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        data = response.read()
    except TimeoutError as error:
        raise NoAnswerInTime(
            f"http://{address} did not answer within {seconds_max:.0f} s: see the agent's log"
        ) from error
    except (ConnectionResetError, BadStatusLine) as error:
        # A Kafka listener closes what does not speak its protocol.
        raise Unavailable(
            f"{address} closed the connection without an HTTP answer. Is that the Kafka port? --server takes an "
            "agent's HTTP address (--http, port 9644 by default), --bootstrap that of its Kafka listener (--listen)"
        ) from error
    except (OSError, HTTPException) as error:
        raise Unavailable(
            f"no agent answers at http://{address}: {error}. Is it running? --server takes its HTTP address.",
        ) from error
    finally:
        connection.close()
    try:
        value = decode_json(data)
    except Undecodable as error:
        raise CommandFailed(
            f"the answer of http://{address}{path} is not JSON: is it a Penstock agent's HTTP address?"
        ) from error
    if response.status >= 400 or not isinstance(value, dict):
        raise CommandFailed(_words(value) + (HINT_UNAUTHENTICATED if response.status == 401 else ""))
    return value


def _words(value: object) -> str:
    match value:
        case {"error": {"message": message, "remedy": remedy}}:
            return f"{message}; {remedy}"
        case _:
            return f"the agent answered {value!r}"
