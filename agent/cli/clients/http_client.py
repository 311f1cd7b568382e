"""A client of a running agent's HTTP port, for the commands that have --server."""

import json
import os
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import quote, urlencode

import typer

from agent.cli.failure import EXIT_USAGE, CommandFailed, Unavailable
from agent.config.addresses import HostPort, InvalidAddress, read_host_port, read_listener
from protocol.decoding import Undecodable, decode_json
from protocol.limits import CLIENT_ANSWER_SECONDS_MAX

SERVER_DEFAULT = "127.0.0.1:9644"

ServerOption = Annotated[
    str,
    typer.Option("--server", envvar="PENSTOCK_SERVER", metavar="HOST:PORT", help="HTTP address of a running agent."),
]
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


class NoAnswerInTime(Unavailable):
    """The request was not answered in time. It may still be carried out."""


def get(
    server: str,
    path: str,
    query: Mapping[str, str] | None = None,
    *,
    seconds_max: float = CLIENT_ANSWER_SECONDS_MAX,
) -> Json:
    """The JSON object at `path`. Raises `CommandFailed` with the agent's message, `Unavailable` without an answer."""
    target = path + ("?" + urlencode(query, errors="surrogateescape") if query else "")
    return _ask(server, "GET", target, None, seconds_max)


def post(server: str, path: str, body: Mapping[str, object], *, seconds_max: float) -> Json:
    """Send a JSON object; returns the answer. Raises as `get` does."""
    return _ask(server, "POST", path, json.dumps(body).encode(), seconds_max)


def path_part(text: str) -> str:
    """A name, quoted as one part of a path."""
    return quote(os.fsencode(text), safe="")


def kafka_address(server: str, bootstrap: str | None) -> HostPort:
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


def _ask(server: str, method: str, path: str, body: bytes | None, seconds_max: float) -> Json:
    from http.client import BadStatusLine, HTTPConnection, HTTPException

    try:
        address = read_host_port(server)
    except InvalidAddress as error:
        raise CommandFailed(f"--server: {error}", exit_code=EXIT_USAGE) from error
    connection = HTTPConnection(address.host or "127.0.0.1", address.port, timeout=seconds_max)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
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
        raise CommandFailed(_words(value))
    return value


def _words(value: object) -> str:
    match value:
        case {"error": {"message": message, "remedy": remedy}}:
            return f"{message}; {remedy}"
        case _:
            return f"the agent answered {value!r}"
