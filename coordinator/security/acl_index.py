"""The ACLs of a cluster, arranged so that the rights of a principal on a resource are a few look-ups.

In: ACLs that come and go, one at a time; questions. Out: rights as bits (`1 << operation`), and ACLs that fit a filter.
Rule, StandardAuthorizer's: of the ACLs whose pattern fits the name, whose principal is one of the caller's or `User:*`,
and whose host is the caller's or `*`, a DENY of the operation or of ALL denies. Otherwise an ALLOW of it, of ALL, or of
an operation that implies it, allows. Where no ACL of anybody fits the name, the configuration decides. Super users are
not known here.
Adding and removing one ACL takes a time that does not depend on how many there are.
Source: org.apache.kafka.metadata.authorizer.StandardAuthorizerData; org.apache.kafka.server.authorizer
.Authorizer.authorizeByResourceType (KIP-679) (Kafka 4.3).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from coordinator.security.acls import EVERY_HOST, Acl, AclFilter
from protocol.auth.operations import EVERY_NAME, Operation, PatternType, Permission, ResourceType, bits
from protocol.auth.principals import EVERY_USER, Principal, read_principal

NO_RIGHTS: Final = 0
ALL_OPERATIONS: Final = bits(*(operation for operation in Operation if operation > Operation.ALL))
"""Every operation that can be asked for."""
_IMPLIED: Final[Mapping[Operation, int]] = {
    Operation.READ: bits(Operation.DESCRIBE),
    Operation.WRITE: bits(Operation.DESCRIBE),
    Operation.DELETE: bits(Operation.DESCRIBE),
    Operation.ALTER: bits(Operation.DESCRIBE),
    Operation.ALTER_CONFIGS: bits(Operation.DESCRIBE_CONFIGS),
}
"""The operations that an ALLOW of another one also allows. A DENY implies nothing."""
_NAME_ON_ANY: Final = "hardcode"
"""The name that Kafka asks about first, where the question is for any resource of a type."""
_EVERY_USER: Final = str(EVERY_USER)
_Value = TypeVar("_Value")


@dataclass(slots=True)
class _Grants:
    """The sum of the ACLs of one pattern, principal and host."""

    allowing: int = 0
    """The operations of the ALLOW ACLs, ALL among them as a bit of its own."""
    denying: int = 0
    allowed: int = 0
    """Derived from `allowing`: the operations that may be asked for."""
    denied: int = 0


_Hosts = dict[str, _Grants]
_Principals = dict[str, _Hosts]
_Pattern = tuple[PatternType, str]


@dataclass(slots=True)
class _Resources:
    """The ACLs of one type of resource."""

    literals: dict[str, _Principals] = field(default_factory=dict[str, _Principals])
    prefixes: dict[str, _Principals] = field(default_factory=dict[str, _Principals])
    prefix_lengths: dict[int, int] = field(default_factory=dict[int, int])
    """How many prefixes have each length."""
    by_principal: dict[str, dict[_Pattern, _Hosts]] = field(default_factory=dict[str, dict[_Pattern, _Hosts]])
    """The same hosts, by principal first."""

    def names(self, pattern: PatternType) -> dict[str, _Principals]:
        return self.prefixes if pattern == PatternType.PREFIXED else self.literals

    def fitting(self, name: str) -> Iterator[_Principals]:
        """The ACLs whose pattern fits the name of a resource, by principal."""
        by_name = self.literals.get(name)
        if by_name is not None:
            yield by_name
        if name != EVERY_NAME:
            of_every_name = self.literals.get(EVERY_NAME)
            if of_every_name is not None:
                yield of_every_name
        length = len(name)
        for prefix_length in self.prefix_lengths:
            if prefix_length <= length:
                by_prefix = self.prefixes.get(name[:prefix_length])
                if by_prefix is not None:
                    yield by_prefix

    def patterns_of(self, name: str) -> Iterator[tuple[PatternType, str, _Principals]]:
        """The patterns that fit the name of a resource, with their ACLs, the longest prefix before shorter ones."""
        for literal in dict.fromkeys((name, EVERY_NAME)):
            if literal in self.literals:
                yield PatternType.LITERAL, literal, self.literals[literal]
        for length in sorted(self.prefix_lengths, reverse=True):
            if length <= len(name) and name[:length] in self.prefixes:
                yield PatternType.PREFIXED, name[:length], self.prefixes[name[:length]]


@dataclass(slots=True)
class AclIndex:
    """Changed in place by `add` and `remove`. Two indexes are equal if they hold the same ACLs."""

    _resources: dict[ResourceType, _Resources] = field(default_factory=dict[ResourceType, _Resources])
    _host_count: int = 0

    @classmethod
    def of(cls, acls: Iterable[Acl]) -> "AclIndex":
        """The index of these ACLs, each of which may stand there once."""
        index = cls()
        for acl in acls:
            index.add(acl)
        return index

    @property
    def names_hosts(self) -> bool:
        """Whether any ACL is for one host alone: without one, rights do not depend on the host."""
        return self._host_count > 0

    def add(self, acl: Acl) -> None:
        """Adds an ACL that is not there."""
        resources = self._resources.setdefault(acl.resource_type, _Resources())
        names = resources.names(acl.pattern)
        principals = names.get(acl.name)
        if principals is None:
            principals = names[acl.name] = {}
            if acl.pattern == PatternType.PREFIXED:
                length = len(acl.name)
                resources.prefix_lengths[length] = resources.prefix_lengths.get(length, 0) + 1
        principal = str(acl.principal)
        hosts = principals.get(principal)
        if hosts is None:
            hosts = principals[principal] = {}
            resources.by_principal.setdefault(principal, {})[acl.pattern, acl.name] = hosts
        grants = hosts.setdefault(acl.host, _Grants())
        _set(grants, acl.permission, acl.operation, is_set=True)
        self._host_count += acl.host != EVERY_HOST

    def remove(self, acl: Acl) -> None:
        """Removes an ACL that is there. Nothing is left of what only it needed."""
        resources = self._resources[acl.resource_type]
        names = resources.names(acl.pattern)
        principals = names[acl.name]
        principal = str(acl.principal)
        hosts = principals[principal]
        grants = hosts[acl.host]
        _set(grants, acl.permission, acl.operation, is_set=False)
        self._host_count -= acl.host != EVERY_HOST
        if grants.allowing or grants.denying:
            return
        del hosts[acl.host]
        if hosts:
            return
        del principals[principal]
        patterns = resources.by_principal[principal]
        del patterns[acl.pattern, acl.name]
        if not patterns:
            del resources.by_principal[principal]
        if principals:
            return
        del names[acl.name]
        if acl.pattern == PatternType.PREFIXED:
            _count_down(resources.prefix_lengths, len(acl.name))
        if not resources.by_principal:
            del self._resources[acl.resource_type]

    def rights_of(
        self,
        principals: Sequence[Principal],
        host: str,
        resource_type: ResourceType,
        name: str,
        *,
        is_allowed_without_acls: bool,
    ) -> int:
        """The operations that a caller may do to a resource, as bits.

        `principals`: the caller's own and its groups'; ACLs for every user count besides. `host`: its address as text.
        `is_allowed_without_acls`: what holds where no ACL of anybody fits the name
        (`allow.everyone.if.no.acl.found`).
        """
        resources = self._resources.get(resource_type)
        if resources is None:
            return ALL_OPERATIONS if is_allowed_without_acls else NO_RIGHTS
        names = [_EVERY_USER, *map(str, principals)]
        allowed = denied = 0
        has_acls = False
        for by_principal in resources.fitting(name):
            has_acls = True
            for principal in names:
                hosts = by_principal.get(principal)
                if hosts is not None:
                    for grants in (hosts.get(EVERY_HOST), hosts.get(host)):
                        if grants is not None:
                            allowed |= grants.allowed
                            denied |= grants.denied
        if not has_acls:
            return ALL_OPERATIONS if is_allowed_without_acls else NO_RIGHTS
        return allowed & ~denied

    def may_on_any(
        self,
        principals: Sequence[Principal],
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        *,
        is_allowed_without_acls: bool,
    ) -> bool:
        """Whether a caller may do an operation to some resource of a type, whether or not that exists (KIP-679).

        By the letter of `authorizeByResourceType`: implied operations do not count beyond its first question.
        """
        rights = self.rights_of(
            principals, host, resource_type, _NAME_ON_ANY, is_allowed_without_acls=is_allowed_without_acls
        )
        if rights & bits(operation):
            return True
        asked = bits(operation, Operation.ALL)
        allowing: dict[_Pattern, None] = {}
        denying: set[_Pattern] = set()
        for pattern, grants in self._grants_of(principals, host, resource_type):
            if grants.allowing & asked:
                allowing[pattern] = None
            if grants.denying & asked:
                denying.add(pattern)
        every_name = (PatternType.LITERAL, EVERY_NAME)
        if every_name in denying:
            return False
        if every_name in allowing:
            return True
        prefix_lengths = {len(name) for pattern, name in denying if pattern == PatternType.PREFIXED}
        return any(
            not (pattern == PatternType.LITERAL and (pattern, name) in denying)
            and not any((PatternType.PREFIXED, name[:length]) in denying for length in prefix_lengths)
            for pattern, name in allowing
        )

    def deciding(
        self,
        principals: Sequence[Principal],
        host: str,
        resource_type: ResourceType,
        name: str,
        operation: Operation,
    ) -> Acl | None:
        """The ACL that denies a caller an operation on a resource, else one that allows it; None where there is none.

        The arguments are those of `rights_of`. For records of what was decided: it is not made to be fast. Of several
        ACLs the one of the literal name comes first, then those of `*`, then the longest prefix.
        """
        resources = self._resources.get(resource_type)
        allowing: Acl | None = None
        for pattern, pattern_name, by_principal in () if resources is None else resources.patterns_of(name):
            for principal in (_EVERY_USER, *map(str, principals)):
                hosts = by_principal.get(principal, {})
                for acl_host in (EVERY_HOST, host):
                    grants = hosts.get(acl_host, _Grants())
                    denied = _named_operation(grants.denying, operation, {})
                    named = _named_operation(grants.allowing, operation, _IMPLIED) if denied is None else denied
                    if named is None or (denied is None and allowing is not None):
                        continue
                    acl = Acl(
                        principal=read_principal(principal),
                        host=acl_host,
                        operation=named,
                        permission=Permission.ALLOW if denied is None else Permission.DENY,
                        resource_type=resource_type,
                        name=pattern_name,
                        pattern=pattern,
                    )
                    if denied is not None:
                        return acl
                    allowing = acl
        return allowing

    def _grants_of(
        self, principals: Sequence[Principal], host: str, resource_type: ResourceType
    ) -> Iterator[tuple[_Pattern, _Grants]]:
        """The sums of the ACLs for a caller, by their patterns."""
        resources = self._resources.get(resource_type)
        if resources is None:
            return
        for principal in (_EVERY_USER, *map(str, principals)):
            for pattern, hosts in resources.by_principal.get(principal, {}).items():
                for grants in (hosts.get(EVERY_HOST), hosts.get(host)):
                    if grants is not None:
                        yield pattern, grants

    def matching(self, acl_filter: AclFilter) -> Iterator[Acl]:
        """The ACLs that fit a filter, in no particular order. What the filter names is looked up, not searched for."""
        for resource_type, resources in self._resources.items():
            if acl_filter.resource_type in (ResourceType.ANY, resource_type):
                for (pattern, name), principal, hosts in _candidates(resources, acl_filter):
                    for host, grants in _named(hosts, acl_filter.host):
                        for permission, operations in (
                            (Permission.ALLOW, grants.allowing),
                            (Permission.DENY, grants.denying),
                        ):
                            if acl_filter.permission in (Permission.ANY, permission):
                                for operation in _operations(operations, acl_filter.operation):
                                    yield Acl(
                                        principal=read_principal(principal),
                                        host=host,
                                        operation=operation,
                                        permission=permission,
                                        resource_type=resource_type,
                                        name=name,
                                        pattern=pattern,
                                    )


def _set(grants: _Grants, permission: Permission, operation: Operation, *, is_set: bool) -> None:
    if permission == Permission.ALLOW:
        grants.allowing = _with_bit(grants.allowing, operation, is_set=is_set)
        grants.allowed = expanded(grants.allowing, _IMPLIED)
    else:
        grants.denying = _with_bit(grants.denying, operation, is_set=is_set)
        grants.denied = expanded(grants.denying, {})


def _with_bit(operations: int, operation: Operation, *, is_set: bool) -> int:
    return operations | 1 << operation if is_set else operations & ~(1 << operation)


def _named_operation(operations: int, operation: Operation, implied: Mapping[Operation, int]) -> Operation | None:
    """The one of the operations that ACLs name by which an operation is meant: itself, ALL, or one that implies it."""
    for named in (operation, Operation.ALL, *implied):
        if operations >> named & 1 and expanded(1 << named, implied) >> operation & 1:
            return named
    return None


def expanded(operations: int, implied: Mapping[Operation, int]) -> int:
    """The operations that may be asked for, of those that ACLs name."""
    if operations >> Operation.ALL & 1:
        return ALL_OPERATIONS
    for operation, others in implied.items():
        if operations >> operation & 1:
            operations |= others
    return operations


def _count_down(counts: dict[int, int], key: int) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def _candidates(resources: _Resources, acl_filter: AclFilter) -> Iterator[tuple[_Pattern, str, _Hosts]]:
    """The hosts of each pattern and principal that a filter can fit."""
    is_name_exact = acl_filter.name is not None and acl_filter.pattern != PatternType.MATCH
    if acl_filter.principal is not None and not is_name_exact:
        for (pattern, name), hosts in resources.by_principal.get(acl_filter.principal, {}).items():
            if acl_filter.matches_pattern(pattern, name):
                yield (pattern, name), acl_filter.principal, hosts
        return
    for pattern in (PatternType.LITERAL, PatternType.PREFIXED):
        for name, principals in _named(resources.names(pattern), acl_filter.name if is_name_exact else None):
            if acl_filter.matches_pattern(pattern, name):
                for principal, hosts in _named(principals, acl_filter.principal):
                    yield (pattern, name), principal, hosts


def _named(by_name: Mapping[str, _Value], name: str | None) -> Iterable[tuple[str, _Value]]:
    """All items, or the one of a name."""
    if name is None:
        return by_name.items()
    return ((name, by_name[name]),) if name in by_name else ()


def _operations(operations: int, named: Operation) -> Iterator[Operation]:
    """The operations of a set; of them only the named one unless that is ANY."""
    for operation in Operation:
        if operations >> operation & 1 and named in (Operation.ANY, operation):
            yield operation
