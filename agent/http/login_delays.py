"""The delay before the answer to a failed login over HTTP, which ends when the client leaves.

Rule: while it lasts the connection has a mark, by which a new connection may take its place. So clients that fail to
log in, however many, take no place from others.
"""

from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final

from starlette.types import Receive

from agent.runtime.clock import Clock

_MARK: Final = "penstock_login_delayed"


class LoginDelay:
    """The delay of one request."""

    def __init__(self, state: MutableMapping[str, Any], receive: Receive, clock: Clock) -> None:
        """`state`: of the request's scope, which the protocol of its connection sees too."""
        self._state = state
        self._receive = receive
        self._clock = clock

    async def wait(self, seconds: float) -> None:
        """Return after so many seconds, or when the client is gone. What is left of the body is dropped."""
        self._state[_MARK] = True
        try:
            with suppress(TimeoutError):
                async with self._clock.timeout(seconds):
                    while (await self._receive())["type"] != "http.disconnect":
                        pass
        finally:
            del self._state[_MARK]


def is_login_delayed(scope: Mapping[str, Any]) -> bool:
    """Whether the answer to the request with this scope waits."""
    return _MARK in scope.get("state", {})
