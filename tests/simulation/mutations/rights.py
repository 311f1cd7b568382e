"""The rules of rights, switched off."""

from collections.abc import Iterable, Iterator

from agent.security import authorizer
from agent.security.denial_barrier import DenialBarrier
from agent.security.rights import Rights
from protocol.auth.operations import Operation, ResourceType
from tests.simulation.mutations.mutation import mutation
from tests.simulation.mutations.patches import patched


@mutation(is_scripted=True)
def s16_a_denial_needs_no_barrier() -> Iterator[None]:
    """A client is denied by what its agent happens to have applied."""

    async def passes(self: DenialBarrier, seconds_max: float = 0) -> bool:
        return True

    with patched(DenialBarrier, "passes", passes):
        yield


@mutation(is_scripted=True)
def s16_a_login_needs_no_barrier() -> Iterator[None]:
    """A user is looked up in what its agent happens to have applied."""

    async def before_login(self: DenialBarrier) -> None:
        """Returns at once."""

    with patched(DenialBarrier, "before_login", before_login):
        yield


@mutation()
def s16_bits_that_all_addresses_share_are_asked_behind_the_barrier() -> Iterator[None]:
    """A request that waits for its barrier while the first ACL with an address comes is judged without its own."""

    def replace_old_bits(self: authorizer._PrincipalJudge, rights: Rights) -> None:
        if self._version != self._authorizer.acls.version:
            self._version = self._authorizer.acls.version
            for known in rights._remembered.by_type.values():
                known.clear()

    with patched(authorizer._PrincipalJudge, "replace_old_bits", replace_old_bits):
        yield


@mutation(is_scripted=True)
def a_topic_has_to_exist_before_it_is_denied() -> Iterator[None]:
    """Rights are asked after the state: a client without rights learns which topics there are."""
    original = Rights.denied_names

    async def denied_names(
        self: Rights, operation: Operation, resource_type: ResourceType, names: Iterable[str]
    ) -> frozenset[str]:
        denied = await original(self, operation, resource_type, names)
        judge = self._judge
        if resource_type is not ResourceType.TOPIC or not isinstance(judge, authorizer._PrincipalJudge):
            return denied
        return denied & judge._authorizer._ledger.state.topic_ids.keys()

    with patched(Rights, "denied_names", denied_names):
        yield
