"""Rights that a test fixes, and what a barrier changes of them."""

from collections.abc import Callable, Collection, Iterable, Mapping

from agent.security.rights import RememberedBits, Rights
from coordinator.security.acl_index import AclIndex
from coordinator.security.acls import Acl
from protocol.auth.operations import CLUSTER_NAME, EVERY_NAME, Operation, PatternType, Permission, ResourceType
from protocol.auth.principals import ANONYMOUS, Principal

Table = Mapping[tuple[ResourceType, str], int]
"""The bits by type and name; `*` is every name."""


class FixedJudge:
    """A judge with a table. `table` is read again after each barrier, and `denials` has what was answered."""

    def __init__(self, table: Callable[[], Table]) -> None:
        self._table = table
        self._now = table()
        self.barriers_count = 0
        self.denials: list[tuple[Operation, ResourceType, frozenset[str]]] = []

    def bits(self, resource_type: ResourceType, name: str) -> int:
        return self._now.get((resource_type, name), 0) | self._now.get((resource_type, "*"), 0)

    def may_on_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        return any(key[0] is resource_type and bits >> operation & 1 for key, bits in self._now.items())

    def remember(self, known: dict[str, int], name: str, bits: int) -> None:
        known[name] = bits

    def replace_old_bits(self, rights: Rights) -> None:
        now = self._table()
        if now != self._now:
            self._now = now
            rights.remember_in(RememberedBits(self))

    async def catch_up(self) -> None:
        self.barriers_count += 1

    def count_denials(self, operation: Operation, resource_type: ResourceType, names: Collection[str]) -> None:
        self.denials.append((operation, resource_type, frozenset(names)))

    def rule(self, operation: Operation, resource_type: ResourceType, name: str) -> str:
        return f"the table's {operation.name} on {resource_type.name}:{name}"


def rights_of(table: Table) -> Rights:
    """Rights that stay as they are."""
    return Rights(FixedJudge(lambda: table))


class AclJudge(FixedJudge):
    """A judge by ACLs for one principal."""

    def __init__(self, principal: Principal, acls: Iterable[Acl]) -> None:
        super().__init__(dict)
        self._principals = (principal,)
        self._index = AclIndex.of(acls)

    def bits(self, resource_type: ResourceType, name: str) -> int:
        return self._index.rights_of(self._principals, "h", resource_type, name, is_allowed_without_acls=False)

    def may_on_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        return self._index.may_on_any(self._principals, "h", operation, resource_type, is_allowed_without_acls=False)


def single_right(operation: Operation, resource_type: ResourceType) -> Rights:
    """The rights of a principal with one ACL: an operation on all resources of a type."""
    acl = Acl(
        principal=ANONYMOUS,
        host="*",
        operation=operation,
        permission=Permission.ALLOW,
        resource_type=resource_type,
        name=CLUSTER_NAME if resource_type is ResourceType.CLUSTER else EVERY_NAME,
        pattern=PatternType.LITERAL,
    )
    return Rights(AclJudge(ANONYMOUS, [acl]))


def no_rights() -> Rights:
    """The rights of a principal that no ACL names."""
    return Rights(AclJudge(ANONYMOUS, ()))
