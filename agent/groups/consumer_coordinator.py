"""The coordinator of this agent's groups of the consumer protocol (KIP-848).

A group's live copy (`coordinator.groups.consumer_group`) decides; its changes are in the ledger, under this agent's
claim (safety rule S13), before any member gets an answer that follows from them. When a change is rejected or the claim
is over, the group is unloaded: its members get NOT_COORDINATOR, and the next coordinator goes on from the ledger.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from agent.context import AgentContext
from agent.groups.consumer_group import HostedConsumerGroup, until_applied
from agent.groups.group_ledger import GroupLedger, NotCoordinator
from agent.groups.group_topics import GroupTopics
from agent.groups.logging import log_handed_over
from agent.groups.membership_errors import check_confirmed
from agent.groups.migrations import ClassicGroups, GroupMigrations, consumers_max, group_not_found
from agent.groups.owned_groups import OwnedGroups
from agent.runtime.regexes import matcher, regex_problem
from agent.runtime.threads import run_in_thread
from agent.runtime.yielding import CooperativeYield
from agent.security.required_rights import DESCRIBE_TOPIC
from agent.security.rights import ALL_RIGHTS, Rights
from coordinator.commands.commands import Done, Outcome
from coordinator.commands.consumer_group_values import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    ConsumerGroup,
)
from coordinator.commands.group_values import ClassicGroup, GroupState, heard_until_s
from coordinator.configs.broker_configs import broker_value
from coordinator.configs.config_types import split_list
from coordinator.configs.group_configs import group_value
from coordinator.groups import consumer_group_classic as classic_member
from coordinator.groups.classic_messages import Join, JoinAnswer, Leaver, Sync, SyncAnswer
from coordinator.groups.consumer_group import LiveConsumerGroup
from coordinator.groups.consumer_group_commits import commit_error
from coordinator.groups.consumer_group_copy import preferred_assignor
from coordinator.groups.consumer_group_messages import (
    ConsumerGroupConfig,
    ConsumerHeartbeat,
    GroupRejection,
    HeartbeatAnswer,
    check_heartbeat,
)
from coordinator.groups.consumer_group_regexes import room_for
from protocol.errors import ErrorCode
from protocol.limits import (
    GROUP_CHECK_INTERVAL_S,
    GROUP_LATE_SECONDS_MAX,
)
from protocol.types import PartitionIndex, TopicId

log = logging.getLogger(__name__)

PROTOCOL = "consumer"
SILENT = "silent for too long, or too slow to give up partitions"


class ConsumerGroupCoordinator:
    """The consumer groups of this agent."""

    def __init__(
        self,
        context: AgentContext,
        *,
        group_ledger: GroupLedger,
        classic: ClassicGroups,
        default_rights: Rights | None = ALL_RIGHTS,
    ) -> None:
        """`default_rights`: those by which an expression is resolved before one of its members sent a heartbeat.

        None where an authorizer is on: such an expression is resolved once one did.
        """
        self._ledger = context.ledger
        self._classic = classic
        self._topics = GroupTopics(context.ledger)
        self._migrations = GroupMigrations(
            broker_configs=context.broker_configs,
            classic=classic,
            find_topic=self._topics.find,
            name_of=self._topics.name_of,
        )
        self._group_ledger = group_ledger
        self._clock = context.clock
        self._broker_configs = context.broker_configs
        self._assignors = tuple(split_list(broker_value(context.broker_configs, "group.consumer.assignors")))
        self._size_max = consumers_max(context.broker_configs)
        self._regex_refresh_ms = int(broker_value(context.broker_configs, "group.consumer.regex.refresh.interval.ms"))
        self._default_rights = default_rights
        self._live: dict[str, HostedConsumerGroup] = {}
        self._handed_over: set[str] = set()
        """Groups whose change to a classic one is proposed and not applied yet."""
        self._has_due_regexes = asyncio.Event()
        self._is_stopped = False
        self._owned = OwnedGroups(
            ledger=context.ledger,
            group_ledger=group_ledger,
            clock=context.clock,
            protocol=PROTOCOL,
            is_to_load=self._is_to_load,
            load=self._load_owned,
        )

    @property
    def groups_count(self) -> int:
        """The number of loaded groups."""
        return len(self._live)

    # Requests

    async def heartbeat(
        self, group_id: str, request: ConsumerHeartbeat, *, is_id_required: bool, rights: Rights = ALL_RIGHTS
    ) -> HeartbeatAnswer:
        """The answer to a ConsumerGroupHeartbeat, once the ledger has all changes before it.

        One that changes nothing costs no ledger entry. Raises `GroupRejection` and `NotCoordinator`.
        """
        if not group_id:
            raise GroupRejection(ErrorCode.invalid_request, "GroupId can't be empty")
        check_heartbeat(request, self._assignors, is_id_required=is_id_required)
        problem = await run_in_thread(regex_problem, request.regex) if request.regex else None
        live = await self._find(group_id, may_begin=request.epoch == JOIN_EPOCH)
        if request.epoch == LEAVE_EPOCH:
            async with live.rejecting(request.instance_id, request.client_id):
                leaver = live.group.leaver(request)
            classic = self._migrations.downgraded(live.group, [leaver], is_rebalance_due=True)
            if classic is not None:
                live.log_members_gone("leaves", [leaver])
                await until_applied(self._clock, self._downgrade(live, classic))
                return HeartbeatAnswer(member_id=leaver, epoch=LEAVE_EPOCH, heartbeat_interval_ms=0, assigned=None)
        async with live.rejecting(request.instance_id, request.client_id):
            answer, change = live.group.heartbeat(
                request, self._config(group_id), self._topics.finder, lambda _: problem, self._clock.monotonic_s()
            )
        if change is not None:
            # Classic members that were about to begin a group join again, and become members of this one.
            self._classic.forget(group_id, ErrorCode.rebalance_in_progress)
            live.write(change)
        member = live.group.group.members.get(answer.member_id)
        if member is not None and member.subscribed_regex:
            live.rights_by_regex[member.subscribed_regex] = rights
        if self._due_regexes(live):
            self._has_due_regexes.set()
        await live.until_applied()
        if request.epoch >= JOIN_EPOCH:
            await live.check_stays(self._ledger.state, answer.member_id)
        return answer

    # Requests of members that still speak the classic protocol

    async def join(self, group_id: str, request: Join) -> JoinAnswer:
        """The answer to a JoinGroup of a group with members of the consumer protocol."""
        try:
            live = await self._find_of_classic(group_id)
            now_s = self._clock.monotonic_s()
            epoch_before = live.group.group.epoch
            async with live.rejecting(request.group_instance_id, request.client_id):
                answer, change = classic_member.join(
                    live.group, request, self._config(group_id), self._topics.finder, now_s
                )
            if change is not None:
                live.write(change)
            is_rebalance_due = live.group.group.epoch != epoch_before
            classic = self._migrations.downgraded(live.group, [], is_rebalance_due=is_rebalance_due)
            if classic is None:
                await live.until_applied()
                if answer.error_code is ErrorCode.none:
                    await live.check_stays(self._ledger.state, answer.member_id)
            else:
                await until_applied(self._clock, self._downgrade(live, classic))
        except (GroupRejection, NotCoordinator) as error:
            return JoinAnswer(error_code=error.error_code, member_id=request.member_id)
        return answer

    async def sync(self, group_id: str, request: Sync) -> SyncAnswer:
        """The answer to a SyncGroup of such a group."""
        try:
            live = await self._find_of_classic(group_id)
            answer = classic_member.sync(live.group, request, self._topics.name_of, self._clock.monotonic_s())
            await live.until_applied(answer.error_code)
            if answer.error_code is ErrorCode.none:
                await live.check_stays(self._ledger.state, request.member_id)
        except (GroupRejection, NotCoordinator) as error:
            return SyncAnswer(error_code=error.error_code)
        return answer

    async def classic_heartbeat(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation: int
    ) -> ErrorCode:
        """The answer to a Heartbeat of such a group."""
        try:
            live = await self._find_of_classic(group_id)
            now_s = self._clock.monotonic_s()
            error_code = classic_member.heartbeat(live.group, member_id, group_instance_id, generation, now_s)
            await live.until_applied(error_code)
        except (GroupRejection, NotCoordinator) as error:
            return error.error_code
        return error_code

    async def leave(self, group_id: str, leavers: Sequence[Leaver]) -> tuple[ErrorCode, tuple[ErrorCode, ...]]:
        """The answer to a LeaveGroup of such a group: an error of the whole request, else one for each member."""
        try:
            live = await self._find_of_classic(group_id)
            async with live.rejecting():
                error_codes, change = classic_member.leave(live.group, leavers, self._topics.finder)
            if change is not None:
                live.write(change)
            await live.until_applied(*error_codes)
        except (GroupRejection, NotCoordinator) as error:
            return error.error_code, ()
        return ErrorCode.none, error_codes

    # Questions of other parts of the agent

    def check_commit(
        self,
        group: GroupState,
        *,
        member_id: str,
        group_instance_id: str | None = None,
        epoch: int,
        api_version: int,
        partitions: Iterable[tuple[TopicId, PartitionIndex]],
        is_transactional: bool = False,
    ) -> ErrorCode:
        """The error of a commit of offsets by that member or client, for a group that this agent has claimed.

        With NONE the caller proposes the commit in the same turn of the loop (`ClassicGroupCoordinator.check_commit`).
        """
        live = self._current(group.group_id)
        if self._is_stopped or (live is None and not self._group_ledger.owns(group.group_id)):
            return ErrorCode.not_coordinator
        if live is None and self._group_ledger.has_unapplied_changes(group.group_id):
            return ErrorCode.coordinator_load_in_progress
        value = group.value if live is None else live.group.group
        assert isinstance(value, ConsumerGroup), f"group {group.group_id!r} is no consumer group"
        return commit_error(
            value,
            member_id=member_id,
            group_instance_id=group_instance_id,
            epoch=epoch,
            api_version=api_version,
            partitions=partitions,
            is_transactional=is_transactional,
        )

    def has_members(self, group_id: str) -> bool:
        """Whether the group is of this kind, and has members, as far as this agent knows."""
        group = self._ledger.state.groups.get(group_id)
        is_known = group is not None and isinstance(group.value, ConsumerGroup) and group.has_members
        return is_known or self.is_live(group_id)

    def is_live(self, group_id: str) -> bool:
        """Whether the group is loaded and has members, some of which the ledger may not have yet."""
        live = self._current(group_id)
        return live is not None and bool(live.group.group.members)

    def preferred_assignor(self, group: ConsumerGroup) -> str:
        """The assignor that a description of the group names."""
        return preferred_assignor(group, self._assignors[0])

    def forget(self, group_id: str) -> None:
        """Unload a group that was deleted or is of the other kind now."""
        live = self._live.get(group_id)
        if live is not None:
            self._unload(live)

    def stop(self) -> None:
        """Unload all groups, and load none: their members get NOT_COORDINATOR."""
        self._is_stopped = True
        log_handed_over(self._live, protocol=PROTOCOL)
        for live in tuple(self._live.values()):
            self._unload(live)

    # Loaded groups

    async def _find(self, group_id: str, *, may_begin: bool) -> HostedConsumerGroup:
        """The loaded group. Raises `GroupRejection` and `NotCoordinator`."""
        live = self._current(group_id)
        if live is not None:
            return live
        if self._is_stopped or group_id in self._handed_over:
            raise NotCoordinator(ErrorCode.not_coordinator)
        if not may_begin:  # behind a barrier (S4), and without the entry of a claim for an invented group id
            known = await self._group_ledger.check_readable(group_id)
            if known is None or not isinstance(known.value, ConsumerGroup):
                raise group_not_found(group_id)
        group = await self._group_ledger.claim(group_id)
        if self._is_stopped:
            raise NotCoordinator(ErrorCode.not_coordinator)
        try:
            return self._load(group, may_begin=may_begin)
        except GroupRejection:
            await check_confirmed(self._group_ledger, group_id, group.claim_epoch)
            raise

    async def _find_of_classic(self, group_id: str) -> HostedConsumerGroup:
        """The group of a member that speaks the classic protocol."""
        try:
            return await self._find(group_id, may_begin=False)
        except GroupRejection as rejection:  # it may have become a classic group meanwhile: the member asks again
            raise NotCoordinator(ErrorCode.not_coordinator, rejection.message) from rejection

    def _current(self, group_id: str) -> HostedConsumerGroup | None:
        """The loaded group; None where it is not loaded. A group whose claim is over is unloaded first."""
        live = self._live.get(group_id)
        if live is None:
            return None
        group = self._ledger.state.groups.get(group_id)
        is_reclaimed = group is None or group.claim_epoch != live.claim_epoch
        if live.is_over or is_reclaimed or not self._group_ledger.owns(group_id):
            self._unload(live)
            return None
        return live

    def _load(self, group: GroupState, *, may_begin: bool) -> HostedConsumerGroup:
        """Load a claimed group from the state, once all changes of it are applied, or begin one."""
        if (live := self._current(group.group_id)) is not None:
            return live
        if self._group_ledger.has_unapplied_changes(group.group_id):
            raise NotCoordinator(ErrorCode.coordinator_load_in_progress)
        is_new = not isinstance(group.value, ConsumerGroup)
        if is_new and not may_begin:
            raise group_not_found(group.group_id)
        if not is_new and not group.has_members:
            self._migrations.check_joining(group)
        value = self._migrations.begun(group) if is_new else group.value
        assert value is None or isinstance(value, ConsumerGroup)
        copy = LiveConsumerGroup(group.group_id, value, heard_until_s(self._clock.monotonic_s()), is_new=is_new)
        live = self._live[group.group_id] = HostedConsumerGroup(
            group, copy, self._group_ledger, self._clock, self._unload
        )
        if not is_new:
            self._owned.note_loaded(group)
        return live

    def _downgrade(self, live: HostedConsumerGroup, classic: ClassicGroup) -> asyncio.Future[Outcome]:
        """Write the group as the classic one of its remaining members, and hand it over once that is applied.

        Until then its members get NOT_COORDINATOR, and FindCoordinator names this agent again.
        """
        group_id = live.group_id
        change = self._group_ledger.write(group_id, classic)
        self._unload(live)
        self._handed_over.add(group_id)

        def hand_over(done: asyncio.Future[Outcome]) -> None:
            self._handed_over.discard(group_id)
            if isinstance(done.result(), Done):
                log.info("a group of the consumer protocol is a classic group now", extra={"group": group_id})
                reason = "no member speaks the consumer protocol any more"
                self._classic.take_over(group_id, reason, is_rebalanced=classic.is_rebalance_due)

        change.add_done_callback(hand_over)
        return change

    def _unload(self, live: HostedConsumerGroup) -> None:
        live.end()
        if self._live.get(live.group_id) is live:
            del self._live[live.group_id]
            self._owned.is_load_due = self._owned.is_load_due or not live.is_idle

    def _config(self, group_id: str) -> ConsumerGroupConfig:
        configs = self._ledger.state.group_configs.get(group_id, {})
        return ConsumerGroupConfig(
            session_timeout_ms=int(group_value(configs, self._broker_configs, "consumer.session.timeout.ms")),
            heartbeat_interval_ms=int(group_value(configs, self._broker_configs, "consumer.heartbeat.interval.ms")),
            max_size=self._size_max,
            assignors=self._assignors,
            regex_refresh_ms=self._regex_refresh_ms,
            assignment_interval_ms=int(group_value(configs, self._broker_configs, "consumer.assignment.interval.ms")),
        )

    # Time

    async def run(self) -> None:
        """Check all groups every GROUP_CHECK_INTERVAL_S. Runs until it is cancelled."""
        while True:
            self._has_due_regexes.clear()
            await self.look_after()
            try:
                async with self._clock.timeout(GROUP_CHECK_INTERVAL_S):
                    await self._has_due_regexes.wait()
            except TimeoutError:
                continue

    async def look_after(self) -> None:
        """Run time-outs, resolve regular expressions, and load and unload groups as agents have come and gone."""
        if self._topics.has_uncounted_changes and any(live.group.copy.has_regexes for live in self._live.values()):
            self._topics.count_names()
        deadline_s = min((live.group.due_s for live in self._live.values()), default=float("inf"))
        if self._clock.monotonic_s() - deadline_s > GROUP_CHECK_INTERVAL_S + GROUP_LATE_SECONDS_MAX:
            # This agent stood still: heartbeats that have arrived meanwhile are read before members time out.
            await self._clock.sleep(GROUP_LATE_SECONDS_MAX)
        for live in tuple(self._live.values()):
            if self._current(live.group_id) is live:
                self._expire(live)
                await self._resolve(live)
                self._log_problems(live)
        if not self._is_stopped:
            await self._owned.load_due()
        self._owned.log_loaded()

    def _expire(self, live: HostedConsumerGroup) -> None:
        group, now_s = live.group, self._clock.monotonic_s()
        gone = group.expired(self._config(live.group_id), now_s) if now_s >= group.due_s else []
        if gone:
            classic = self._migrations.downgraded(group, gone, is_rebalance_due=True)
            if classic is not None:
                live.log_members_gone(SILENT, gone)
                self._downgrade(live, classic)
                return
            change = group.fence(gone, self._topics.finder, why=SILENT)
            if change is not None:
                live.write(change)
        if group.group.epoch != group.group.target_epoch:
            change = group.assign(self._config(live.group_id), self._topics.finder, now_s)
            if change is not None:
                live.write(change)
        if live.is_idle and not live.is_awaited:
            self._unload(live)

    def _log_problems(self, live: HostedConsumerGroup) -> None:
        for problem in live.group.problems.take():
            log.warning("a consumer group has a problem", extra={"group": live.group_id, "problem": problem})

    def _due_regexes(self, live: HostedConsumerGroup) -> list[str]:
        if not live.group.copy.has_regexes:
            return []
        return live.group.regexes.to_resolve(
            live.group.copy,
            self._config(live.group_id),
            self._clock.monotonic_s(),
            are_topics_new=live.names_seen != self._topics.names_number,
        )

    async def _resolve(self, live: HostedConsumerGroup) -> None:
        """Match the regular expressions that are due with all topic names, in a thread: it takes long with many."""
        regexes = self._due_regexes(live)
        if not regexes:
            return
        live.names_seen = self._topics.names_number
        before = dict(live.group.group.regexes)
        rights_by_regex = {regex: live.rights_by_regex.get(regex, self._default_rights) for regex in regexes}
        match = await self._matcher(rights_by_regex)
        known = [regex for regex in regexes if rights_by_regex[regex] is not None]
        matches = await run_in_thread(lambda: room_for(known, match, before))
        live.rights_by_regex = {regex: rights for regex, rights in live.rights_by_regex.items() if regex in known}
        if self._current(live.group_id) is live:  # it may have been unloaded during the await
            for change in live.group.regexes.put(
                live.group.copy, matches, self._topics.finder, self._clock.monotonic_s()
            ):
                live.write(change)

    async def _matcher(self, rights_by_regex: Mapping[str, Rights | None]) -> Callable[[str], tuple[str, ...]]:
        """The function that returns the topics which an expression matches, of those that its member may describe."""
        matchers: dict[Rights, Callable[[str], tuple[str, ...]]] = {}
        for rights in {each for each in rights_by_regex.values() if each is not None}:
            rights.refresh()
            pacer = CooperativeYield(self._clock, after_turn=rights.refresh)
            names: list[str] = []
            for name in tuple(self._ledger.state.topic_ids):
                if rights.topics[name] >> DESCRIBE_TOPIC.operation & 1:
                    names.append(name)
                await pacer.step()
            matchers[rights] = matcher(names)

        def match(regex: str) -> tuple[str, ...]:
            rights = rights_by_regex[regex]
            assert rights is not None, "resolved without rights"
            return matchers[rights](regex)

        return match

    def _is_to_load(self, group: GroupState) -> bool:
        return isinstance(group.value, ConsumerGroup) and group.has_members and group.group_id not in self._live

    def _load_owned(self, group: GroupState) -> None:
        with contextlib.suppress(GroupRejection):  # it has become a classic group meanwhile
            self._load(group, may_begin=False)
