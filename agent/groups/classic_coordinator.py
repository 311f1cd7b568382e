"""Coordinates the classic groups that are this agent's: claims them, keeps their live part, and minds their time-outs.

Rule: what a group does is decided by its machine (`coordinator.groups.classic_group`), one call after the other without
awaiting between; what is durable of it is in the ledger, under this agent's claim (safety rule S13). What costs a
member its place is told behind a barrier (safety rule S4). A group is held here for as long as the claim is: then
whoever waits is told NOT_COORDINATOR, and finds the next coordinator, which goes on from the ledger. A group that has
members is taken up as soon as it falls to this agent, although nobody asks: its members may be gone. Time is the
injected monotonic clock's; a heartbeat costs no entry, an idle group none.
Source: org.apache.kafka.coordinator.group.GroupCoordinatorService (Kafka 4.3).
"""

import asyncio
import heapq
import uuid
from collections.abc import Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from agent.groups.classic_group import HostedClassicGroup
from agent.groups.consumer_coordinator import ConsumerGroupCoordinator
from agent.groups.group_ledger import GroupLedger, NotCoordinator
from agent.groups.logging import log_handed_over, log_loaded
from agent.ledger.apply_loop import ApplyLoop
from agent.ledger.ledger_writer import LedgerWriter
from agent.runtime.clock import Clock
from agent.runtime.ids import Ids
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
    GROUP_IDS_PER_CLAIM_MAX,
    GROUP_LATE_SECONDS_MAX,
    GROUPS_PER_TURN,
    MEMBER_ID_PREFIX_CHARS_MAX,
)
from protocol.types import SessionId

AnswerT = TypeVar("AnswerT", JoinAnswer, SyncAnswer)

PROTOCOL = "classic"
GROUP_ID_NOT_FOUND_SINCE = 9
"""The version of OffsetCommit that can be told that its group does not exist (KIP-848)."""


def _resolved(answer: AnswerT) -> asyncio.Future[AnswerT]:
    """An answer that need not be waited for."""
    future: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
    future.set_result(answer)
    return future


