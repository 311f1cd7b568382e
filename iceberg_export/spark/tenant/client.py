"""A client of an agent's HTTP port: requests in threads of its own, over connections that are kept.

In: a path, a query or a JSON body. Out: the response, or a `StoreError` that says what to do.
Rule: a request reads, so it may be sent again: after a kept connection that the agent closed at once, and after
`StoreUnavailable` with the pauses of `RetryPolicy`. A client whose fetch quota is used up waits as long as the agent
says, as Kafka's consumers do. Redirects are not followed, since a login goes to no other address.
Source: RFC 9112 (HTTP/1.1, persistent connections); `agent.http.api` (errors).
"""

import asyncio
import ssl
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from http.client import HTTPException
from typing import Final
from urllib.parse import urlencode, urlsplit

from iceberg_export.spark.tenant.access import AgentAccess
from iceberg_export.spark.tenant.connections import HttpConnections, QuotaExceeded, RawResponse, retried, trusted
from protocol.decoding import Undecodable, decode_json_object
from protocol.limits import SPARK_AGENT_REQUESTS_MAX
from storage.decorators.retrying import RetryPolicy, RetryPorts
from storage.object_store import (
    ObjectDamaged,
    ObjectMissing,
    StoreDenied,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
)

_MISSING_CODES: Final = frozenset({"unknown_topic", "unknown_object", "NoSuchTableException"})
"""The codes, or in the catalog the types, of errors for what does not exist, or may not be known."""
_LOGIN_REMEDY: Final = (
    "give a token of the agents' --http-token-file as penstock.token or penstock.token.file, or a user of the cluster "
    "as penstock.user and penstock.password"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResponse:
    """A successful response."""

    body: bytes
    date_ms: int | None
    """The agent's time, milliseconds since 1970; None where the response has none."""

    def json(self) -> dict[str, object]:
        """The JSON object of the body. Raises `StoreMisconfigured`."""
        try:
            return decode_json_object(self.body)
        except Undecodable as error:
            raise StoreMisconfigured("the response is no JSON object: is penstock.server an agent?") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _AgentRequest:
    method: str
    target: str
    body: bytes | None = None


class AgentClient:
    """A client of one agent. Its methods are for one event loop; they raise `StoreError`."""

    def __init__(self, access: AgentAccess, ports: RetryPorts, policy: RetryPolicy | None = None) -> None:
        """Nothing is sent yet. Raises `StoreMisconfigured` where `access.ca_file` has no certificates."""
        self._access = access
        self._ports = ports
        self._policy = policy or RetryPolicy()
        self._threads = ThreadPoolExecutor(SPARK_AGENT_REQUESTS_MAX, thread_name_prefix="penstock-agent")
        is_encrypted = urlsplit(access.url).scheme == "https"
        self._connections = HttpConnections(
            access.url, trusted(access.ca_file, "penstock.ca") if is_encrypted else None
        )

    @property
    def url(self) -> str:
        """The agent's address, for messages."""
        return self._access.url

    async def get(self, path: str, query: Mapping[str, str | int] | None = None) -> AgentResponse:
        """The response to a GET."""
        return await self._send(_AgentRequest(method="GET", target=path + (f"?{urlencode(query)}" if query else "")))

    async def post(self, path: str, body: bytes) -> AgentResponse:
        """The response to a POST of a JSON document."""
        return await self._send(_AgentRequest(method="POST", target=path, body=body))

    def close(self) -> None:
        """Close the connections. Requests in flight end first."""
        self._threads.shutdown()
        self._connections.close()

    async def _send(self, request: _AgentRequest) -> AgentResponse:
        loop = asyncio.get_running_loop()
        return await retried(
            lambda: loop.run_in_executor(self._threads, partial(self._exchange, request)), self._policy, self._ports
        )

    def _exchange(self, request: _AgentRequest) -> AgentResponse:
        """Send a request, in a thread, and check its response."""
        headers = self._access.headers() | ({} if request.body is None else {"Content-Type": "application/json"})
        try:
            response = self._connections.ask(request.method, request.target, request.body, headers)
        except ssl.SSLCertVerificationError as error:
            raise StoreMisconfigured(
                f"the certificate of {self.url} is not trusted: {error.verify_message}; name the PEM file of its "
                "authority as penstock.ca, and use a name of the certificate in penstock.server"
            ) from error
        except ssl.SSLError as error:
            raise StoreMisconfigured(
                f"no TLS connection to {self.url}: {error.reason}; has the agent --http https://...?"
            ) from error
        except (OSError, HTTPException) as error:
            raise StoreUnavailable(
                f"no agent answers at {self.url}: {error}; penstock.server is an agent's HTTP address (--http, port "
                "9644 by default)"
            ) from error
        if response.status != HTTPStatus.OK:
            raise self._error(response)
        return AgentResponse(body=response.body, date_ms=_date_ms(response.headers.get("date")))

    def _error(self, response: RawResponse) -> StoreError:
        """The error for a response that is none of the wanted ones, by what the caller should do."""
        code, message = _words(response.body)
        where = f"the agent at {self.url}"
        match response.status:
            case HTTPStatus.UNAUTHORIZED:
                return StoreDenied(f"{where} does not accept the login: {message}: {_LOGIN_REMEDY}")
            case HTTPStatus.FORBIDDEN:
                return StoreDenied(f"{where} denies the request: {message}")
            case HTTPStatus.NOT_FOUND if code in _MISSING_CODES:
                return ObjectMissing(message)
            case HTTPStatus.UNPROCESSABLE_ENTITY:
                return ObjectDamaged(message)
            case HTTPStatus.TOO_MANY_REQUESTS if seconds := _seconds(response.headers.get("retry-after")):
                return QuotaExceeded(f"{where}: {message}", seconds)
            case status if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                return StoreUnavailable(f"{where} answers {status}: {message}")
            case status:
                return StoreMisconfigured(
                    f"{where} answers {status}: {message}; is penstock.server an agent's HTTP address, and is the "
                    "agent as new as this program?"
                )


def _words(body: bytes) -> tuple[str, str]:
    """The code of an error response, and its message with the remedy; without them the beginning of the body."""
    try:
        content = decode_json_object(body)
    except Undecodable:
        content = {}
    match content.get("error"):
        case {"code": str(code), "message": str(message), "remedy": str(remedy)}:
            return code, f"{message}; {remedy}"
        case {"type": str(kind), "message": str(message)}:  # the catalog's form
            return kind, message
        case _:
            return "", repr(body[:200])


def _seconds(text: str | None) -> float:
    """The seconds of Retry-After; 0 without them."""
    return float(text) if text is not None and text.isascii() and text.isdigit() else 0.0


def _date_ms(text: str | None) -> int | None:
    """The time of an HTTP date (RFC 9110, "Date"); None without one."""
    try:
        return None if text is None else int(parsedate_to_datetime(text).timestamp() * 1000)
    except ValueError:
        return None
