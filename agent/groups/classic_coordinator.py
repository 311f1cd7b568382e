"""The coordinator of this agent's classic groups: it claims and loads them, answers their members, and runs time-outs.

A group's machine (`coordinator.groups.classic_group`) decides; its generations are in the ledger, under this agent's
claim (safety rule S13). When the claim is over the group is unloaded: waiting requests get NOT_COORDINATOR, and the
next coordinator goes on from the ledger. A heartbeat costs no ledger entry.
Source: org.apache.kafka.coordinator.group.GroupCoordinatorService (Kafka 4.3).
"""

import asyncio
import uuid
from collections.abc import Sequence
from typing import TypeVar

from msgspec.structs import replace

from agent.context import AgentContext
from agent.groups.classic_group import HostedClassicGroup
from agent.groups.consumer_coordinator import ConsumerGroupCoordinator
from agent.groups.group_ledger import GroupLedger, NotCoordinator
from agent.groups.group_timers import GroupTimers
from agent.groups.logging import log_handed_over
from agent.groups.owned_groups import OwnedGroups
from agent.runtime.periodic_job import PeriodicJob
from agent.runtime.yielding import CooperativeYield
from coordinator.commands.group_values import NO_GROUP, ClassicGroup, GroupState, heard_until_s
from coordinator.configs.broker_configs import broker_value
from coordinator.groups.classic_descriptions import describe_kept
from coordinator.groups.classic_group import LiveClassicGroup
from coordinator.groups.classic_messages import (
    NO_MEMBER_ID,
    Description,
    GroupLimits,
    Join,
    JoinAnswer,
    Leaver,
    Sync,
    SyncAnswer,
    is_without_member,
)
from protocol.errors import ErrorCode
from protocol.limits import (
    CLASSIC_MEMBERS_MAX,
    GROUP_CHECK_INTERVAL_S,
    MEMBER_ID_PREFIX_CHARS_MAX,
)

AnswerT = TypeVar("AnswerT", JoinAnswer, SyncAnswer)

PROTOCOL = "classic"
GROUP_ID_NOT_FOUND_SINCE = 9
"""The first version of OffsetCommit with the error GROUP_ID_NOT_FOUND (KIP-848)."""


def _resolved(answer: AnswerT) -> asyncio.Future[AnswerT]:
    """A future that has the answer already."""
    future: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
    future.set_result(answer)
    return future


