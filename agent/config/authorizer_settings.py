"""The settings of the authorizer, from broker configs. Pure.

Rule: it is off while no listener authenticates, and on where one does. `authorizer.class.name` decides otherwise: empty
for off, Kafka's StandardAuthorizer for on. No other class is accepted.
Source: org.apache.kafka.metadata.authorizer.StandardAuthorizer (`super.users`, `allow.everyone.if.no.acl.found`),
org.apache.kafka.server.config.ServerConfigs (`authorizer.class.name`) (Kafka 4.3). `authorizer.stale.max.ms` is not
Kafka's.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agent.config.option_sources import InvalidSettings
from protocol.auth.principals import USER, InvalidPrincipal, Principal, read_principal

CLASS_NAME: Final = "authorizer.class.name"
SUPER_USERS: Final = "super.users"
ALLOW_WITHOUT_ACLS: Final = "allow.everyone.if.no.acl.found"
STALE_AFTER: Final = "authorizer.stale.max.ms"
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizerSettings:
    """The settings of the authorizer, by default those of one that is off."""

    is_enabled: bool = False
    super_users: frozenset[Principal] = frozenset()
    is_allowed_without_acls: bool = False
    """`allow.everyone.if.no.acl.found`."""
    stale_max_s: float = math.inf
    """The age of the ACLs beyond which nothing is allowed before a barrier (`authorizer.stale.max.ms`)."""


def read_authorizer(pairs: Mapping[str, str], *, is_authenticating: bool) -> AuthorizerSettings:
    """The authorizer's settings. `is_authenticating`: whether a listener authenticates. Raises `InvalidSettings`."""
    class_name = pairs.get(CLASS_NAME)
    if class_name not in (None, "", STANDARD_AUTHORIZER):
        raise InvalidSettings(
            f"{CLASS_NAME}={class_name}: Penstock has one authorizer. Set {STANDARD_AUTHORIZER}, or nothing for none"
        )
    is_enabled = is_authenticating if class_name is None else bool(class_name)
    unused = [name for name in (SUPER_USERS, ALLOW_WITHOUT_ACLS, STALE_AFTER) if name in pairs]
    if unused and not is_enabled:
        raise InvalidSettings(
            f"{unused[0]}: the authorizer is off, so this protects nothing. Add "
            f"--set {CLASS_NAME}={STANDARD_AUTHORIZER}"
        )
    stale_max_ms = pairs.get(STALE_AFTER)
    return AuthorizerSettings(
        is_enabled=is_enabled,
        super_users=_principals(pairs.get(SUPER_USERS, "")),
        is_allowed_without_acls=pairs.get(ALLOW_WITHOUT_ACLS, "false").lower() == "true",
        stale_max_s=math.inf if stale_max_ms is None else int(stale_max_ms) / 1000,
    )


def _principals(text: str) -> frozenset[Principal]:
    """Reads `User:alice;User:bob`. The separator is a semicolon, as certificates' names contain commas."""
    if f",{USER}:" in text.replace(" ", ""):
        raise InvalidSettings(f"{SUPER_USERS}={text}: separate several principals by semicolons, not commas")
    try:
        return frozenset(read_principal(part.strip()) for part in text.split(";") if part.strip())
    except InvalidPrincipal as error:
        raise InvalidSettings(f"{SUPER_USERS}: {error}; separate several by semicolons") from error
