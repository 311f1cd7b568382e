"""Blocking HTTP over connections that are kept, and the repetition of requests, for what only reads.

Rule: redirects are not followed, as a login goes to no other address. Requests read, so one may be sent again: at once
over a new connection where a kept one was closed, and later after `StoreUnavailable`.
Source: RFC 9112 (HTTP/1.1, persistent connections).
"""

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPSConnection, RemoteDisconnected
from threading import Lock
from typing import TypeVar
from urllib.parse import urlsplit

from protocol.limits import SPARK_AGENT_ANSWER_SECONDS_MAX, SPARK_THROTTLED_SECONDS_MAX
from storage.decorators.retrying import RetryPolicy, RetryPorts
from storage.object_store import StoreMisconfigured, StoreUnavailable

T = TypeVar("T")


class QuotaExceeded(StoreUnavailable):
    """The client's fetch quota is used up, for `seconds`."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RawResponse:
    """A response of any status."""

    status: int
    headers: Mapping[str, str]
    """With names in lower case."""
    body: bytes


class HttpConnections:
    """Connections to one address. Any thread may use it."""

    def __init__(self, origin: str, tls: ssl.SSLContext | None) -> None:
        """`origin`: http[s]://HOST[:PORT]. `tls`: for https."""
        address = urlsplit(origin)
        self._host, self._port = address.hostname or "", address.port
        self._tls = tls
        self._kept: list[HTTPConnection] = []
        self._keeping = Lock()

    def ask(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> RawResponse:
        """The response. Raises `OSError` and `HTTPException`."""
        with self._keeping:
            kept = self._kept.pop() if self._kept else None
        if kept is not None:
            try:
                return self._ask(kept, method, target, body, headers)
            except (RemoteDisconnected, ConnectionError):
                pass  # the server closed the connection while it was idle: a new one shows whether it is there
        return self._ask(self._connection(), method, target, body, headers)

    def close(self) -> None:
        """Close the connections that are not in use."""
        with self._keeping:
            for connection in self._kept:
                connection.close()
            self._kept.clear()

    def _ask(
        self, connection: HTTPConnection, method: str, target: str, body: bytes | None, headers: Mapping[str, str]
    ) -> RawResponse:
        try:
            connection.request(method, target, body, dict(headers))
            answer = connection.getresponse()
            content = answer.read()
        except BaseException:
            connection.close()
            raise
        if answer.will_close:
            connection.close()
        else:
            with self._keeping:
                self._kept.append(connection)
        names = {name.lower(): value for name, value in answer.getheaders()}
        return RawResponse(status=answer.status, headers=names, body=content)

    def _connection(self) -> HTTPConnection:
        seconds = SPARK_AGENT_ANSWER_SECONDS_MAX
        if self._tls is None:
            return HTTPConnection(self._host, self._port, timeout=seconds)
        return HTTPSConnection(self._host, self._port, timeout=seconds, context=self._tls)


def trusted(ca_file: str, option: str) -> ssl.SSLContext:
    """Trust in the authorities of a PEM file; of the system where it is empty. Raises `StoreMisconfigured`."""
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise StoreMisconfigured(
            f"{option}={ca_file} has no certificates that can be read (PEM): {error}; the driver and each executor "
            "read the file on their own machine"
        ) from error


async def retried(send: Callable[[], Awaitable[T]], policy: RetryPolicy, ports: RetryPorts) -> T:
    """The result of `send`, which is called again after `StoreUnavailable`, with the pauses of the policy.

    A client whose fetch quota is used up waits as long as the agent says, as Kafka's consumers do.
    """
    tries, begun_s, throttled_s = 0, ports.monotonic_s(), 0.0
    while True:
        try:
            return await send()
        except QuotaExceeded as error:
            throttled_s += error.seconds
            if throttled_s > SPARK_THROTTLED_SECONDS_MAX:
                raise
            await ports.sleep(error.seconds)
        except StoreUnavailable:
            tries += 1
            pause_s = policy.pause_s(tries, ports.monotonic_s() - begun_s - throttled_s, ports.chance())
            if pause_s is None:
                raise
            await ports.sleep(pause_s)
