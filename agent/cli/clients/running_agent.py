"""The agent that answers at the HTTP address of some settings, and whether it is the agent of these settings.

A program that does not answer within CLIENT_CONNECT_SECONDS_MAX, or not as an agent does, counts as no agent. An agent
shows what it runs on to those alone that may DESCRIBE the cluster, so a protected one is asked by a user.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from agent.cli.clients.http_client import AgentServer, get
from agent.cli.clients.security import ClientSecurity
from agent.cli.failure import CommandFailed
from agent.cli.serving.processes import settings_of_processes
from agent.config.addresses import HostPort, is_every_interface
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


class AgentHidden(Exception):
    """An agent answers and does not show what it runs on. The message says which it is, and what to do."""


def agent_of(settings: Settings, security: ClientSecurity | None = None) -> RunningAgent | None:
    """The agent at the HTTP address of some settings; None where no agent answers.

    Args:
        settings: the first token of their token file is sent.
        security: what --command-config says, whose user asks instead of the token; None without it.

    Raises:
        AgentHidden: an agent answers without all that identifies it, or does not answer the user of --command-config.
    """
    host = "127.0.0.1" if is_every_interface(settings.http.host) else settings.http.host
    scheme = "http" if settings.http_tls is None else "https"
    address = f"{scheme}://{HostPort(host=host, port=settings.http.port)}"
    if security is None:
        tokens = settings.http_access.token_file
        token_file = None if tokens is None else str(tokens)
        # The address may be no name of the certificate, whose files the settings name: it is this machine's own agent.
        server = AgentServer(address=address, token_file=token_file, security=ClientSecurity(is_unverified=True))
    else:  # a password goes to an agent with a trusted certificate alone, as with other commands
        server = AgentServer(address=address, security=security)
    try:
        status = get(server, "/api/status", seconds_max=CLIENT_CONNECT_SECONDS_MAX)
    except CommandFailed as error:
        if security is None:
            return None
        raise AgentHidden(f"{address} does not say which agent it is: {error}") from error
    name, store, listeners = (status.get(key) for key in ("name", "store", "listeners"))
    if not isinstance(name, str):
        return None
    if not isinstance(store, str) or not isinstance(listeners, list):
        raise AgentHidden(
            f"the agent {name} uses it. To check that it runs with these settings give --command-config FILE with a "
            "user that may DESCRIBE the cluster"
        )
    return RunningAgent(
        name=name,
        store=store,
        http=settings.http,
        listeners=[str(listener) for listener in listeners],
        clock=str(status.get("clock", "believed")),
    )
