"""Wires the authentication of an agent's listeners."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from agent.config.settings import Settings
from agent.runtime.clock import Clock
from agent.runtime.ids import Ids
from agent.runtime.metrics import Metrics
from agent.security.authenticated_connections import AuthenticatedConnections
from agent.security.failure_delays import FailureDelays
from agent.security.listener_authentication import ListenerAuthentication
from agent.security.password_checks import PasswordChecks
from agent.security.plain_users import PlainUsers
from agent.security.scram_accounts import CredentialSource, ScramAccounts
from agent.security.user_passwords import UserPasswords

DECOY_PURPOSE: Final = b"decoys of SCRAM credentials\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Authentication:
    """The authentication of one agent."""

    connections: AuthenticatedConnections
    """Has to run while there are listeners with SASL."""
    listeners: Mapping[str, ListenerAuthentication] = field(default_factory=dict)
    """That of each listener with SASL, by its name."""
    user_passwords: UserPasswords
    """The users' passwords for HTTP."""


def wire_authentication(
    settings: Settings, source: CredentialSource, *, cluster_id: str, clock: Clock, ids: Ids, metrics: Metrics
) -> Authentication:
    """The authentication of the listeners that have SASL. Raises `InvalidSettings` for a file that cannot be read."""
    plain_users = None if settings.plain_users is None else PlainUsers(settings.plain_users)
    # The cluster's id is in no answer that comes before authentication.
    accounts = ScramAccounts(source, decoy_secret=DECOY_PURPOSE + cluster_id.encode())
    passwords, failures = PasswordChecks(accounts, plain_users), FailureDelays()
    connections = AuthenticatedConnections(source, plain_users=plain_users, clock=clock, metrics=metrics)
    listeners = {
        name: ListenerAuthentication(
            listener=name,
            settings=security.sasl,
            accounts=accounts,
            passwords=passwords,
            failures=failures,
            connections=connections,
            clock=clock,
            ids=ids,
            metrics=metrics,
        )
        for name, security in settings.listener_security.items()
        if security.sasl is not None
    }
    user_passwords = UserPasswords(
        passwords=passwords, source=source, plain_users=plain_users, failures=failures, clock=clock
    )
    return Authentication(connections=connections, listeners=listeners, user_passwords=user_passwords)
