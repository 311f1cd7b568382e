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

    def may_remember(self) -> bool:
        """Whether one more name may be remembered. Counts it."""
        ...

    def forget_if_changed(self, rights: "Rights") -> None:
        """Makes the rights forget what they remember, where the ACLs changed since."""
        ...

    async def catch_up(self) -> None:
        """Returns once everything is applied that was in the ledger before the call, or once the ledger is away."""
        ...

    def count_denials(self, operation: Operation, resource_type: ResourceType, names: Collection[str]) -> None:
        """Counts denials that the caller answers."""
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
        if self._judge.may_remember():
            self[name] = bits
        return bits


class Rights:
    """The rights of one principal with its groups. All connections of that principal share one object."""

    __slots__ = ("_bits_by_type", "_judge", "_record_allowed", "topics")

    def __init__(self, judge: RightsJudge, record_allowed: AllowedRecorder | None = None) -> None:
        """`record_allowed` takes what is allowed to a request; None where the audit log does not have it."""
        self._judge = judge
        self._record_allowed = record_allowed
        self._bits_by_type: Mapping[ResourceType, KnownBits] = {
            resource_type: KnownBits(judge, resource_type)
            for resource_type in ResourceType
            if resource_type is not ResourceType.ANY
        }
        self.topics: Final = self._bits_by_type[ResourceType.TOPIC]
        """The bits by topic, for hot paths: `rights.topics[name] & bit`."""

    def bits(self, resource_type: ResourceType, name: str) -> int:
        """The operations that are allowed on a resource, as bits."""
        return self._bits_by_type[resource_type][name]

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether an operation is allowed, by what is applied now. A denial is not to be answered yet (S16)."""
        return bool(self._bits_by_type[resource_type][name] >> operation & 1)

    async def may_behind_barrier(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether an operation is allowed. False is final: it stands behind a barrier (S16)."""
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
        cluster = self._bits_by_type[ResourceType.CLUSTER]
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
        known, bit = self._bits_by_type[resource_type], 1 << operation
        denied = {name for name in names if not known[name] & bit}
        if denied:
            await self.catch_up()
            denied = {name for name in denied if not known[name] & bit}
        if denied:
            self._judge.count_denials(operation, resource_type, denied)
        if self._record_allowed is not None:
            self._record_allowed(operation, resource_type, [name for name in names if name not in denied])
        return frozenset(denied)

    async def settle(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Takes the barrier of S16 unless the operation is allowed: for bits that are shown, which deny nothing."""
        if not self.may(operation, resource_type, name):
            await self.catch_up()

    def count_denials(self, operation: Operation, resource_type: ResourceType, names: Collection[str]) -> None:
        """Counts denials that the caller judged behind a barrier, and answers."""
        self._judge.count_denials(operation, resource_type, names)

    async def catch_up(self) -> None:
        """Takes the barrier of S16, and forgets what the ACLs no longer say. Without the ledger nothing changes."""
        await self._judge.catch_up()
        self.refresh()

    def refresh(self) -> None:
        """Forgets what the ACLs no longer say. Called at the start of a request, and where a long wait ends."""
        self._judge.forget_if_changed(self)

    def forget(self) -> None:
        """Forgets all bits: they are worked out again."""
        for known in self._bits_by_type.values():
            known.clear()


class _EverythingAllowed:
    """The judge of an agent without an authorizer, and of super users."""

    def bits(self, resource_type: ResourceType, name: str) -> int:
        del resource_type, name
        return EVERY_OPERATION

    def may_on_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        del operation, resource_type
        return True

    def may_remember(self) -> bool:
        return False

    def forget_if_changed(self, rights: Rights) -> None:
        del rights

    async def catch_up(self) -> None:
        """Nothing is denied, so no barrier is needed."""

    def count_denials(self, operation: Operation, resource_type: ResourceType, names: Collection[str]) -> None:
        raise AssertionError(f"{operation.name} on {resource_type.name} {names} was denied to one that may do all")


def all_rights(record_allowed: AllowedRecorder | None = None) -> "Rights":
    """Rights to everything."""
    return Rights(_EverythingAllowed(), record_allowed)


ALL_RIGHTS: Final = all_rights()
"""The rights of every principal while the authorizer is off, and of super users while it is on."""
