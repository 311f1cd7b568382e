"""What guards groups, switched off: safety rule S13, and what members rely on.

Rule: as `tests.simulation.mutations.safety_rules`, which has them from here.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

from agent.groups import consumer_coordinator, consumer_group
from agent.groups.classic_coordinator import ClassicGroupCoordinator
from agent.groups.classic_group import HostedClassicGroup
from agent.groups.consumer_coordinator import ConsumerGroupCoordinator
from agent.groups.group_ledger import GroupLedger
from agent.handlers import offset_fetch
from agent.ledger.ledger_writer import LedgerWriter
from agent.request.cut_off import CutOff
from agent.request.services import Services
from coordinator.apply import groups as apply_groups
from coordinator.commands.consumer_group_values import ConsumerGroup
from coordinator.commands.group_values import NO_GROUP, GroupState
from coordinator.groups import group_migration
from coordinator.groups.classic_group import LiveClassicGroup
from coordinator.groups.consumer_group import LiveConsumerGroup
from coordinator.groups.consumer_group_copy import GroupCopy
from coordinator.state.state import ClusterState
from protocol.errors import ErrorCode
from protocol.types import SessionId
from tests.simulation.faults.fault_names import FaultName
from tests.simulation.mutations.mutation import mutation
from tests.simulation.mutations.patches import patched
from tests.simulation.plan import Fate, GroupKind, Plan

MOVES = (FaultName.CRASH, FaultName.RESTART, FaultName.PAUSE, FaultName.LEDGER_CUT)
"""What gives groups other coordinators."""
CLASSIC_KINDS = {GroupKind.EAGER, GroupKind.COOPERATIVE}


def has_classic(plan: Plan) -> bool:
    return any(group.kind in CLASSIC_KINDS for group in plan.groups)


def wakes_up_late(plan: Plan) -> bool:
    """Whether classic members are paused for longer than their sessions, and then commit."""
    return any(
        group.kind in CLASSIC_KINDS
        and group.members > 1
        and Fate.PAUSE in group.fates
        and group.session_ms <= 2_000
        and group.commit_chance == 1.0
        for group in plan.groups
    )


def has_consumer(plan: Plan) -> bool:
    return any(group.kind is GroupKind.CONSUMER and group.members > 1 for group in plan.groups)


def has_static_mixed(plan: Plan) -> bool:
    return any(
        group.kind is GroupKind.MIXED and group.static_members and group.members > group.static_members
        for group in plan.groups
    )


def commits_often(plan: Plan) -> bool:
    return any(group.commit_chance >= 0.5 for group in plan.groups)


def _any_claim(
    state: ClusterState, session_id: SessionId, group_id: str, claim_epoch: int, **others: Any
) -> GroupState:
    return state.groups[group_id]


@mutation(*MOVES, where=commits_often)
def s13_offsets_are_committed_under_any_claim() -> Iterator[None]:
    """Apply takes what a coordinator of before commits."""

    def commit(state: ClusterState, session_id: SessionId, command: Any) -> Any:
        with patched(apply_groups, "claimed", _any_claim):
            return commit_right(state, session_id, command)

    commit_right = apply_groups.commit_offsets
    with patched(apply_groups, "commit_offsets", commit):
        yield


@mutation(*MOVES, where=has_classic)
def s13_generations_are_written_under_any_claim() -> Iterator[None]:
    """Apply takes the generations that a coordinator of before decides."""

    def write(state: ClusterState, session_id: SessionId, command: Any) -> Any:
        with patched(apply_groups, "claimed", _any_claim):
            return write_right(state, session_id, command)

    write_right = apply_groups.write_classic_group
    with patched(apply_groups, "write_classic_group", write):
        yield


@mutation(where=lambda plan: bool(plan.groups))
def s13_a_claim_is_given_to_anybody() -> Iterator[None]:
    """Whoever is asked coordinates the group, and apply lets it."""

    def coordinator(self: GroupLedger, group_id: str) -> SessionId | None:
        return self._ledger.session

    def claim_error(state: ClusterState, session_id: SessionId, group_id: str, owner: SessionId | None) -> ErrorCode:
        return ErrorCode.none

    with patched(GroupLedger, "coordinator", coordinator), patched(apply_groups, "_claim_error", claim_error):
        yield


@mutation(*MOVES, where=lambda plan: bool(plan.groups))
def s13_a_coordinator_goes_on_after_its_claim_is_over() -> Iterator[None]:
    """It answers from memory until the ledger refuses something, although it has applied the claim of another one."""

    def current(self: ClassicGroupCoordinator | ConsumerGroupCoordinator, group_id: str) -> Any:
        live = self._live.get(group_id)
        return None if live is None or live.is_over else live

    def owns(self: GroupLedger, group_id: str) -> bool:
        return group_id in self._versions and group_id in self._ledger.state.groups

    with (
        patched(ClassicGroupCoordinator, "_current", current),
        patched(ConsumerGroupCoordinator, "_current", current),
        patched(GroupLedger, "owns", owns),
    ):
        yield


@mutation(
    FaultName.PAUSE,
    FaultName.LEDGER_CUT,
    where=lambda plan: bool(plan.groups) and plan.seconds > 30 and len(plan.faults) < 4,
)
def s4_a_coordinator_that_is_cut_off_answers_for_ever() -> Iterator[None]:
    """Nobody asks when the ledger confirmed its session last."""

    def owns(self: GroupLedger, group_id: str) -> bool:
        with patched(LedgerWriter, "is_confirmed", True):
            return owns_right(self, group_id)

    owns_right = GroupLedger.owns
    # Clients that leave agents without a ledger let hardly any world show it.
    with patched(GroupLedger, "owns", owns), patched(CutOff, "is_cut_off", False):
        yield


@mutation(FaultName.LEDGER_LAG, where=lambda plan: plan.has_lag_monitors and commits_often(plan))
def s4_offsets_are_fetched_without_a_barrier() -> Iterator[None]:
    """A coordinator tells how far a group has come as far as it has heard."""

    async def barrier(services: Services) -> bool:
        return True

    with patched(offset_fetch, "passes_barrier", barrier):
        yield


@mutation(where=wakes_up_late)
def s13_commits_of_any_generation_are_taken() -> Iterator[None]:
    """Whoever was a member may commit."""

    def check_commit(self: LiveClassicGroup, *args: Any, **others: Any) -> ErrorCode:
        return ErrorCode.none

    with patched(LiveClassicGroup, "check_commit", check_commit):
        yield


@mutation(*MOVES, where=has_classic)
def a_generation_is_restored_one_too_low() -> Iterator[None]:
    """The next coordinator counts on from the generation before."""

    def init(self: LiveClassicGroup, value: Any, limits: Any, now_s: float) -> None:
        init_right(self, value, limits, now_s)
        self.generation = max(0, self.generation - 1)

    init_right = LiveClassicGroup.__init__
    with patched(LiveClassicGroup, "__init__", init):
        yield


@mutation(*MOVES, where=has_classic)
def members_are_forgotten_with_their_coordinator() -> Iterator[None]:
    """The next coordinator knows the generation, and nobody in it."""

    def init(self: LiveClassicGroup, value: Any, limits: Any, now_s: float) -> None:
        init_right(self, NO_GROUP, limits, now_s)
        self.generation = value.generation

    init_right = LiveClassicGroup.__init__
    with patched(LiveClassicGroup, "__init__", init):
        yield


@mutation(FaultName.LEDGER_SHAKY, FaultName.LEDGER_CUT, where=has_classic)
def a_generation_is_told_before_it_is_applied() -> Iterator[None]:
    """Answers do not wait for the ledger."""

    def release(self: HostedClassicGroup) -> None:
        while self._pending_answers:
            self._pending_answers.popleft().deliver(ErrorCode.none)

    with patched(HostedClassicGroup, "_release", release):
        yield


@mutation(where=commits_often)
def a_commit_is_acknowledged_before_it_is_applied() -> Iterator[None]:
    """The coordinator takes its own word for it."""

    def commit(self: GroupLedger, group_id: str, rows: Any) -> "asyncio.Future[Any]":
        commit_right(self, group_id, rows)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_result([ErrorCode.none] * len(rows))
        return future

    commit_right = GroupLedger.commit
    with patched(GroupLedger, "commit", commit):
        yield


@mutation(where=has_consumer)
def a_partition_is_given_before_another_member_gave_it_up() -> Iterator[None]:
    """The target assignment is what everybody has, at once."""

    def owner(self: GroupCopy, topic_id: Any, index: Any) -> None:
        return None

    with patched(GroupCopy, "owner", owner):
        yield


@mutation(where=lambda plan: has_consumer(plan) and commits_often(plan))
def s13_commits_of_any_member_epoch_are_taken() -> Iterator[None]:
    """Whoever was a member of a consumer group may commit."""
    with patched(consumer_coordinator, "commit_error", lambda *args, **others: ErrorCode.none):
        yield


@mutation(*MOVES, where=has_consumer)
def members_of_consumer_groups_are_forgotten_with_their_coordinator() -> Iterator[None]:
    """The next coordinator begins with nobody."""

    def init(self: LiveConsumerGroup, group_id: str, group: Any, now_s: float, **others: Any) -> None:
        forgotten = None if group is None else ConsumerGroup(epoch=group.epoch, target_epoch=group.target_epoch)
        init_right(self, group_id, forgotten, now_s, **others)

    init_right = LiveConsumerGroup.__init__
    with patched(LiveConsumerGroup, "__init__", init):
        yield


@mutation(where=has_static_mixed)
def a_classic_group_takes_up_who_waits_for_partitions_as_if_it_had_them() -> Iterator[None]:
    """It rebalances only where a member left, or subscribes to something else, as in Kafka."""
    with patched(group_migration, "is_reconciled", lambda standing, epoch: True):
        yield


@mutation(is_scripted=True)
def s4_a_coordinator_that_is_cut_off_calls_members_unknown() -> Iterator[None]:
    """They have joined elsewhere, and give up what they have."""
    with patched(consumer_group, "is_fatal_to_member", lambda error_code: False):
        yield
