"""The authorizer of an agent: gives each principal its rights, by the ACLs in the state, and forgets them in time.

In: the ACLs as far as they are applied, and the settings. Out: one `Rights` for each principal with its groups, and for
each address where an ACL names one.
Rule: super users may do everything. While it is not confirmed that the ACLs are complete (after a recovery), only they
may do anything. Where the state is older than `stale_max_s`, nothing is allowed before a barrier passes (S16).
Source: org.apache.kafka.metadata.authorizer.StandardAuthorizer (Kafka 4.3).
"""

import math
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

from agent.config.audit_classes import AuditClass
from agent.config.authorizer_settings import CLASS_NAME, SUPER_USERS, AuthorizerSettings
from agent.config.option_sources import InvalidSettings
from agent.ledger.ledger_client import LedgerClient
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from agent.security.audit.audit_log import AuditLog, no_audit_log
from agent.security.audit.audit_subject import (
    ACL_ALLOWS,
    ACLS_NOT_CONFIRMED,
    AUTHORIZER_OFF,
    NO_ACL_ALLOWS,
    SUPER_USER,
    record_allowed,
    record_denials,
)
from agent.security.denial_barrier import DenialBarrier
from agent.security.rights import ALL_RIGHTS, AllowedRecorder, Rights, all_rights
from coordinator.security.acls import Acl
from protocol.auth.operations import Operation, Permission, ResourceType
from protocol.auth.principals import Principal
from protocol.limits import RIGHTS_NAMES_MAX


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


class StateAcls:
    """The ACLs in the state that an agent has applied."""

    def __init__(self, ledger: LedgerClient) -> None:
        self._ledger = ledger
        self._index = ledger.state.acl_index
        self._reloads_count = 0

    @property
    def version(self) -> tuple[int, int]:
        state = self._ledger.state
        if state.acl_index is not self._index:  # a reload counts changes from 0 again
            self._index = state.acl_index
            self._reloads_count += 1
        return self._reloads_count, state.acls_version

    @property
    def is_confirmed(self) -> bool:
        return self._ledger.state.is_acls_confirmed

    @property
    def names_hosts(self) -> bool:
        return self._ledger.state.acl_index.names_hosts

    def rights_of(
        self,
        principals: Sequence[Principal],
        host: str,
        resource_type: ResourceType,
        name: str,
        *,
        is_allowed_without_acls: bool,
    ) -> int:
        return self._ledger.state.acl_index.rights_of(
            principals, host, resource_type, name, is_allowed_without_acls=is_allowed_without_acls
        )

    def may_on_any(
        self,
        principals: Sequence[Principal],
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        *,
        is_allowed_without_acls: bool,
    ) -> bool:
        return self._ledger.state.acl_index.may_on_any(
            principals, host, operation, resource_type, is_allowed_without_acls=is_allowed_without_acls
        )


def check_administrator(settings: AuthorizerSettings, acls: Iterable[Acl]) -> None:
    """Raise `InvalidSettings` where no principal could ever create an ACL: the cluster could not be administered."""
    if not settings.is_enabled or settings.super_users or settings.is_allowed_without_acls:
        return
    for acl in acls:
        if (
            acl.permission is Permission.ALLOW
            and acl.resource_type is ResourceType.CLUSTER
            and acl.operation in (Operation.ALTER, Operation.ALL)
        ):
            return
    raise InvalidSettings(
        "the authorizer is on, and no principal may administer the cluster. Name one with "
        f"--set {SUPER_USERS}=User:NAME (a client that does not authenticate is User:ANONYMOUS), or turn the "
        f"authorizer off with --set {CLASS_NAME}="
    )


class Authorizer:
    """One agent has one. Ask it for rights at the start of each request."""

    def __init__(
        self,
        settings: AuthorizerSettings,
        *,
        acls: AclView,
        ledger: LedgerClient,
        clock: Clock,
        metrics: Metrics,
        audit_log: AuditLog | None = None,
    ) -> None:
        self.settings: Final = settings
        self.acls: Final = acls
        self.barrier: Final = DenialBarrier(ledger=ledger, clock=clock)
        """The barrier before every denial; authentication takes it before it denies that a user exists."""
        self._ledger = ledger
        self._clock = clock
        self._audit_log = audit_log or no_audit_log()
        self._denials = metrics.authorization_denials
        self._record_allowed = self._recorder(ACL_ALLOWS)
        record_all = self._recorder(SUPER_USER if settings.is_enabled else AUTHORIZER_OFF)
        self._all_rights = ALL_RIGHTS if record_all is None else all_rights(record_all)
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

    def rights(self, principal: Principal, groups: Sequence[Principal] = (), host: str = "") -> Rights:
        """The rights of a principal now. `host` is the address alone: no slash, no port."""
        settings = self.settings
        if not settings.is_enabled or not settings.super_users.isdisjoint((principal, *groups)):
            return self._all_rights
        if self.is_stale:
            judge = _PrincipalJudge(self, (principal, *groups), host, is_barrier_required=True)
            return Rights(judge, self._record_allowed)
        key = (principal, tuple(groups), host if self.acls.names_hosts else "")
        rights = self._rights.get(key)
        if rights is None:
            rights = Rights(_PrincipalJudge(self, (principal, *groups), key[2]), self._record_allowed)
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

    def count_denials(self, operation: Operation, resource_type: ResourceType, names: Collection[str]) -> None:
        """Counts denials that are answered, and records them in the audit log."""
        self._denials.labels(resource_type.name.lower(), operation.name.lower()).inc(len(names))
        rule = NO_ACL_ALLOWS if self.acls.is_confirmed else ACLS_NOT_CONFIRMED
        record_denials(self._audit_log, operation, resource_type, names, rule=rule)

    def _recorder(self, rule: str) -> AllowedRecorder | None:
        """Records what a rule allows, if the audit log has that."""
        takes_allowed = self._audit_log.takes(AuditClass.ALLOWED)
        return partial(record_allowed, self._audit_log, rule=rule) if takes_allowed else None


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
        self._authorizer.count_denials(operation, resource_type, names)
