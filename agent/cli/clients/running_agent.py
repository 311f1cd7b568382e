"""The agent that answers at the HTTP address of some settings, and whether it is the agent of these settings.

A program that does not answer within CLIENT_CONNECT_SECONDS_MAX, or not as an agent does, counts as no agent.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from agent.cli.clients.http_client import AgentServer, get
from agent.cli.clients.security import ClientSecurity
from agent.cli.failure import CommandFailed
from agent.cli.processes import settings_of_processes
from agent.config.addresses import HostPort, is_every_interface
from agent.config.http_auth import HttpAccess
from agent.config.settings import Settings
from protocol.limits import CLIENT_CONNECT_SECONDS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningAgent:
    """A running agent by its `/api/status`. `listeners` are its bound addresses, as "NAME://HOST:PORT"."""

    name: str
    store: str
    http: HostPort
    listeners: Sequence[str]
    clock: str = "believed"
    """The agent's verdict on its clock: "believed", or the fault."""

    def is_of(self, settings: Settings) -> bool:
        """Whether the settings are this agent's, by name and bucket; of several processes, the first one's."""
        name = settings.name if settings.processes == 1 else settings_of_processes(settings)[0].name
        return (self.name, self.store) == (name, settings.store_url)

    def has_taken(self, address: HostPort) -> bool:
        """Whether the address is one of its ports."""
        return address == self.http or any(listener.endswith(f"://{address}") for listener in self.listeners)


def agent_at(address: HostPort, access: HttpAccess | None = None, *, is_encrypted: bool = False) -> RunningAgent | None:
    """The agent with that HTTP address; None where no agent answers. `access`: that of the agent's settings."""
    host = "127.0.0.1" if is_every_interface(address.host) else address.host
    token_file = None if access is None or access.token_file is None else str(access.token_file)
    scheme = "https" if is_encrypted else "http"
    server = AgentServer(
        address=f"{scheme}://{HostPort(host=host, port=address.port)}",
        token_file=token_file,
        # The address may be no name of the certificate, whose files the settings name: it is this machine's own agent.
        security=ClientSecurity(is_unverified=True),
    )
    try:
        status = get(server, "/api/status", seconds_max=CLIENT_CONNECT_SECONDS_MAX)
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
