"""What guards members of groups that commit in transactions, switched off: safety rules S7 and S13, and KIP-447.

Rule: as `tests.simulation.mutations.safety_rules`, which has them from here.
"""

from collections.abc import Iterator
from typing import Any

from agent.handlers import txn_offset_commit
from agent.request import offset_commits
from coordinator.apply import groups as apply_groups
from coordinator.apply import pending_offsets as apply_pending_offsets
from coordinator.commands.group_values import GroupState
from coordinator.state.state import ClusterState
from protocol.errors import ErrorCode
from protocol.types import SessionId
from tests.simulation.clients.transactional_members import REFUSED_BY_GROUP
from tests.simulation.mutations.groups import CLASSIC_KINDS, MOVES
from tests.simulation.mutations.mutation import mutation
from tests.simulation.mutations.patches import patched
from tests.simulation.plan import Fate, GroupPlan


def commits_in_transactions(group: GroupPlan) -> bool:
    return group.producer is not None


def is_left_behind(group: GroupPlan) -> bool:
    """Whether members stand still within transactions for longer than their sessions."""
    is_paused = group.members > 1 and Fate.PAUSE in group.fates and group.session_ms <= 6_000
    return commits_in_transactions(group) and is_paused


def taken_of(*refusals: ErrorCode) -> Any:
    """TxnOffsetCommit takes what the group's coordinator would refuse with these."""
    right = offset_commits.commit_error

    def judge(*args: Any, **others: Any) -> ErrorCode:
        error_code = right(*args, **others)
        return ErrorCode.none if error_code in refusals else error_code

    return patched(txn_offset_commit, "commit_error", judge)


@mutation(where=lambda plan: any(is_left_behind(group) and group.kind in CLASSIC_KINDS for group in plan.groups))
def s13_transactions_of_any_generation_commit_offsets() -> Iterator[None]:
    """Whoever was a member of a classic group may go on."""
    with taken_of(*REFUSED_BY_GROUP):
        yield


@mutation(where=lambda plan: any(is_left_behind(group) and group.kind not in CLASSIC_KINDS for group in plan.groups))
def s13_transactions_of_any_member_epoch_commit_offsets() -> Iterator[None]:
    """Whoever was a member of a consumer group may go on."""
    with taken_of(*REFUSED_BY_GROUP):
        yield


@mutation(is_scripted=True)
def offsets_are_told_that_an_open_transaction_is_about_to_move() -> Iterator[None]:
    """RequireStable asks for nothing (KIP-447)."""
    with patched(GroupState, "pending_partitions", lambda self: frozenset()):
        yield


@mutation(*MOVES, where=lambda plan: any(map(commits_in_transactions, plan.groups)))
def s13_transactions_commit_offsets_under_any_claim() -> Iterator[None]:
    """Apply takes what a coordinator of before lets in."""

    def claimed(state: ClusterState, session_id: SessionId, group_id: str, claim_epoch: int) -> Any:
        found = claimed_right(state, session_id, group_id, claim_epoch)
        return found if isinstance(found, GroupState) else state.groups.get(group_id, found)

    claimed_right = apply_groups.claimed
    with patched(apply_pending_offsets, "claimed", claimed):
        yield
