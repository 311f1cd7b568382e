"""What clients might do at each position of the ledger, by a look at each ACL.

Rule: what an agent answers to a client was true at some position. An allowed operation was allowed at one since that
which the agent had applied when the request came. A denied one was denied at one since the ledger's head at that time
(safety rule S16). Both end at the head when the answer came.
"""

from collections.abc import Callable, Sequence

from coordinator.commands.commands import Proposal
from coordinator.commands.security import CreateAcls, DeleteAcls
from coordinator.state.state import ClusterState
from protocol.auth.operations import Operation
from protocol.auth.principals import Principal
from protocol.types import Position

Question = tuple[Principal, str, Operation]
Decide = Callable[[ClusterState, Principal, str], dict[Operation, bool]]


class RightsHistory:
    """The decisions of one world."""

    def __init__(self, principals: Sequence[Principal], names: Sequence[str], decide: Decide) -> None:
        self._principals = principals
        self._names = names
        self._decide = decide
        self._changes: list[tuple[Position, dict[Question, bool]]] = []
        """The decisions from each position at which an ACL was changed."""

    def after(self, state: ClusterState, proposal: Proposal) -> None:
        """An entry was applied."""
        if isinstance(proposal.command, CreateAcls | DeleteAcls):
            decisions = {
                (principal, name, operation): is_allowed
                for principal in self._principals
                for name in self._names
                for operation, is_allowed in self._decide(state, principal, name).items()
            }
            self._changes.append((state.position, decisions))

    def held(self, question: Question, first: Position, last: Position) -> set[bool]:
        """The decisions at the positions from `first` to `last`, both included."""
        decisions: set[bool] = set()
        at_first = False  # without an ACL nothing is allowed
        for position, changed in self._changes:
            if position <= first:
                at_first = changed[question]
            elif position <= last:
                decisions.add(changed[question])
        return decisions | {at_first}
