"""The listener RELAY of agents that share an address, by TLS: each agent is a super user by its certificate."""

from collections.abc import Iterable

from tests.support.certificates import TestAuthority

RELAY_LISTEN = "RELAY://127.0.0.1:0"


def relay_by_tls(authority: TestAuthority, name: str, clients: str) -> dict[str, str]:
    """Broker configs of the agent `name`, its certificate among them. `clients`: the protocol of clients' listener."""
    files = authority.issue(f"agent-{name}", common_name=f"agent-{name}")
    return {
        "listener.security.protocol.map": f"{clients}:{clients},RELAY:SSL",
        "listener.name.relay.ssl.keystore.location": str(files.both),
        "listener.name.relay.ssl.truststore.location": str(authority.ca_path),
        "listener.name.relay.ssl.client.auth": "required",
        "listener.name.relay.ssl.principal.mapping.rules": r"RULE:^CN=([^,]*),.*$/$1/",
    }


def super_users(users: Iterable[str], agents: Iterable[str]) -> str:
    """The config `super.users` of these users, and of these agents by their certificates."""
    return ";".join(f"User:{user}" for user in (*users, *(f"agent-{name}" for name in agents)))
