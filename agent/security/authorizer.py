"""The authorizer of an agent: gives each principal its rights, by the ACLs in the state, and forgets them in time.

In: the ACLs as far as they are applied, and the settings. Out: one `Rights` for each principal with its groups, and for
each address where an ACL names one.
Rule: super users may do everything. While it is not confirmed that the ACLs are complete (after a recovery), only they
may do anything. Where the state is older than `stale_max_s`, nothing is allowed before a barrier passes (S16).
Source: org.apache.kafka.metadata.authorizer.StandardAuthorizer (Kafka 4.3).
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from agent.ledger.ledger_client import LedgerClient
from agent.runtime.clock import Clock
from agent.security.denial_barrier import DenialBarrier
from agent.security.rights import ALL_RIGHTS, Rights
from protocol.auth.operations import Operation, ResourceType
from protocol.auth.principals import Principal
from protocol.limits import RIGHTS_NAMES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizerSettings:
    """The settings of the authorizer, by default those of one that is off."""

    is_enabled: bool = False
    super_users: frozenset[Principal] = frozenset()
    is_allowed_without_acls: bool = False
    """`allow.everyone.if.no.acl.found`."""
    stale_max_s: float = math.inf
    """`authorizer.stale.max.ms`."""


class AclView(Protocol):
    """The ACLs as far as they are applied."""

    @property
    def version(self) -> object:
        """A value that differs after each change of the ACLs."""
        ...

    @property
    def is_confirmed(self) -> bool:
        """Whether the ACLs are known to be complete: False after a recovery until an administrator confirms them."""
        ...

    @property
    def names_hosts(self) -> bool:
        """Whether an ACL names an address."""
        ...

    def rights_of(
        self,
        principals: Sequence[Principal],
        host: str,
        resource_type: ResourceType,
        name: str,
        *,
        is_allowed_without_acls: bool,
    ) -> int:
        """The allowed operations, as bits."""
        ...

    def may_on_any(
        self,
        principals: Sequence[Principal],
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        *,
        is_allowed_without_acls: bool,
    ) -> bool:
        """Whether an operation is allowed on some resource of the type (KIP-679)."""
        ...


class Authorizer:
    """One agent has one. Ask it for rights at the start of each request."""

    def __init__(self, settings: AuthorizerSettings, *, acls: AclView, ledger: LedgerClient, clock: Clock) -> None:
        self.settings: Final = settings
        self.acls: Final = acls
        self.barrier: Final = DenialBarrier(ledger=ledger, clock=clock)
        """The barrier before every denial; authentication takes it before it denies that a user exists."""
        self._ledger = ledger
        self._clock = clock
        self._rights: dict[tuple[Principal, Sequence[Principal], str], Rights] = {}
        self._remembered_count = 0

    @property
    def view_age_s(self) -> float:
        """How old the ACLs may be that requests are judged by; infinite while this agent has no session."""
        return max(0.0, self._clock.monotonic_s() - self._ledger.confirmed_s)

    @property
    def is_stale(self) -> bool:
        """Whether the ACLs may be older than the settings accept."""
        return self.settings.stale_max_s < math.inf and self.view_age_s > self.settings.stale_max_s

    def rights(self, principal: Principal, groups: tuple[Principal, ...] = (), host: str = "") -> Rights:
        """The rights of a principal now. `host` is the address alone: no slash, no port."""
        settings = self.settings
        if not settings.is_enabled or not settings.super_users.isdisjoint((principal, *groups)):
            return ALL_RIGHTS
        if self.is_stale:
            return Rights(_PrincipalJudge(self, (principal, *groups), host, is_barrier_required=True))
        key = (principal, groups, host if self.acls.names_hosts else "")
        rights = self._rights.get(key)
        if rights is None:
            rights = Rights(_PrincipalJudge(self, (principal, *groups), key[2]))
            if self.may_remember():
                self._rights[key] = rights
        rights.refresh()
        return rights

    def may_remember(self) -> bool:
        """Counts one more remembered name. Where there are too many, all are forgotten, and counting begins again."""
        self._remembered_count += 1
        if self._remembered_count > RIGHTS_NAMES_MAX:
            for rights in self._rights.values():
                rights.forget()
            self._rights.clear()
            self._remembered_count = 1
        return True

    def count_denials(
        self, principals: Sequence[Principal], operation: Operation, resource_type: ResourceType, names: Collection[str]
    ) -> None:
        """Counts denials that are answered."""


class _PrincipalJudge:
    """The ACLs applied to one principal from one address."""

    def __init__(
        self, authorizer: Authorizer, principals: Sequence[Principal], host: str, *, is_barrier_required: bool = False
    ) -> None:
        self._authorizer = authorizer
        self._principals = principals
        self._host = host
        self._is_barrier_required = is_barrier_required
        """Whether nothing is allowed until a barrier has passed."""
        self._version: object = authorizer.acls.version

    def bits(self, resource_type: ResourceType, name: str) -> int:
        authorizer = self._authorizer
        if self._is_barrier_required or not authorizer.acls.is_confirmed:
            return 0
        return authorizer.acls.rights_of(
            self._principals,
            self._host,
            resource_type,
            name,
            is_allowed_without_acls=authorizer.settings.is_allowed_without_acls,
        )

    def may_on_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        authorizer = self._authorizer
        if self._is_barrier_required or not authorizer.acls.is_confirmed:
            return False
        return authorizer.acls.may_on_any(
            self._principals,
            self._host,
            operation,
            resource_type,
            is_allowed_without_acls=authorizer.settings.is_allowed_without_acls,
        )

    def may_remember(self) -> bool:
        return not self._is_barrier_required and self._authorizer.may_remember()

    def forget_if_changed(self, rights: Rights) -> None:
        version = self._authorizer.acls.version
        if version != self._version:
            self._version = version
            rights.forget()

    async def catch_up(self) -> None:
        # Without the ledger the old answer stands: what was denied stays denied.
        if await self._authorizer.barrier.passes():
            self._is_barrier_required = False

    def count_denials(self, operation: Operation, resource_type: ResourceType, names: Collection[str]) -> None:
        self._authorizer.count_denials(self._principals, operation, resource_type, names)
