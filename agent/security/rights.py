"""The rights of one principal: for each resource the operations that it may perform, as bits that are remembered.

In: a judge, which applies the ACLs. Out: bits (`1 << Operation`), and denials that stand behind a barrier.
A hot path looks a topic up in `topics`, a dict that works out a missing name.
Rule S16: no denial is answered before a barrier. An operation that was allowed through any agent before the request
came is then never denied here. An operation that is allowed needs no barrier.
Source: org.apache.kafka.server.authorizer.Authorizer; KIP-430 for the bits (Kafka 4.3).
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, Protocol

from protocol.auth.operations import CLUSTER_NAME, Operation, ResourceType

EVERY_OPERATION: Final = sum(1 << operation for operation in Operation if operation > Operation.ALL)
"""The bits of all operations that a request can ask for."""


class RightsJudge(Protocol):
    """The source of one principal's rights."""

    def bits(self, resource_type: ResourceType, name: str) -> int:
        """The operations that are allowed on a resource now, as bits."""
        ...

    def may_on_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the operation is allowed on some resource of the type (KIP-679)."""
        ...

    def remember(self, known: dict[str, int], name: str, bits: int) -> None:
        """Puts the bits of a name that is missing into `known`, if they may be remembered."""
        ...

    def replace_old_bits(self, rights: "Rights") -> None:
        """Gives the rights other bits to remember, where the ACLs changed since."""
        ...

    async def catch_up(self) -> None:
        """Returns once everything is applied that was in the ledger before the call, or once the ledger is away."""
        ...

    def count_denials(self, operation: Operation, resource_type: ResourceType, names: Collection[str]) -> None:
        """Counts denials that the caller answers."""
        ...

    def rule(self, operation: Operation, resource_type: ResourceType, name: str) -> str:
        """The ACL or rule that decides the operation on a resource now, in words, for the audit log."""
        ...


AllowedRecorder = Callable[[Operation, ResourceType, Collection[str]], None]
"""Records that a request may perform an operation on these names."""


class KnownBits(dict[str, int]):
    """The bits by the names of one resource type. A missing name is worked out."""

    __slots__ = ("_judge", "_resource_type")

    def __init__(self, judge: RightsJudge, resource_type: ResourceType) -> None:
        super().__init__()
        self._judge = judge
        self._resource_type = resource_type

    def __missing__(self, name: str) -> int:
        bits = self._judge.bits(self._resource_type, name)
        self._judge.remember(self, name, bits)
        return bits


class RememberedBits:
    """The bits of one principal, from one address or, while no ACL names an address, from all."""

    __slots__ = ("by_type",)

    def __init__(self, judge: RightsJudge) -> None:
        self.by_type: Final[Mapping[ResourceType, KnownBits]] = {
            resource_type: KnownBits(judge, resource_type)
            for resource_type in ResourceType
            if resource_type is not ResourceType.ANY
        }


class Rights:
    """The rights of one principal with its groups, from one address. Connections from there share one object."""

    __slots__ = ("_judge", "_record_allowed", "_remembered", "topics")

    def __init__(
        self,
        judge: RightsJudge,
        record_allowed: AllowedRecorder | None = None,
        remembered: RememberedBits | None = None,
    ) -> None:
        """Begin.

        Args:
            judge: applies the ACLs.
            record_allowed: takes what is allowed to a request; None where the audit log does not have it.
            remembered: bits that others share; None for bits of its own.
        """
        self._judge = judge
        self._record_allowed = record_allowed
        self.remember_in(remembered or RememberedBits(judge))

    def remember_in(self, remembered: RememberedBits) -> None:
        """Take the bits from there from now on."""
        self._remembered = remembered
        self.topics = remembered.by_type[ResourceType.TOPIC]
        """The bits by topic, for hot paths: `rights.topics[name] & bit`."""

    def bits(self, resource_type: ResourceType, name: str) -> int:
        """The operations that are allowed on a resource, as bits."""
        return self._remembered.by_type[resource_type][name]

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether an operation is allowed, by what is applied now. A denial is not to be answered yet (S16)."""
        return bool(self._remembered.by_type[resource_type][name] >> operation & 1)

    async def may_behind_barrier(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether an operation is allowed. False is final: it stands behind a barrier (S16)."""
        if self._record_allowed is None and self.may(operation, resource_type, name):
            return True
        return not await self.denied_names(operation, resource_type, (name,))

    async def may_on_cluster(self, *operations: Operation) -> bool:
        """Whether one of the operations is allowed on the cluster. False stands behind a barrier (S16)."""
        allowed = self._allowed_on_cluster(operations)
        if allowed is None:
            await self.catch_up()
            allowed = self._allowed_on_cluster(operations)
        if allowed is None:
            self._judge.count_denials(operations[0], ResourceType.CLUSTER, (CLUSTER_NAME,))
        elif self._record_allowed is not None:
            self._record_allowed(allowed, ResourceType.CLUSTER, (CLUSTER_NAME,))
        return allowed is not None

    def _allowed_on_cluster(self, operations: Iterable[Operation]) -> Operation | None:
        """The first of the operations that is allowed on the cluster."""
        cluster = self._remembered.by_type[ResourceType.CLUSTER]
        return next((operation for operation in operations if cluster[CLUSTER_NAME] >> operation & 1), None)

    async def may_on_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the operation is allowed on some resource of the type. False stands behind a barrier (S16)."""
        if self._judge.may_on_any(operation, resource_type):
            return True
        await self.catch_up()
        return self._judge.may_on_any(operation, resource_type)

    async def denied_names(
        self, operation: Operation, resource_type: ResourceType, names: Iterable[str]
    ) -> frozenset[str]:
        """The names on which the operation is denied, behind a barrier (S16). At once where none is."""
        if self._record_allowed is not None:
            names = tuple(names)
        denied = self._denied(operation, resource_type, names)
        if denied:
            await self.catch_up()
            denied = self._denied(operation, resource_type, denied)
        if denied:
            self._judge.count_denials(operation, resource_type, denied)
        if self._record_allowed is not None:
            self._record_allowed(operation, resource_type, [name for name in names if name not in denied])
        return frozenset(denied)

    def _denied(self, operation: Operation, resource_type: ResourceType, names: Iterable[str]) -> set[str]:
        known, bit = self._remembered.by_type[resource_type], 1 << operation
        return {name for name in names if not known[name] & bit}

    async def settle(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Takes the barrier of S16 unless the operation is allowed: for bits that are shown, which deny nothing."""
        if not self.may(operation, resource_type, name):
            await self.catch_up()

    def count_denials(self, operation: Operation, resource_type: ResourceType, names: Collection[str]) -> None:
        """Counts denials that the caller judged behind a barrier, and answers."""
        self._judge.count_denials(operation, resource_type, names)

    def rule(self, operation: Operation, resource_type: ResourceType, name: str) -> str:
        """The ACL or rule that decides the operation on a resource now, in words, for the audit log."""
        return self._judge.rule(operation, resource_type, name)

    async def catch_up(self) -> None:
        """Takes the barrier of S16, and forgets what the ACLs no longer say. Without the ledger nothing changes."""
        await self._judge.catch_up()
        self.refresh()

    def refresh(self) -> None:
        """Forgets what the ACLs no longer say. Called at the start of a request, and where a long wait ends."""
        self._judge.replace_old_bits(self)


class _EverythingAllowed:
    """The judge of an agent without an authorizer, and of super users."""

    def bits(self, resource_type: ResourceType, name: str) -> int:
        del resource_type, name
        return EVERY_OPERATION

    def may_on_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        del operation, resource_type
        return True

    def remember(self, known: dict[str, int], name: str, bits: int) -> None:
        """Remembers nothing: there is nothing to work out."""

    def replace_old_bits(self, rights: Rights) -> None:
        """Leaves them: no ACL changes them."""

    async def catch_up(self) -> None:
        """Nothing is denied, so no barrier is needed."""

    def count_denials(self, operation: Operation, resource_type: ResourceType, names: Collection[str]) -> None:
        raise AssertionError(f"{operation.name} on {resource_type.name} {names} was denied to one that may do all")

    def rule(self, operation: Operation, resource_type: ResourceType, name: str) -> str:
        del operation, resource_type, name
        return "everything is allowed"


def all_rights(record_allowed: AllowedRecorder | None = None) -> "Rights":
    """Rights to everything."""
    return Rights(_EverythingAllowed(), record_allowed)


ALL_RIGHTS: Final = all_rights()
"""The rights of every principal while the authorizer is off, and of super users while it is on."""
