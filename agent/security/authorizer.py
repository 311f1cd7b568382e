"""The authorizer of an agent: gives each principal its rights, by the ACLs in the state, and forgets them in time.

In: the ACLs as far as they are applied, and the settings. Out: one `Rights` for each principal with its groups, and for
each address where an ACL names one.
Rule: super users may do everything. While it is not confirmed that the ACLs are complete (after a recovery), only they
may do anything. Where the state is older than `stale_max_s`, nothing is allowed before a barrier passes (S16).
Source: org.apache.kafka.metadata.authorizer.StandardAuthorizer (Kafka 4.3).
"""

import math
from collections import OrderedDict
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
    ACLS_NOT_CONFIRMED,
    ACLS_STALE,
    AUTHORIZER_OFF,
    NO_ACL_ALLOWS,
    NO_ACL_IS_THERE,
    SUPER_USER,
    RuleOf,
    record_allowed,
    record_denials,
)
from agent.security.denial_barrier import DenialBarrier
from agent.security.remembered_names import RememberedNames
from agent.security.rights import ALL_RIGHTS, AllowedRecorder, RememberedBits, Rights, all_rights
from coordinator.security.acls import Acl
from protocol.auth.operations import Operation, Permission, ResourceType
from protocol.auth.principals import Principal
from protocol.limits import RIGHTS_NAMES_MAX, RIGHTS_PRINCIPALS_MAX


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

    def deciding(
        self,
        principals: Sequence[Principal],
        host: str,
        resource_type: ResourceType,
        name: str,
        operation: Operation,
    ) -> Acl | None:
        """The ACL that denies the operation, else one that allows it; None where there is none."""
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

    def deciding(
        self,
        principals: Sequence[Principal],
        host: str,
        resource_type: ResourceType,
        name: str,
        operation: Operation,
    ) -> Acl | None:
        return self._ledger.state.acl_index.deciding(principals, host, resource_type, name, operation)


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
        """The barrier before every denial, and before every login, also while the authorizer is off."""
        self._ledger = ledger
        self._clock = clock
        self._audit_log = audit_log or no_audit_log()
        self._denials = metrics.authorization_denials
        record_all = self._recorder(SUPER_USER if settings.is_enabled else AUTHORIZER_OFF)
        self._all_rights = ALL_RIGHTS if record_all is None else all_rights(record_all)
        self._rights: OrderedDict[tuple[Principal, Sequence[Principal], str], Rights] = OrderedDict()
        """By the principal, its groups and the address, the oldest first."""
        self._remembered: OrderedDict[tuple[Sequence[Principal], str], RememberedBits] = OrderedDict()
        """By the principal with its groups, and the address; "" while no ACL names one. All are of one version."""
        self._remembered_version: object = None
        self.names: Final = RememberedNames(RIGHTS_NAMES_MAX)
        """The names of all remembered bits."""

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
            return Rights(judge, self._recorder(judge.rule))
        key = (principal, tuple(groups), host)
        rights = self._rights.get(key)
        if rights is None:
            judge = _PrincipalJudge(self, (principal, *groups), host)
            rights = Rights(judge, self._recorder(judge.rule), self.remembered(judge.principals, host))
            self._rights[key] = rights
            if len(self._rights) > RIGHTS_PRINCIPALS_MAX:
                self._rights.popitem(last=False)
        rights.refresh()
        return rights

    def remembered(self, principals: Sequence[Principal], host: str) -> RememberedBits:
        """The remembered bits of a principal with its groups, by the ACLs of now."""
        version, is_shared = self.acls.version, not self.acls.names_hosts
        if version != self._remembered_version:
            self._remembered.clear()
            self._remembered_version = version
        key = (principals, "" if is_shared else host)
        bits = self._remembered.get(key)
        if bits is None:
            bits = RememberedBits(_PrincipalJudge(self, *key, is_shared=is_shared))
            self._remembered[key] = bits
            if len(self._remembered) > RIGHTS_PRINCIPALS_MAX:
                self._remembered.popitem(last=False)
        return bits

    def count_denials(
        self, operation: Operation, resource_type: ResourceType, names: Collection[str], *, rule: RuleOf
    ) -> None:
        """Counts denials that are answered, and records them in the audit log."""
        self._denials.labels(resource_type.name.lower(), operation.name.lower()).inc(len(names))
        record_denials(self._audit_log, operation, resource_type, names, rule=rule)

    def _recorder(self, rule: str | RuleOf) -> AllowedRecorder | None:
        """Records what a rule allows, if the audit log has that."""
        takes_allowed = self._audit_log.takes(AuditClass.ALLOWED)
        return partial(record_allowed, self._audit_log, rule=rule) if takes_allowed else None


class _PrincipalJudge:
    """The ACLs applied to one principal from one address, or from all while no ACL names one.

    A request may hold shared bits when the first ACL that names an address is applied. Then nothing more is allowed by
    them: behind the barrier before its denial the request gets the bits of its own address.
    """

    def __init__(
        self,
        authorizer: Authorizer,
        principals: Sequence[Principal],
        host: str,
        *,
        is_shared: bool = False,
        is_barrier_required: bool = False,
    ) -> None:
        self._authorizer = authorizer
        self.principals = principals
        self._host = host
        self._is_shared = is_shared
        """Whether clients of all addresses are judged, so that `host` is none."""
        self._is_barrier_required = is_barrier_required
        """Whether nothing is allowed until a barrier has passed."""
        self._version: object = authorizer.acls.version

    def bits(self, resource_type: ResourceType, name: str) -> int:
        authorizer = self._authorizer
        if not self._may_judge or not authorizer.acls.is_confirmed:
            return 0
        return authorizer.acls.rights_of(
            self.principals,
            self._host,
            resource_type,
            name,
            is_allowed_without_acls=authorizer.settings.is_allowed_without_acls,
        )

    @property
    def _may_judge(self) -> bool:
        return not self._is_barrier_required and not (self._is_shared and self._authorizer.acls.names_hosts)

    def may_on_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        authorizer = self._authorizer
        if self._is_barrier_required or not authorizer.acls.is_confirmed:
            return False
        return authorizer.acls.may_on_any(
            self.principals,
            self._host,
            operation,
            resource_type,
            is_allowed_without_acls=authorizer.settings.is_allowed_without_acls,
        )

    def remember(self, known: dict[str, int], name: str, bits: int) -> None:
        if self._may_judge:
            self._authorizer.names.remember(known, name, bits)

    def replace_old_bits(self, rights: Rights) -> None:
        version = self._authorizer.acls.version
        if version != self._version:
            self._version = version
            if not self._is_barrier_required:  # else others' bits, which need none, would allow what is stale
                rights.remember_in(self._authorizer.remembered(self.principals, self._host))

    async def catch_up(self) -> None:
        # Without the ledger the old answer stands: what was denied stays denied.
        if await self._authorizer.barrier.passes():
            self._is_barrier_required = False

    def count_denials(self, operation: Operation, resource_type: ResourceType, names: Collection[str]) -> None:
        self._authorizer.count_denials(operation, resource_type, names, rule=self.rule)

    def rule(self, operation: Operation, resource_type: ResourceType, name: str) -> str:
        acls = self._authorizer.acls
        if not acls.is_confirmed:
            return ACLS_NOT_CONFIRMED
        if self._is_barrier_required:
            return ACLS_STALE
        acl = acls.deciding(self.principals, self._host, resource_type, name, operation)
        if acl is not None:
            return str(acl)
        is_allowed = self.bits(resource_type, name) >> operation & 1
        return NO_ACL_IS_THERE if is_allowed else NO_ACL_ALLOWS
