"""The agent that answers at the HTTP address of some settings, if one does: is it the one that they are about?

Rule: it is asked, and nothing else; whoever does not answer soon, or in other words, is no agent.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from agent.cli.clients.http_client import get
from agent.cli.failure import CommandFailed
from agent.cli.processes import settings_of_processes
from agent.config.addresses import HostPort, is_every_interface
from agent.config.settings import Settings
from protocol.limits import CLIENT_CONNECT_SECONDS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningAgent:
    """`listeners` are the addresses that it took, as "NAME://HOST:PORT"."""

    name: str
    store: str
    http: HostPort
    listeners: Sequence[str]
    clock: str = "believed"
    """The agent's verdict on its clock: "believed", or what is wrong with it."""

    def is_of(self, settings: Settings) -> bool:
        """Whether the settings are this agent's, by name and bucket. Of several processes the first is meant."""
        name = settings.name if settings.processes == 1 else settings_of_processes(settings)[0].name
        return (self.name, self.store) == (name, settings.store_url)

    def has_taken(self, address: HostPort) -> bool:
        """Whether the address is one of its ports."""
        return address == self.http or any(listener.endswith(f"://{address}") for listener in self.listeners)


def agent_at(address: HostPort) -> RunningAgent | None:
    """The agent whose HTTP port that is; None where nobody answers there as an agent does."""
    host = "127.0.0.1" if is_every_interface(address.host) else address.host
    try:
        status = get(str(HostPort(host=host, port=address.port)), "/api/status", seconds_max=CLIENT_CONNECT_SECONDS_MAX)
    except CommandFailed:
        return None
    name, store, listeners = (status.get(key) for key in ("name", "store", "listeners"))
    if not isinstance(name, str) or not isinstance(store, str) or not isinstance(listeners, list):
        return None
    return RunningAgent(
        name=name,
        store=store,
        http=address,
        listeners=[str(listener) for listener in listeners],
        clock=str(status.get("clock", "believed")),
    )
