"""The rules by which ACLs decide, switched off.

Rule: as `tests.simulation.mutations.safety_rules`, which has them from here.
"""

from collections.abc import Iterator, Mapping

from coordinator.apply import security as apply_security
from coordinator.commands.security import AclsDeleted, DeleteAcls
from coordinator.security import acl_index
from coordinator.state.state import ClusterState
from protocol.auth.operations import Operation
from tests.simulation.mutations.mutation import mutation
from tests.simulation.mutations.patches import patched
from tests.simulation.plan import Plan


def has_security_changes(plan: Plan) -> bool:
    return plan.has_security_changes


@mutation(where=has_security_changes)
def a_deny_denies_nothing() -> Iterator[None]:
    """An ALLOW wins over every DENY."""
    original = acl_index.expanded

    def expanded(operations: int, implied: Mapping[Operation, int]) -> int:
        return original(operations, implied) if implied else 0

    with patched(acl_index, "expanded", expanded):
        yield


@mutation(where=has_security_changes)
def deleted_acls_go_on_counting() -> Iterator[None]:
    """The index keeps what a filter removed, and so do rights."""

    def delete_acls(state: ClusterState, command: DeleteAcls) -> AclsDeleted:
        fitting = tuple(state.acl_index.matching(command.acl_filter()))
        for acl in fitting:
            state.acls.pop(acl, None)
        return AclsDeleted(acls=fitting)

    with patched(apply_security, "delete_acls", delete_acls):
        yield
