"""The rules of rights, switched off."""

from collections.abc import Iterator

from agent.security.denial_barrier import DenialBarrier
from tests.simulation.mutations.mutation import mutation
from tests.simulation.mutations.patches import patched


@mutation(is_scripted=True)
def s16_a_denial_needs_no_barrier() -> Iterator[None]:
    """A client is denied by what its agent happens to have applied."""

    async def passes(self: DenialBarrier) -> bool:
        return True

    with patched(DenialBarrier, "passes", passes):
        yield
