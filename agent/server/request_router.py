"""The router of a connection's requests, where they are not simply the agent's own: relays between agents.

The connection itself knows nothing of relays but these two types.
"""

from dataclasses import dataclass
from typing import Protocol

from agent.request.connection_epochs import RequestEpoch
from agent.server.dispatch import RawHandler


class RequestRouter(Protocol):
    """Chooses the handler of each request of one connection."""

    def handler(self, api_key: int) -> RawHandler:
        """The handler of an API.

        Raises `MalformedRequest` where the connection does not serve it, or `NoAnswerOwed` where it serves nothing any
        more: close it.
        """
        ...

    def drain(self) -> None:
        """The agent stops: leave what may take minutes. Its answers come at once."""
        ...

    def close(self) -> None:
        """The connection is closed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayedClient:
    """The client of a relay connection, as another agent has introduced it."""

    listener: str
    """The name of that agent's listener."""
    peer: str
    """The client's address, `host:port`."""
    epoch: RequestEpoch

    @property
    def host(self) -> str:
        """The client's address, without port."""
        return self.peer.rpartition(":")[0]