class ClassicGroupCoordinator:
    """The classic groups of this agent."""

    def __init__(self, context: AgentContext, *, group_ledger: GroupLedger) -> None:
        self._ledger = context.ledger
        self._group_ledger = group_ledger
        self._clock = context.clock
        self._ids = context.ids
        self._session_ms_min = int(broker_value(context.broker_configs, "group.min.session.timeout.ms"))
        self._session_ms_max = int(broker_value(context.broker_configs, "group.max.session.timeout.ms"))
        self._limits = GroupLimits(
            initial_rebalance_delay_ms=max(
                0, int(broker_value(context.broker_configs, "group.initial.rebalance.delay.ms"))
            ),
            members_max=min(CLASSIC_MEMBERS_MAX, int(broker_value(context.broker_configs, "group.max.size"))),
        )
        self.consumer_groups: ConsumerGroupCoordinator | None = None
        """The groups of the consumer protocol, whose members may speak the classic one; wired before any request."""
        self._live: dict[str, HostedClassicGroup] = {}
        """The loaded groups."""
        self._timers = GroupTimers(context.clock)
        self._is_stopped = False
        self._owned = OwnedGroups(
            ledger=context.ledger,
            group_ledger=group_ledger,
            clock=context.clock,
            protocol=PROTOCOL,
            is_to_load=self._is_to_load,
            load=self._load,
        )
        self._generations_of_unloaded_count = 0

    # Requests

    async def join(self, group_id: str, join: Join) -> asyncio.Future[JoinAnswer]:
        """The answer to a JoinGroup; its future ends when the other members have joined."""
        error = self._check_join(group_id, join)
        if error is ErrorCode.none:
            try:
                live = await self._find(group_id, is_made=join.member_id == NO_MEMBER_ID)
            except NotCoordinator as not_here:
                error = not_here.error_code
            else:
                if live is not None:
                    answer = live.join(join, self._clock.monotonic_s())
                    self._changed(live)
                    return answer
                consumers = self._consumers_of(group_id)
                if consumers is not None:
                    return _resolved(await consumers.join(group_id, join))
                error = ErrorCode.unknown_member_id
        return _resolved(JoinAnswer(error_code=error, member_id=join.member_id))

    def _check_join(self, group_id: str, join: Join) -> ErrorCode:
        if not group_id:
            return ErrorCode.invalid_group_id
        if not self._session_ms_min <= join.session_timeout_ms <= self._session_ms_max:
            return ErrorCode.invalid_session_timeout
        if join.member_id == NO_MEMBER_ID and not (join.protocol_type and join.protocols):
            # No group accepts such a member, so no claim, which is a ledger entry, is made for it.
            return ErrorCode.inconsistent_group_protocol
        return ErrorCode.none

    def new_member_id(self, client_id: str, group_instance_id: str | None) -> str:
        """A new id for a member that joins without one."""
        begins_with = client_id if group_instance_id is None else group_instance_id
        return f"{begins_with[:MEMBER_ID_PREFIX_CHARS_MAX]}-{uuid.UUID(bytes=self._ids.new_uuid())}"

    async def sync(self, group_id: str, sync: Sync) -> asyncio.Future[SyncAnswer]:
        """The answer to a SyncGroup; its future ends when the leader's SyncGroup has come."""
        live, error = await self._find_members(group_id)
        if live is not None:
            answer = live.sync(sync, self._clock.monotonic_s())
            self._changed(live)
            return answer
        consumers = self._consumers_of(group_id)
        if consumers is not None:
            return _resolved(await consumers.sync(group_id, sync))
        return _resolved(SyncAnswer(error_code=error))

    async def heartbeat(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation: int
    ) -> ErrorCode:
        """The answer to a Heartbeat."""
        live, error = await self._find_members(group_id)
        if live is None:
            consumers = self._consumers_of(group_id)
            if consumers is None:
                return error
            return await consumers.classic_heartbeat(group_id, member_id, group_instance_id, generation)
        answer = live.machine.heartbeat(member_id, group_instance_id, generation, self._clock.monotonic_s())
        error = await live.until_applied(answer)
        return answer if error is ErrorCode.none else error

    async def leave(self, group_id: str, leavers: Sequence[Leaver]) -> tuple[ErrorCode, tuple[ErrorCode, ...]]:
        """The answer to a LeaveGroup: an error of the whole request, else NONE and an error code for each member."""
        live, error = await self._find_members(group_id)
        if live is None:
            consumers = self._consumers_of(group_id)
            if consumers is not None:
                return await consumers.leave(group_id, leavers)
            is_unknown = error is ErrorCode.unknown_member_id
            return (ErrorCode.none, (error,) * len(leavers)) if is_unknown else (error, ())
        answers = live.leave(leavers, self._clock.monotonic_s())
        self._changed(live)
        error = await live.until_applied(*answers)
        return (ErrorCode.none, answers) if error is ErrorCode.none else (error, ())

    def check_commit(
        self,
        group_id: str,
        *,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        api_version: int,
        is_transactional: bool = False,
    ) -> ErrorCode:
        """The error of a commit of offsets by that member or client, for a group that this agent has claimed.

        With NONE the caller proposes the commit in the same turn of the loop, so that it stands in the ledger behind
        all entries that NONE follows from. An error may follow from entries that are not applied: the caller waits for
        them (`offset_commits.rejection`). Source: org.apache.kafka.coordinator.group.OffsetMetadataManager
        .validateOffsetCommit.
        """
        group = self._ledger.state.groups.get(group_id)
        live = self._current(group_id)
        if group is None or self._is_stopped or (live is None and not self._group_ledger.owns(group_id)):
            return ErrorCode.not_coordinator
        if generation >= 0 and group.is_vacant and (live is None or live.is_idle):
            is_code_known = api_version >= GROUP_ID_NOT_FOUND_SINCE
            return ErrorCode.group_id_not_found if is_code_known else ErrorCode.illegal_generation
        if live is None:
            try:
                live = self._load(group)
            except NotCoordinator as not_yet:
                return not_yet.error_code
            if live is None:
                return ErrorCode.unknown_member_id
        if is_transactional and is_without_member(member_id, group_instance_id, generation):
            return ErrorCode.none
        now_s = self._clock.monotonic_s()
        return live.machine.check_commit(member_id, group_instance_id, generation, now_s, is_pending=is_transactional)

    async def describe(self, group_id: str) -> Description | None:
        """A group that this agent coordinates; None where it does not exist, or is no classic one.

        Raises `NotCoordinator`.
        """
        live = self._current(group_id)
        if live is not None:
            error = await live.until_applied()
            if error is not ErrorCode.none:
                raise NotCoordinator(error)
        group = self._ledger.state.groups.get(group_id)
        is_there = group is not None and not group.is_vacant
        if live is not None and (is_there or not live.is_idle):
            return live.machine.describe()
        value = group.value if group is not None and group.value is not None else NO_GROUP
        if not is_there or not isinstance(value, ClassicGroup):
            return None
        return describe_kept(value)

    def unwritten(self) -> Sequence[str]:
        """The ids of loaded groups of which the ledger has nothing yet: their first members are joining."""
        groups = self._ledger.state.groups
        return [group_id for group_id in self._live if (group := groups.get(group_id)) is None or group.is_vacant]

    def forget(self, group_id: str, error_code: ErrorCode = ErrorCode.unknown_member_id) -> None:
        """Unload a group that was deleted or is of the other kind now; its waiting requests get the error."""
        live = self._live.get(group_id)
        if live is not None:
            self._unload(live, error_code)

    def is_there(self, group_id: str) -> bool:
        """Whether the group exists to clients: in the ledger, or with first members that are joining.

        The caller has taken a barrier (S4). Raises `NotCoordinator`.
        """
        is_known = self._group_ledger.readable(group_id) is not None
        return is_known or self._is_joined(group_id) or self._consumers_of(group_id) is not None

    def _is_joined(self, group_id: str) -> bool:
        """Whether a loaded group has members, which may be joining, so that the ledger has nothing of them yet."""
        live = self._current(group_id)
        return live is not None and not live.is_idle

    def value(self, group_id: str) -> ClassicGroup | None:
        """A loaded group with members that have joined since its last generation; None where it is not loaded."""
        live = self._current(group_id)
        return None if live is None else live.machine.value()

    def protocol_type(self, group_id: str) -> str | None:
        """The protocol type of a group's members; None where the group is not loaded here, or has no members."""
        live = self._current(group_id)
        return live.machine.protocol_type if live is not None and live.machine.members else None

    def take_over(self, group_id: str, reason: str, *, is_rebalanced: bool) -> None:
        """Load a group of the consumer protocol that is in the ledger as a classic one now."""
        group = self._ledger.state.groups.get(group_id)
        if group is None or self._is_stopped or not self._group_ledger.owns(group_id):
            return
        try:
            live = self._load(group)
        except NotCoordinator:
            self._owned.is_load_due = True
            return
        if live is not None and is_rebalanced:
            live.rebalance(reason, self._clock.monotonic_s())
            self._changed(live)

    def stop(self) -> None:
        """Unload all groups, and load none: waiting requests get NOT_COORDINATOR."""
        self._is_stopped = True
        log_handed_over(self._live, protocol=PROTOCOL)
        for live in tuple(self._live.values()):
            self._unload(live, ErrorCode.not_coordinator)

    # Metrics

    @property
    def groups_count(self) -> int:
        """The number of loaded groups."""
        return len(self._live)

    @property
    def generations_count(self) -> int:
        """The number of generations that this agent has begun."""
        return self._generations_of_unloaded_count + sum(live.generations_count for live in self._live.values())

    # Loaded groups

    async def _find_members(self, group_id: str) -> tuple[HostedClassicGroup | None, ErrorCode]:
        """The group of a member's request, or None and the error."""
        if not group_id:
            return None, ErrorCode.invalid_group_id
        try:
            return await self._find(group_id, is_made=False), ErrorCode.unknown_member_id
        except NotCoordinator as not_here:
            return None, not_here.error_code

    async def _find(self, group_id: str, *, is_made: bool) -> HostedClassicGroup | None:
        """The loaded group; None where it does not exist and `is_made` is false, or its members are of the other kind.

        Raises `NotCoordinator`.
        """
        live = self._current(group_id)
        if live is not None:
            return live
        if self._is_stopped:
            raise NotCoordinator(ErrorCode.not_coordinator)
        others = self.consumer_groups
        if others is not None and others.is_live(group_id):
            # No claim or barrier is needed: this agent coordinates it, with a barrier before each fatal error (S4).
            return None
        if not is_made:
            # Behind a barrier (S4), and before a claim: requests with invented group ids must not cost entries.
            known = await self._group_ledger.check_readable(group_id)
            if known is None or known.value is None:
                return self._current(group_id)
        group = await self._group_ledger.claim(group_id)
        if self._is_stopped:
            raise NotCoordinator(ErrorCode.not_coordinator)
        return self._load(group)

    def _current(self, group_id: str) -> HostedClassicGroup | None:
        """The loaded group; None where it is not loaded. A group whose claim is over is unloaded first."""
        live = self._live.get(group_id)
        if live is None:
            return None
        group = self._ledger.state.groups.get(group_id)
        is_reclaimed = group is None or group.claim_epoch != live.claim_epoch
        if live.is_over or is_reclaimed or not self._group_ledger.owns(group_id):
            self._unload(live, ErrorCode.not_coordinator)
            return None
        return live

    def _load(self, group: GroupState) -> HostedClassicGroup | None:
        """Load a claimed group from the state; None where it has members of the consumer protocol.

        Raises `NotCoordinator` where changes of it, proposed before it was unloaded, are not applied yet.
        """
        live = self._current(group.group_id)
        if live is not None:
            return live
        value = _classic_value(group)
        if value is None or self._consumers_of(group.group_id) is not None:
            return None
        if self._group_ledger.has_unapplied_changes(group.group_id):
            raise NotCoordinator(ErrorCode.coordinator_load_in_progress)
        if self.consumer_groups is not None:
            # Its copy there is empty: the next consumer loads it again, and sees that classic members are joining.
            self.consumer_groups.forget(group.group_id)
        machine = LiveClassicGroup(value, self._limits, heard_until_s(self._clock.monotonic_s()))
        live = self._live[group.group_id] = HostedClassicGroup(
            group.group_id, group.claim_epoch, machine, self._group_ledger
        )
        self._owned.note_loaded(group)
        self._changed(live)
        return live

    def _consumers_of(self, group_id: str) -> ConsumerGroupCoordinator | None:
        """The coordinator of consumer groups, where the group has members there; else None."""
        others = self.consumer_groups
        return others if others is not None and others.has_members(group_id) else None

    def _unload(self, live: HostedClassicGroup, error_code: ErrorCode) -> None:
        if self._live.get(live.group_id) is live:
            del self._live[live.group_id]
            self._owned.is_load_due = self._owned.is_load_due or not live.is_idle
            self._generations_of_unloaded_count += live.generations_count
        live.unload(error_code)

    # Time

    def _changed(self, live: HostedClassicGroup) -> None:
        """Set a timer for the group's next deadline."""
        deadline_s = live.machine.deadline_s
        if deadline_s is not None and (live.timer_s is None or deadline_s < live.timer_s):
            live.timer_s = deadline_s
            self._timers.set(deadline_s, live.group_id)

    async def run_timers(self) -> None:
        """Handle the deadlines of groups as they pass. Runs until it is cancelled."""
        await self._timers.run(self._expire)

    def _expire(self, group_id: str, timer_s: float, now_s: float) -> None:
        live = self._current(group_id)
        if live is not None and live.timer_s == timer_s:  # else a newer timer replaced this one
            live.timer_s = None
            live.expire(now_s)
            self._changed(live)

    # Groups that move between agents

    @property
    def job(self) -> PeriodicJob:
        return PeriodicJob(
            name="groups", interval_s=GROUP_CHECK_INTERVAL_S, run_once=self._load_and_unload, is_first_at_once=True
        )

    async def _load_and_unload(self) -> None:
        """Load the groups that this agent owns, and unload the others.

        A group with members is loaded without any request: where its members are gone, their time-outs have to run.
        """
        await self._unload_lost()
        if not self._is_stopped:
            await self._owned.load_due()
        self._owned.log_loaded()

    async def _unload_lost(self) -> None:
        """Unload groups that this agent does not own any more, and empty ones that the ledger has in full."""
        pacer = CooperativeYield(self._clock)
        for group_id in tuple(self._live):
            live = self._current(group_id)
            if live is not None and live.is_idle and not live.is_awaited:
                self._unload(live, ErrorCode.not_coordinator)
            await pacer.step()

    def _is_to_load(self, group: GroupState) -> bool:
        is_loaded = group.group_id in self._live
        return not is_loaded and isinstance(group.value, ClassicGroup) and bool(group.value.members)


def _classic_value(group: GroupState) -> ClassicGroup | None:
    """The value that a classic group begins with; None where the group has members of the consumer protocol."""
    if isinstance(group.value, ClassicGroup):
        return group.value
    if group.has_members:
        return None
    # Generations go on from the epochs of the consumer group: else commits of its old members would look valid (S13).
    return NO_GROUP if group.value is None else replace(NO_GROUP, generation=group.value.epoch)
