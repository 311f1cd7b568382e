"""Coordinates the groups of the consumer protocol (KIP-848) that are this agent's.

Rule: what a group does is decided by its live copy (`coordinator.groups.consumer_group`) in one go; what it changes is
in the ledger, under this agent's claim (safety rule S13), before anybody is told: also whoever changed nothing itself,
but waits for what was changed before it; who was taken out again meanwhile is told that. What costs a member its place
is told behind a barrier (safety rule S4). A change that was refused, or of which nothing is known, and a claim that is
over, end the copy: whoever waits is told NOT_COORDINATOR, and finds the coordinator, which goes on from the ledger. A
group that has members is taken up as soon as it falls to this agent, although nobody asks: its members may be gone.
Heartbeats that change nothing cost no entry. Regular expressions are looked up in a thread, all of a group at once.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from agent.groups.consumer_group import HostedConsumerGroup, until_applied
from agent.groups.group_ledger import GroupLedger, NotCoordinator
from agent.groups.logging import log_handed_over, log_loaded
from agent.groups.membership_errors import check_confirmed
from agent.groups.migrations import ClassicGroups, GroupMigrations, consumers_max, group_not_found
from agent.ledger.apply_loop import ApplyLoop
from agent.ledger.ledger_writer import LedgerWriter
from agent.runtime.clock import Clock
from agent.runtime.regexes import matcher, regex_problem
from agent.runtime.threads import run_in_thread
from agent.runtime.yielding import CooperativeYield
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
from coordinator.groups.consumer_group_copy import FindTopic, preferred_assignor
from coordinator.groups.consumer_group_messages import (
    ConsumerGroupConfig,
    ConsumerHeartbeat,
    GroupRefusal,
    HeartbeatAnswer,
    check_heartbeat,
)
from coordinator.groups.consumer_group_regexes import room_for
from coordinator.state.state import NO_POSITION
from protocol.errors import ErrorCode
from protocol.limits import (
    GROUP_CHECK_INTERVAL_S,
    GROUP_IDS_PER_CLAIM_MAX,
    GROUP_LATE_SECONDS_MAX,
)
from protocol.types import PartitionIndex, SessionId, TopicId

log = logging.getLogger(__name__)

PROTOCOL = "consumer"
SILENT = "silent for too long, or late with what they were asked to do"


class ConsumerGroupCoordinator:
    """The consumer groups of this agent."""

    def __init__(
        self,
        *,
        metadata: ApplyLoop,
        writer: LedgerWriter,
        ledger: GroupLedger,
        clock: Clock,
        broker_configs: Mapping[str, str],
        classic: ClassicGroups,
    ) -> None:
        self._metadata = metadata
        self._classic = classic
        self._migrations = GroupMigrations(
            broker_configs=broker_configs, classic=classic, find_topic=self._find_topic, name_of=self._name_of
        )
        self._writer = writer
        self._ledger = ledger
        self._clock = clock
        self._broker_configs = broker_configs
        self._assignors = tuple(split_list(broker_value(broker_configs, "group.consumer.assignors")))
        self._size_max = consumers_max(broker_configs)
        self._regex_refresh_ms = int(broker_value(broker_configs, "group.consumer.regex.refresh.interval.ms"))
        self._live: dict[str, HostedConsumerGroup] = {}
        self._handed_over: set[str] = set()
        """Groups that are about to be classic ones."""
        self._regexes_wanted = asyncio.Event()
        self._names: frozenset[str] = frozenset()
        self._names_number = 0
        self._names_at = NO_POSITION
        """The change of topics as of which that holds."""
        self._topics_at = NO_POSITION
        self._found_by: FindTopic = partial(self._find_topic)
        self._is_stopped = False
        self._agents_seen: list[tuple[SessionId, bool]] = []
        """The live agents when groups were loaded last."""
        self._is_load_due = False
        """A group with members was lost: this agent may still be the one to go on with it."""
        self._loaded: list[str] = []
        """Groups that were held since that was told last, and had members before."""

    @property
    def groups_count(self) -> int:
        """Groups that are held here."""
        return len(self._live)

    # Requests

    async def heartbeat(self, group_id: str, request: ConsumerHeartbeat, *, is_id_required: bool) -> HeartbeatAnswer:
        """The answer to the member, once the ledger has the change. Raises `GroupRefusal` and `NotCoordinator`."""
        if not group_id:
            raise GroupRefusal(ErrorCode.invalid_request, "GroupId can't be empty")
        check_heartbeat(request, self._assignors, is_id_required=is_id_required)
        problem = await run_in_thread(regex_problem, request.regex) if request.regex else None
        live = await self._find(group_id, may_begin=request.epoch == JOIN_EPOCH)
        if request.epoch == LEAVE_EPOCH:
            async with live.refusing(request.instance_id, request.client_id):
                leaver = live.group.leaver(request)
            classic = self._migrations.downgraded(live.group, [leaver], is_rebalance_due=True)
            if classic is not None:
                live.log_members_gone("leaves", [leaver])
                await until_applied(self._clock, self._downgrade(live, classic))
                return HeartbeatAnswer(member_id=leaver, epoch=LEAVE_EPOCH, heartbeat_interval_ms=0, assigned=None)
        async with live.refusing(request.instance_id, request.client_id):
            answer, change = live.group.heartbeat(
                request, self._config(group_id), self._topics, lambda _: problem, self._clock.monotonic_s()
            )
        if change is not None:
            # Whoever was about to begin a classic group is a member of this one, once it has joined again.
            self._classic.forget(group_id, ErrorCode.rebalance_in_progress)
            live.write(change)
        if self._regexes_due(live):
            self._regexes_wanted.set()
        await live.until_applied()
        if request.epoch >= JOIN_EPOCH:
            await live.check_stays(self._metadata.state, answer.member_id)
        return answer

    # Requests of members that speak the classic protocol still

    async def join(self, group_id: str, request: Join) -> JoinAnswer:
        """The answer to a JoinGroup of a group that has members here."""
        try:
            live = await self._find_of_classic(group_id)
            now_s = self._clock.monotonic_s()
            before = live.group.group.epoch
            async with live.refusing(request.group_instance_id, request.client_id):
                answer, change = classic_member.join(live.group, request, self._config(group_id), self._topics, now_s)
            if change is not None:
                live.write(change)
            is_rebalance_due = live.group.group.epoch != before
            classic = self._migrations.downgraded(live.group, [], is_rebalance_due=is_rebalance_due)
            if classic is None:
                await live.until_applied()
                if answer.error_code is ErrorCode.none:
                    await live.check_stays(self._metadata.state, answer.member_id)
            else:
                await until_applied(self._clock, self._downgrade(live, classic))
        except (GroupRefusal, NotCoordinator) as error:
            return JoinAnswer(error_code=error.error_code, member_id=request.member_id)
        return answer

    async def sync(self, group_id: str, request: Sync) -> SyncAnswer:
        """The answer to a SyncGroup, like `join`."""
        try:
            live = await self._find_of_classic(group_id)
            answer = classic_member.sync(live.group, request, self._name_of, self._clock.monotonic_s())
            await live.until_applied(answer.error_code)
            if answer.error_code is ErrorCode.none:
                await live.check_stays(self._metadata.state, request.member_id)
        except (GroupRefusal, NotCoordinator) as error:
            return SyncAnswer(error_code=error.error_code)
        return answer

    async def classic_heartbeat(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation: int
    ) -> ErrorCode:
        """The answer to a Heartbeat, like `join`."""
        try:
            live = await self._find_of_classic(group_id)
            now_s = self._clock.monotonic_s()
            error_code = classic_member.heartbeat(live.group, member_id, group_instance_id, generation, now_s)
            await live.until_applied(error_code)
        except (GroupRefusal, NotCoordinator) as error:
            return error.error_code
        return error_code

    async def leave(self, group_id: str, leavers: Sequence[Leaver]) -> tuple[ErrorCode, tuple[ErrorCode, ...]]:
        """The answer to a LeaveGroup, like `join`: an error of the whole request, else one for each of them."""
        try:
            live = await self._find_of_classic(group_id)
            async with live.refusing():
                error_codes, change = classic_member.leave(live.group, leavers, self._topics)
            if change is not None:
                live.write(change)
            await live.until_applied(*error_codes)
        except (GroupRefusal, NotCoordinator) as error:
            return error.error_code, ()
        return ErrorCode.none, error_codes

    # What others ask

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
        """Whether offsets may be committed in that name, for a consumer group that this agent has claimed.

        What is committed upon it has to go to the ledger in the same turn: then it stands there behind all that the
        answer follows from.
        """
        live = self._current(group.group_id)
        if self._is_stopped:
            return ErrorCode.not_coordinator
        if live is None and self._ledger.has_unapplied_changes(group.group_id):
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
        group = self._metadata.state.groups.get(group_id)
        is_known = group is not None and isinstance(group.value, ConsumerGroup) and group.has_members
        return is_known or self.is_live(group_id)

    def is_live(self, group_id: str) -> bool:
        """Whether the group is held here, and has members, some of which the ledger may not have yet."""
        live = self._current(group_id)
        return live is not None and bool(live.group.group.members)

    def preferred_assignor(self, group: ConsumerGroup) -> str:
        """The assignor that a described group is said to have."""
        return preferred_assignor(group, self._assignors[0])

    def forget(self, group_id: str) -> None:
        """The group was deleted, or is of the other kind now."""
        live = self._live.get(group_id)
        if live is not None:
            self._unload(live)

    def stop(self) -> None:
        """Coordinate nothing any more: members find the next coordinator."""
        self._is_stopped = True
        log_handed_over(self._live, protocol=PROTOCOL)
        for live in tuple(self._live.values()):
            self._unload(live)

    # Holding groups

    async def _find(self, group_id: str, *, may_begin: bool) -> HostedConsumerGroup:
        """The group, held here."""
        live = self._current(group_id)
        if live is not None:
            return live
        if self._is_stopped or group_id in self._handed_over:
            raise NotCoordinator(ErrorCode.not_coordinator)
        if not may_begin:
            known = await self._ledger.check_readable(group_id)
            if known is None or not isinstance(known.value, ConsumerGroup):
                raise group_not_found(group_id)
        group = await self._ledger.claim(group_id)
        if self._is_stopped:
            raise NotCoordinator(ErrorCode.not_coordinator)
        try:
            return self._load(group, may_begin=may_begin)
        except GroupRefusal:
            await check_confirmed(self._ledger, group_id, group.claim_epoch)
            raise

    async def _find_of_classic(self, group_id: str) -> HostedConsumerGroup:
        """The group of a member that speaks the classic protocol; it may have become a classic one meanwhile."""
        try:
            return await self._find(group_id, may_begin=False)
        except GroupRefusal as refusal:
            raise NotCoordinator(ErrorCode.not_coordinator, refusal.message) from refusal

    def _current(self, group_id: str) -> HostedConsumerGroup | None:
        """The group, where it is held here under a claim that is not over."""
        live = self._live.get(group_id)
        if live is None:
            return None
        group = self._metadata.state.groups.get(group_id)
        if live.is_over or group is None or group.claim_epoch != live.claim_epoch or not self._ledger.owns(group_id):
            self._unload(live)
            return None
        return live

    def _load(self, group: GroupState, *, may_begin: bool) -> HostedConsumerGroup:
        """Go on with a group that is claimed, once all changes of it are applied, or begin one."""
        if (live := self._current(group.group_id)) is not None:
            return live
        if self._ledger.has_unapplied_changes(group.group_id):
            raise NotCoordinator(ErrorCode.coordinator_load_in_progress)
        is_new = not isinstance(group.value, ConsumerGroup)
        if is_new and not may_begin:
            raise group_not_found(group.group_id)
        if not is_new and not group.has_members:
            self._migrations.check_joining(group)
        value = self._migrations.begun(group) if is_new else group.value
        assert value is None or isinstance(value, ConsumerGroup)
        copy = LiveConsumerGroup(group.group_id, value, heard_until_s(self._clock.monotonic_s()), is_new=is_new)
        live = self._live[group.group_id] = HostedConsumerGroup(group, copy, self._ledger, self._clock, self._unload)
        if not is_new and group.has_members:
            self._loaded.append(group.group_id)
        return live

    def _downgrade(self, live: HostedConsumerGroup, classic: ClassicGroup) -> asyncio.Future[Outcome]:
        """Write the group as the classic one of those who stay, and hand it over once that is applied.

        Until then its members are sent to look for the coordinator, and find it where it was.
        """
        group_id = live.group_id
        written = self._ledger.write(group_id, classic)
        self._unload(live)
        self._handed_over.add(group_id)

        def hand_over(done: asyncio.Future[Outcome]) -> None:
            self._handed_over.discard(group_id)
            if isinstance(done.result(), Done):
                log.info("a consumer group is a classic one from now on", extra={"group": group_id})
                reason = "no member speaks the consumer protocol any more"
                self._classic.take_over(group_id, reason, is_rebalanced=classic.is_rebalance_due)

        written.add_done_callback(hand_over)
        return written

    def _unload(self, live: HostedConsumerGroup) -> None:
        live.end()
        if self._live.get(live.group_id) is live:
            del self._live[live.group_id]
            self._is_load_due = self._is_load_due or not live.is_idle

    def _config(self, group_id: str) -> ConsumerGroupConfig:
        configs = self._metadata.state.group_configs.get(group_id, {})
        return ConsumerGroupConfig(
            session_timeout_ms=int(group_value(configs, self._broker_configs, "consumer.session.timeout.ms")),
            heartbeat_interval_ms=int(group_value(configs, self._broker_configs, "consumer.heartbeat.interval.ms")),
            max_size=self._size_max,
            assignors=self._assignors,
            regex_refresh_ms=self._regex_refresh_ms,
            assignment_interval_ms=int(group_value(configs, self._broker_configs, "consumer.assignment.interval.ms")),
        )

    @property
    def _topics(self) -> FindTopic:
        """The topics as they are now: the same object as long as they are the same."""
        topics_at = self._metadata.state.topics_at
        if topics_at != self._topics_at:
            self._topics_at, self._found_by = topics_at, partial(self._find_topic)
        return self._found_by

    def _find_topic(self, name: str) -> tuple[TopicId, int] | None:
        state = self._metadata.state
        topic_id = state.topic_ids.get(name)
        return None if topic_id is None else (topic_id, len(state.topics[topic_id].partitions))

    def _name_of(self, topic_id: TopicId) -> str | None:
        topic = self._metadata.state.topics.get(topic_id)
        return None if topic is None else topic.name

    # Time

    async def run(self) -> None:
        """Look after the groups, for ever."""
        while True:
            self._regexes_wanted.clear()
            await self.look_after()
            try:
                async with self._clock.timeout(GROUP_CHECK_INTERVAL_S):
                    await self._regexes_wanted.wait()
            except TimeoutError:
                continue

    async def look_after(self) -> None:
        """Mind time-outs and expressions, and take up and give up groups as agents have come and gone."""
        self._look_at_names()
        due_s = min((live.group.due_s for live in self._live.values()), default=float("inf"))
        if self._clock.monotonic_s() - due_s > GROUP_CHECK_INTERVAL_S + GROUP_LATE_SECONDS_MAX:
            # This agent stood still: what members sent meanwhile has come, and was not looked at yet.
            await self._clock.sleep(GROUP_LATE_SECONDS_MAX)
        for live in tuple(self._live.values()):
            if self._current(live.group_id) is live:
                self._expire(live)
                await self._resolve(live)
                self._log_problems(live)
        sessions = self._metadata.state.sessions
        agents = [(session_id, session.is_draining) for session_id, session in sessions.items()]
        if (agents != self._agents_seen or self._is_load_due) and not self._is_stopped:
            self._agents_seen, self._is_load_due = agents, False
            if not await self._load_owned():
                self._is_load_due = True
        log_loaded(self._loaded, protocol=PROTOCOL)

    def _expire(self, live: HostedConsumerGroup) -> None:
        group, now_s = live.group, self._clock.monotonic_s()
        gone = group.expired(self._config(live.group_id), now_s) if now_s >= group.due_s else []
        if gone:
            classic = self._migrations.downgraded(group, gone, is_rebalance_due=True)
            if classic is not None:
                live.log_members_gone(SILENT, gone)
                self._downgrade(live, classic)
                return
            change = group.fence(gone, self._topics, why=SILENT)
            if change is not None:
                live.write(change)
        if group.group.epoch != group.group.target_epoch:
            change = group.assign(self._config(live.group_id), self._topics, now_s)
            if change is not None:
                live.write(change)
        if live.is_idle and not live.is_awaited:
            self._unload(live)

    def _log_problems(self, live: HostedConsumerGroup) -> None:
        for problem in live.group.problems.take():
            log.warning("a consumer group has a problem", extra={"group": live.group_id, "problem": problem})

    def _look_at_names(self) -> None:
        """Give another number to another set of topic names, where any expression wants to know."""
        topics_at = self._metadata.state.topics_at
        if topics_at != self._names_at and any(live.group.copy.has_regexes for live in self._live.values()):
            self._names_at = topics_at
            names = frozenset(self._metadata.state.topic_ids)
            if names != self._names:
                self._names = names
                self._names_number += 1

    def _regexes_due(self, live: HostedConsumerGroup) -> list[str]:
        if not live.group.copy.has_regexes:
            return []
        return live.group.regexes.to_resolve(
            live.group.copy,
            self._config(live.group_id),
            self._clock.monotonic_s(),
            are_topics_new=live.names_seen != self._names_number,
        )

    async def _resolve(self, live: HostedConsumerGroup) -> None:
        regexes = self._regexes_due(live)
        if not regexes:
            return
        live.names_seen = self._names_number
        names, before = list(self._metadata.state.topic_ids), dict(live.group.group.regexes)
        room = await run_in_thread(lambda: room_for(regexes, matcher(names), before))
        if self._current(live.group_id) is live:
            for change in live.group.regexes.put(live.group.copy, room, self._topics, self._clock.monotonic_s()):
                live.write(change)

    async def _load_owned(self) -> bool:
        """Claim the groups with members that are this agent's now; False where that has to be tried again."""
        pacer = CooperativeYield(self._clock)
        wanted: list[str] = []
        for group_id in tuple(self._metadata.state.groups):
            await pacer.step()
            group = self._metadata.state.groups.get(group_id)
            has_members = group is not None and isinstance(group.value, ConsumerGroup) and group.has_members
            if (
                has_members
                and group_id not in self._live
                and self._ledger.coordinator(group_id) == self._writer.session
            ):
                wanted.append(group_id)
        is_done = True
        for first in range(0, len(wanted), GROUP_IDS_PER_CLAIM_MAX):
            claims = (self._load_one(group_id) for group_id in wanted[first : first + GROUP_IDS_PER_CLAIM_MAX])
            is_done = all(await asyncio.gather(*claims)) and is_done
        return is_done

    async def _load_one(self, group_id: str) -> bool:
        try:
            self._load(await self._ledger.claim(group_id), may_begin=False)
        except NotCoordinator:
            # An agent that is not confirmed just now is told the same as one that another has taken the place of.
            return self._ledger.coordinator(group_id) != self._writer.session
        except GroupRefusal:
            return True
        return True