class ClassicGroupCoordinator:
    """The classic groups of this agent."""

    def __init__(
        self,
        *,
        metadata: ApplyLoop,
        writer: LedgerWriter,
        ledger: GroupLedger,
        clock: Clock,
        ids: Ids,
        broker_configs: Mapping[str, str],
    ) -> None:
        self._metadata = metadata
        self._writer = writer
        self._ledger = ledger
        self._clock = clock
        self._ids = ids
        self._session_ms_min = int(broker_value(broker_configs, "group.min.session.timeout.ms"))
        self._session_ms_max = int(broker_value(broker_configs, "group.max.session.timeout.ms"))
        self._limits = GroupLimits(
            initial_rebalance_delay_ms=max(0, int(broker_value(broker_configs, "group.initial.rebalance.delay.ms"))),
            members_max=min(CLASSIC_MEMBERS_MAX, int(broker_value(broker_configs, "group.max.size"))),
        )
        self.consumer_groups: ConsumerGroupCoordinator | None = None
        """Groups of the other kind, which may have members of this one; wired before anybody asks."""
        self._live: dict[str, HostedClassicGroup] = {}
        self._timers: list[tuple[float, str]] = []
        """By name: a group that was lost is not kept until its time has come."""
        self._earlier = asyncio.Event()
        self._is_stopped = False
        self._is_load_due = False
        """A group with members was lost: this agent may still be the one to go on with it."""
        self._loaded: list[str] = []
        """Groups that were held since that was told last, and had members before."""
        self._generations_of_lost_count = 0

    # Requests

    async def join(self, group_id: str, join: Join) -> asyncio.Future[JoinAnswer]:
        """The answer to a JoinGroup, which may be long in coming: until the others have joined."""
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
            # No group takes it, so none is claimed for it.
            return ErrorCode.inconsistent_group_protocol
        return ErrorCode.none

    def new_member_id(self, client_id: str, group_instance_id: str | None) -> str:
        """An id that nobody has had, for a member that joins without one."""
        begins_with = client_id if group_instance_id is None else group_instance_id
        return f"{begins_with[:MEMBER_ID_PREFIX_CHARS_MAX]}-{uuid.UUID(bytes=self._ids.new_uuid())}"

    async def sync(self, group_id: str, sync: Sync) -> asyncio.Future[SyncAnswer]:
        """The answer to a SyncGroup, which waits for the leader's."""
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
        """NONE, or why the member has to join again, or ask somebody else."""
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
        """An error of the whole request, else one for each of them."""
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
        """Whether offsets may be committed in that name, for a group that this agent has claimed.

        What is committed upon it has to go to the ledger in the same turn: then it stands there behind all that the
        answer follows from. An error may follow from what is not applied yet either, and is told once that is
        (`offset_commits.refusal`). Source: org.apache.kafka.coordinator.group.OffsetMetadataManager
        .validateOffsetCommit.
        """
        group = self._metadata.state.groups.get(group_id)
        if group is None or self._is_stopped or not self._ledger.owns(group_id):
            return ErrorCode.not_coordinator
        if generation >= 0 and group.is_vacant and not self._is_joined(group_id):
            is_code_known = api_version >= GROUP_ID_NOT_FOUND_SINCE
            return ErrorCode.group_id_not_found if is_code_known else ErrorCode.illegal_generation
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
        """A group that this agent may speak for, as it is now; None where it does not exist, or is not a classic one.

        Raises `NotCoordinator`.
        """
        live = self._current(group_id)
        if live is not None:
            error = await live.until_applied()
            if error is not ErrorCode.none:
                raise NotCoordinator(error)
        group = self._metadata.state.groups.get(group_id)
        is_there = group is not None and not group.is_vacant
        if live is not None and (is_there or not live.is_idle):
            return live.machine.describe()
        value = group.value if group is not None and group.value is not None else NO_GROUP
        if not is_there or not isinstance(value, ClassicGroup):
            return None
        return describe_kept(value)

    def unwritten(self) -> Sequence[str]:
        """Groups that are only here: their first members are joining."""
        groups = self._metadata.state.groups
        return [group_id for group_id in self._live if (group := groups.get(group_id)) is None or group.is_vacant]

    def forget(self, group_id: str, error_code: ErrorCode = ErrorCode.unknown_member_id) -> None:
        """The group was deleted, or is of the other kind now: whoever waits is told so, and joins anew."""
        live = self._live.get(group_id)
        if live is not None:
            self._unload(live, error_code)

    def is_there(self, group_id: str) -> bool:
        """Whether there is such a group to clients, behind a barrier (S4): in the ledger, or joined just now.

        Raises `NotCoordinator`.
        """
        is_known = self._ledger.readable(group_id) is not None
        return is_known or self._is_joined(group_id) or self._consumers_of(group_id) is not None

    def _is_joined(self, group_id: str) -> bool:
        """Whether somebody joins a group here, of which the ledger may have nothing yet."""
        live = self._current(group_id)
        return live is not None and not live.is_idle

    def value(self, group_id: str) -> ClassicGroup | None:
        """A group that is held here, as it is now: who has joined since the last generation is in it. None if not."""
        live = self._current(group_id)
        return None if live is None else live.machine.value()

    def protocol_type(self, group_id: str) -> str | None:
        """The protocol type of a group's members; None where the group is not loaded here, or has no members."""
        live = self._current(group_id)
        return live.machine.protocol_type if live is not None and live.machine.members else None

    def take_over(self, group_id: str, reason: str, *, is_rebalanced: bool) -> None:
        """The group was of the other kind until now, and is in the ledger as a classic one."""
        group = self._metadata.state.groups.get(group_id)
        if group is None or self._is_stopped or not self._ledger.owns(group_id):
            return
        try:
            live = self._load(group)
        except NotCoordinator:
            self._is_load_due = True
            return
        if live is not None and is_rebalanced:
            live.rebalance(reason, self._clock.monotonic_s())
            self._changed(live)

    def stop(self) -> None:
        """Coordinate nothing any more: whoever waits finds the next coordinator."""
        self._is_stopped = True
        log_handed_over(self._live, protocol=PROTOCOL)
        for live in tuple(self._live.values()):
            self._unload(live, ErrorCode.not_coordinator)

    # Figures

    @property
    def groups_count(self) -> int:
        """Groups that are held here."""
        return len(self._live)

    @property
    def generations_count(self) -> int:
        """Generations that were begun here."""
        return self._generations_of_lost_count + sum(live.generations_count for live in self._live.values())

    # Holding groups

    async def _find_members(self, group_id: str) -> tuple[HostedClassicGroup | None, ErrorCode]:
        """The group that a request of a member is about, or what to answer."""
        if not group_id:
            return None, ErrorCode.invalid_group_id
        try:
            return await self._find(group_id, is_made=False), ErrorCode.unknown_member_id
        except NotCoordinator as not_here:
            return None, not_here.error_code

    async def _find(self, group_id: str, *, is_made: bool) -> HostedClassicGroup | None:
        """The group, held here; None where it does not exist and is not to be made, or has members of another kind.

        Raises `NotCoordinator`.
        """
        live = self._current(group_id)
        if live is not None:
            return live
        if self._is_stopped:
            raise NotCoordinator(ErrorCode.not_coordinator)
        others = self.consumer_groups
        if others is not None and others.is_live(group_id):
            # This agent speaks for it, and takes a barrier where it refuses a member, as where the group is held here.
            return None
        if not is_made:
            known = await self._ledger.check_readable(group_id)
            if known is None or known.value is None:
                return self._current(group_id)
        group = await self._ledger.claim(group_id)
        if self._is_stopped:
            raise NotCoordinator(ErrorCode.not_coordinator)
        return self._load(group)

    def _current(self, group_id: str) -> HostedClassicGroup | None:
        """The group, where it is held here under a claim that is not over."""
        live = self._live.get(group_id)
        if live is None:
            return None
        group = self._metadata.state.groups.get(group_id)
        if live.is_over or group is None or group.claim_epoch != live.claim_epoch or not self._ledger.owns(group_id):
            self._unload(live, ErrorCode.not_coordinator)
            return None
        return live

    def _load(self, group: GroupState) -> HostedClassicGroup | None:
        """Go on with a group that is claimed; None where it has members of the consumer protocol.

        Raises `NotCoordinator` where what was decided of it before is not applied yet.
        """
        live = self._current(group.group_id)
        if live is not None:
            return live
        value = _classic_value(group)
        if value is None or self._consumers_of(group.group_id) is not None:
            return None
        if self._ledger.has_unapplied_changes(group.group_id):
            raise NotCoordinator(ErrorCode.coordinator_load_in_progress)
        if self.consumer_groups is not None:
            # An empty one: the next consumer finds that others are joining.
            self.consumer_groups.forget(group.group_id)
        machine = LiveClassicGroup(value, self._limits, heard_until_s(self._clock.monotonic_s()))
        live = self._live[group.group_id] = HostedClassicGroup(group.group_id, group.claim_epoch, machine, self._ledger)
        if group.has_members:
            self._loaded.append(group.group_id)
        self._changed(live)
        return live

    def _consumers_of(self, group_id: str) -> ConsumerGroupCoordinator | None:
        """Who coordinates the group, where members of it speak the consumer protocol."""
        others = self.consumer_groups
        return others if others is not None and others.has_members(group_id) else None

    def _unload(self, live: HostedClassicGroup, error_code: ErrorCode) -> None:
        if self._live.get(live.group_id) is live:
            del self._live[live.group_id]
            self._is_load_due = self._is_load_due or not live.is_idle
            self._generations_of_lost_count += live.generations_count
        live.unload(error_code)

    # Time

    def _changed(self, live: HostedClassicGroup) -> None:
        """Look at the group when its next deadline comes. A deadline that moved back is found out then."""
        deadline_s = live.machine.deadline_s
        if deadline_s is not None and (live.timer_s is None or deadline_s < live.timer_s):
            live.timer_s = deadline_s
            timer = (deadline_s, live.group_id)
            heapq.heappush(self._timers, timer)
            if self._timers[0] is timer:
                self._earlier.set()

    async def run_timers(self) -> None:
        """Let groups do what the time has come for, for ever."""
        while True:
            self._earlier.clear()
            now_s = self._clock.monotonic_s()
            if self._timers and now_s - self._timers[0][0] > GROUP_LATE_SECONDS_MAX:
                # This agent stood still: what members sent meanwhile has come, and was not looked at yet.
                await self._clock.sleep(GROUP_LATE_SECONDS_MAX)
                now_s = self._clock.monotonic_s()
            while self._timers and self._timers[0][0] <= now_s:
                timer_s, group_id = heapq.heappop(self._timers)
                live = self._current(group_id)
                if live is not None and live.timer_s == timer_s:
                    live.timer_s = None
                    live.expire(now_s)
                    self._changed(live)
            wait_s = self._timers[0][0] - now_s if self._timers else None
            if wait_s is None or wait_s > 0:
                try:
                    async with self._clock.timeout(wait_s):
                        await self._earlier.wait()
                except TimeoutError:
                    continue
            else:
                await self._clock.sleep(0)

    # Groups that come and go with agents

    async def run_maintenance(self) -> None:
        """Take up groups that fell to this agent, and give up those that did not stay, for ever."""
        seen: list[tuple[SessionId, bool]] = []
        while True:
            await self._give_up_lost()
            sessions = self._metadata.state.sessions
            live = [(session_id, session.is_draining) for session_id, session in sessions.items()]
            if (live != seen or self._is_load_due) and not self._is_stopped:
                self._is_load_due = not await self._load_owned()
                seen = live
            log_loaded(self._loaded, protocol=PROTOCOL)
            await self._clock.sleep(GROUP_CHECK_INTERVAL_S)

    async def _give_up_lost(self) -> None:
        """Unload groups that this agent does not own any more, and empty ones that the ledger has in full."""
        pacer = CooperativeYield(self._clock)
        for group_id in tuple(self._live):
            live = self._current(group_id)
            if live is not None and live.is_idle and not live.is_awaited:
                self._unload(live, ErrorCode.not_coordinator)
            await pacer.step()

    async def _load_owned(self) -> bool:
        """Claim the groups with members that are this agent's now; False where that has to be tried again."""
        pacer = CooperativeYield(self._clock, GROUPS_PER_TURN)
        wanted: list[str] = []
        for group_id in tuple(self._metadata.state.groups):
            await pacer.step()
            group = self._metadata.state.groups.get(group_id)
            if group is not None and self._is_to_be_loaded(group):
                wanted.append(group_id)
        is_done = True
        for first in range(0, len(wanted), GROUP_IDS_PER_CLAIM_MAX):
            claims = (self._load_one(group_id) for group_id in wanted[first : first + GROUP_IDS_PER_CLAIM_MAX])
            is_done = all(await asyncio.gather(*claims)) and is_done
        return is_done

    def _is_to_be_loaded(self, group: GroupState) -> bool:
        if group.group_id in self._live or not isinstance(group.value, ClassicGroup) or not group.value.members:
            return False
        return self._ledger.coordinator(group.group_id) == self._writer.session

    async def _load_one(self, group_id: str) -> bool:
        try:
            self._load(await self._ledger.claim(group_id))
        except NotCoordinator:
            # Also told where it is this agent's, which is not confirmed just now.
            return self._ledger.coordinator(group_id) != self._writer.session
        return True


def _classic_value(group: GroupState) -> ClassicGroup | None:
    """The first value of a classic group: generations go on from the epochs of a group of the other kind (S13).

    None where that has members.
    """
    if isinstance(group.value, ClassicGroup):
        return group.value
    if group.has_members:
        return None
    return NO_GROUP if group.value is None else replace(NO_GROUP, generation=group.value.epoch)
