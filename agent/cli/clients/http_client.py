"""A client of a running agent's HTTP port, for the commands that have --server."""

import json
import os
import ssl
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple
from urllib.parse import quote, urlencode

import typer

from agent.cli.clients.security import (
    ENCRYPTED,
    NO_SECURITY,
    OAUTHBEARER,
    PLAINTEXT,
    PROTOCOLS,
    WITHOUT_LOGIN,
    ClientLogin,
    ClientSecurity,
    untrusted,
)
from agent.cli.failure import EXIT_USAGE, CommandFailed, Unavailable
from agent.config.addresses import (
    HostPort,
    InvalidAddress,
    is_loopback,
    read_host_port,
    read_http_address,
    read_listener,
)
from iceberg_export.jobs.agents import AUTHORIZATION_VARIABLE, read_token
from iceberg_export.spark.options import OptionError
from protocol.decoding import Undecodable, decode_json
from protocol.limits import CLIENT_ANSWER_SECONDS_MAX

if TYPE_CHECKING:
    from http.client import HTTPConnection

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
HINT_UNAUTHENTICATED = " (--token-file FILE, or PENSTOCK_TOKEN_FILE, or --command-config FILE with a user)"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentServer:
    """The HTTP port of a running agent, [https://]HOST:PORT. `agent.cli.server_flags` reads the flags of it."""

    address: str
    token_file: str | None = None
    """The file with the bearer token that requests carry; None for an agent that needs none."""
    security: ClientSecurity = NO_SECURITY
    """How connections to the agent are encrypted."""

    @property
    def job_arguments(self) -> list[str]:
        """The flags of a job of `iceberg_export.jobs` that asks this agent."""
        token = ["--token-file", self.token_file] if self.token_file else []
        authorities = self.security.authorities
        ca = ["--ca", str(authorities)] if authorities else []
        return ["--agent", self.address, *token, *ca]

    @property
    def job_environment(self) -> dict[str, str]:
        """The further environment of such a job: the user of --command-config, unless there is a token's file."""
        headers = {} if self.token_file else self.headers()
        return {AUTHORIZATION_VARIABLE: headers["Authorization"]} if headers else {}

    def headers(self) -> dict[str, str]:
        """The headers of every request: a token, else the user of --command-config.

        A password goes to no other machine without encryption. Raises `CommandFailed`, or `InvalidAddress`.
        """
        try:
            token = read_token(self.token_file or "")
        except OptionError as error:
            raise CommandFailed(str(error), exit_code=EXIT_USAGE) from error
        if token:
            return {"Authorization": f"Bearer {token}"}
        login = self.security.login()
        if login is None:
            return {}
        is_https, address = read_http_address(self.address)
        if not is_https and not is_loopback(address.host):
            return {}
        if login.mechanism == OAUTHBEARER:
            return {"Authorization": f"Bearer {login.password}"}
        return {"Authorization": "Basic " + b64encode(f"{login.user}:{login.password}".encode()).decode()}


class KafkaAddress(NamedTuple):
    """The address of a Kafka listener, and how to connect to it."""

    address: HostPort
    security: ClientSecurity | None
    """None where the listener does not encrypt."""
    login: ClientLogin | None = None


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


def kafka_address(server: AgentServer, bootstrap: str | None) -> KafkaAddress:
    """The address of the agent's Kafka listener: `bootstrap`, or the first fitting one that the agent returns.

    A listener fits that has the protocol of --command-config or, where that names none, one that needs no log-in.
    """
    security = server.security
    protocol = security.protocol
    try:
        if bootstrap is not None:
            own_security = security if security.is_encrypted else None
            return KafkaAddress(read_host_port(bootstrap), own_security, security.login())
        status = get(server, "/api/status")
        listeners, protocols = status["kafka"], status.get("protocols", {})
        assert isinstance(listeners, list), "status lists the Kafka listeners"
        assert isinstance(protocols, dict), "and their protocols"
        addresses = [read_listener(str(each)) for each in listeners]
    except InvalidAddress as error:
        raise CommandFailed(f"--bootstrap: {error}", exit_code=EXIT_USAGE) from error
    # A user without DESCRIBE on the cluster does not see the protocols; a listener's name mostly is its protocol.
    is_shown = "protocols" in status
    for address in addresses:
        by_name = PLAINTEXT if is_shown or address.name not in PROTOCOLS else address.name
        own_protocol = str(protocols.get(address.name, by_name))
        if own_protocol == protocol or (protocol is None and own_protocol in WITHOUT_LOGIN):
            host_port = HostPort(host=address.host, port=address.port)
            return KafkaAddress(host_port, security if own_protocol in ENCRYPTED else None, security.login())
    raise CommandFailed(
        f"no listener of the agent speaks {protocol or ' or '.join(WITHOUT_LOGIN)}; "
        f"its listeners are {', '.join(map(str, listeners))}. --command-config FILE has the protocol and the user"
        + ("" if is_shown else ". The agent shows their protocols to who may DESCRIBE the cluster: give --bootstrap"),
        exit_code=EXIT_USAGE,
    )


def _ask(server: AgentServer, method: str, path: str, body: bytes | None, seconds_max: float) -> Json:
    from http.client import BadStatusLine, HTTPException

    try:
        is_https, address = read_http_address(server.address)
    except InvalidAddress as error:
        raise CommandFailed(f"--server: {error}", exit_code=EXIT_USAGE) from error
    headers = server.headers() | ({"Content-Type": "application/json"} if body else {})
    url = f"{'https' if is_https else 'http'}://{address}"
    connection = _connection(address, seconds_max, server.security.context() if is_https else None)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        data = response.read()
    except TimeoutError as error:
        raise NoAnswerInTime(f"{url} did not answer within {seconds_max:.0f} s: see the agent's log") from error
    except ssl.SSLError as error:
        raise Unavailable(untrusted(url, error)) from error
    except (ConnectionResetError, BadStatusLine) as error:
        # A Kafka listener closes what does not speak its protocol.
        raise Unavailable(
            f"{address} closed the connection without an HTTP answer. If it encrypts, give --server https://{address}. "
            "If it is the Kafka port: --server takes an agent's HTTP address (--http, port 9644 by default), "
            "--bootstrap that of its Kafka listener (--listen)"
        ) from error
    except (OSError, HTTPException) as error:
        raise Unavailable(
            f"no agent answers at {url}: {error}. Is it running? --server takes its HTTP address.",
        ) from error
    finally:
        connection.close()
    try:
        value = decode_json(data)
    except Undecodable as error:
        raise CommandFailed(f"the answer of {url}{path} is not JSON: is it a Penstock agent's HTTP address?") from error
    if response.status >= 400 or not isinstance(value, dict):
        raise CommandFailed(_words(value) + (HINT_UNAUTHENTICATED if response.status == 401 else ""))
    return value


def _connection(address: HostPort, seconds_max: float, context: ssl.SSLContext | None) -> "HTTPConnection":
    from http.client import HTTPConnection, HTTPSConnection

    host = address.host or "127.0.0.1"
    if context is None:
        return HTTPConnection(host, address.port, timeout=seconds_max)
    return HTTPSConnection(host, address.port, timeout=seconds_max, context=context)


def _words(value: object) -> str:
    match value:
        case {"error": {"message": message, "remedy": remedy}}:
            return f"{message}; {remedy}"
        case _:
            return f"the agent answered {value!r}"
