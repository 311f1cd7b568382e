"""Rights that a test fixes, and what a barrier changes of them."""

from collections.abc import Callable, Collection, Mapping

from agent.security.rights import Rights
from protocol.auth.operations import Operation, ResourceType

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

    def may_remember(self) -> bool:
        return True

    def forget_if_changed(self, rights: Rights) -> None:
        now = self._table()
        if now != self._now:
            self._now = now
            rights.forget()

    async def catch_up(self) -> None:
        self.barriers_count += 1

    def count_denials(self, operation: Operation, resource_type: ResourceType, names: Collection[str]) -> None:
        self.denials.append((operation, resource_type, frozenset(names)))


def rights_of(table: Table) -> Rights:
    """Rights that stay as they are."""
    return Rights(FixedJudge(lambda: table))
