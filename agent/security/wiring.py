"""Wires the authentication of an agent's listeners."""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from agent.config.oauth_settings import KeySource, OauthSettings
from agent.config.secret_key import SecretKey
from agent.config.settings import Settings
from agent.runtime.clock import Clock
from agent.runtime.ids import Ids
from agent.runtime.metrics import Metrics
from agent.security.authenticated_connections import AuthenticatedConnections
from agent.security.connections.failure_delays import FailureDelays
from agent.security.denial_barrier import DenialBarrier
from agent.security.listener_authentication import ListenerAuthentication
from agent.security.oauth.bearer_tokens import BearerTokens
from agent.security.oauth.issuer_keys import IssuerKeys
from agent.security.password_checks import PasswordChecks
from agent.security.plain_users import PlainUsers
from agent.security.scram_accounts import CredentialSource, ScramAccounts
from agent.security.tokens.delegation_tokens import DelegationTokens
from agent.security.user_passwords import UserPasswords

DECOY_PURPOSE: Final = b"decoys of SCRAM credentials\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Authentication:
    """The authentication of one agent."""

    connections: AuthenticatedConnections
    """Has to run while there are listeners with SASL, or a file of users."""
    listeners: Mapping[str, ListenerAuthentication] = field(default_factory=dict)
    """That of each listener with SASL, by its name."""
    user_passwords: UserPasswords
    """The users' passwords for HTTP."""
    issuer_keys: Sequence[IssuerKeys] = ()
    """The keys of the issuers of tokens. Each has to run."""
    http_tokens: BearerTokens | None = None
    """The issuer's tokens that the HTTP port accepts; None where it accepts none."""


def wire_authentication(
    settings: Settings,
    source: CredentialSource,
    *,
    barrier: DenialBarrier,
    tokens: DelegationTokens,
    cluster_id: str,
    clock: Clock,
    ids: Ids,
    metrics: Metrics,
) -> Authentication:
    """The authentication of the listeners that have SASL. Raises `InvalidSettings` for a file that cannot be read.

    `barrier`: that of the authorizer, which is there also while it is off.
    """
    plain_users = None if settings.plain_users is None else PlainUsers(settings.plain_users)
    accounts = ScramAccounts(
        source,
        decoy_secret=decoy_secret(settings.secret_key, cluster_id),
        plain_users=plain_users,
        find_token=None if tokens.secrets is None else tokens.account,
    )
    passwords, failures = PasswordChecks(accounts, plain_users), FailureDelays()
    connections = AuthenticatedConnections(
        source, plain_users=plain_users, is_token_valid=tokens.is_valid, clock=clock, metrics=metrics
    )
    issuer_keys: dict[KeySource, IssuerKeys] = {}

    def bearer_tokens(oauth: OauthSettings | None) -> BearerTokens | None:
        if oauth is None:
            return None
        if oauth.keys not in issuer_keys:
            issuer_keys[oauth.keys] = IssuerKeys(oauth.keys, clock=clock, metrics=metrics)
        return BearerTokens(oauth, issuer_keys[oauth.keys], clock)

    listeners = {
        name: ListenerAuthentication(
            listener=name,
            settings=security.sasl,
            accounts=accounts,
            passwords=passwords,
            failures=failures,
            connections=connections,
            before_login=barrier.before_login,
            clock=clock,
            ids=ids,
            metrics=metrics,
            bearer_tokens=bearer_tokens(security.sasl.oauth),
        )
        for name, security in settings.listener_security.items()
        if security.sasl is not None
    }
    user_passwords = UserPasswords(
        passwords=passwords,
        source=source,
        plain_users=plain_users,
        failures=failures,
        before_login=barrier.before_login,
        clock=clock,
    )
    http_tokens = bearer_tokens(settings.http_oauth)
    return Authentication(
        connections=connections,
        listeners=listeners,
        user_passwords=user_passwords,
        issuer_keys=tuple(issuer_keys.values()),
        http_tokens=http_tokens,
    )


def decoy_secret(secret_key: SecretKey | None, cluster_id: str) -> bytes:
    """The secret of the decoys of users that do not exist, the same in all agents of a cluster.

    By the secret key where agents have one. Otherwise by the cluster's id, which is in no answer that comes before
    authentication; who reads the bucket knows it.
    """
    if secret_key is None:
        return DECOY_PURPOSE + cluster_id.encode()
    return hmac.digest(secret_key.value, DECOY_PURPOSE, "sha256")
