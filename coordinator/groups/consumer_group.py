"""A live group of the consumer protocol (KIP-848): what its coordinator makes of heartbeats, leavings and silence.

Rule: pure; time comes in as seconds of the coordinator's monotonic clock. A request that cannot be met raises
`GroupRejection` and leaves the group as it was, the session time-outs too: so does one whose rows, or whose target
assignment, do not fit into a ledger entry. Otherwise the group changes at once, and the
rows of that are what the ledger has to take before the answer may be given. The time of the last heartbeat is not
durable: a new coordinator gives every member a whole session time-out, which begins when no other coordinator can hear
it.

A heartbeat does, in this order: find or make the member; note what it says of itself; raise the group epoch where the
subscribed topics are others, or look different; make a target assignment where the epoch was raised; take the member
one step towards it (`coordinator.groups.consumer_group_reconciliation`).
Source: org.apache.kafka.coordinator.group.GroupMetadataManager.consumerGroupHeartbeat, Kafka 4.3.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from coordinator.commands.consumer_group_values import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    ConsumerGroupChange,
    ConsumerMember,
    MemberAssignment,
    MemberState,
    Partitions,
)
from coordinator.groups.consumer_group_copy import FindTopic, GroupCopy, preferred_assignor
from coordinator.groups.consumer_group_messages import (
    NOT_SAID,
    ConsumerGroupConfig,
    ConsumerHeartbeat,
    GroupRejection,
    HeartbeatAnswer,
    Problems,
    too_large,
    updated_member,
)
from coordinator.groups.consumer_group_reconciliation import Aim, has_only, reconcile
from coordinator.groups.consumer_group_regexes import GroupRegexes
from coordinator.groups.consumer_group_size import fits
from protocol.errors import ErrorCode
from protocol.limits import (
    CONSUMER_GROUP_ASSIGNED_AT_ONCE_MAX,
    CONSUMER_GROUP_GONE_BYTES_MAX,
)

T = TypeVar("T")


class LiveConsumerGroup:
    """A group as its coordinator has it in memory."""

    def __init__(self, group_id: str, group: ConsumerGroup | None, now_s: float, *, is_new: bool = False) -> None:
        """Loads the group of the state, or begins one that is not in the ledger yet: empty where `group` is None.

        Until `now_s`, which may be in the future, the coordinator before may hear its members: whatever they are heard
        of here, their silence begins no earlier.
        """
        self.group_id = group_id
        self.copy = GroupCopy(group, is_new=is_new)
        self.problems = Problems()
        self.changes: list[tuple[str, Sequence[str]]] = []
        """Who came and went, until the coordinator takes it: what became of members, and their ids."""
        self.regexes = GroupRegexes(group_id, self.problems)
        self.sessions: dict[str, float] = {}
        """When each member counts as gone that was heard of, or whose time began."""
        self.revocations: dict[str, tuple[int, float]] = {}
        """By when members must have given up partitions, and the epoch in which they were asked to."""
        self.joins: dict[str, float] = {}
        """By when members of the classic protocol must have joined again that were asked to."""
        self.syncs: dict[str, float] = {}
        """By when such members must have asked for their assignment that joined."""
        self._assigned_s: float | None = None
        """When the last target assignment was made here."""
        self._assigned_rows = 0
        """Members and partitions that it was about."""
        self._too_large_epoch: int | None = None
        """The group epoch whose target assignment does not fit into an entry: it is not made again."""
        self._before_request: list[Callable[[], None]] = []
        """Functions that restore the deadlines from before a request."""
        self._loaded_s = now_s
        self._loaded_members = frozenset(self.group.members)
        self.due_s = now_s
        """`expired` returns nothing before."""

    @property
    def group(self) -> ConsumerGroup:
        return self.copy.group

    # Heartbeats.

    def heartbeat(
        self,
        request: ConsumerHeartbeat,
        config: ConsumerGroupConfig,
        find_topic: FindTopic,
        check_regex: Callable[[str], str | None],
        now_s: float,
    ) -> tuple[HeartbeatAnswer, ConsumerGroupChange | None]:
        """The answer, and the rows that must be in the ledger first.

        `check_regex`: returns the fault of an expression that no member has used yet; None for a valid one.
        """
        if request.epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return self._leave(request, find_topic)
        before, standing, replaced = self._find_member(request, config)
        member = updated_member(before, request)
        is_same_regex = before is not None and before.subscribed_regex == member.subscribed_regex
        if member.subscribed_regex and not is_same_regex and not self.copy.regex_count(member.subscribed_regex):
            problem = check_regex(member.subscribed_regex)
            if problem is not None:
                raise GroupRejection(
                    ErrorCode.invalid_regular_expression,
                    f"SubscribedTopicRegex {member.subscribed_regex!r} cannot be read: {problem}",
                )
            self.regexes.check_room(self.copy, member.subscribed_regex)
        self.regexes.check_match(member.subscribed_regex)
        after = self.admit(before, member, standing, replaced, request.owned, config, find_topic, now_s)
        self.reset_session(member.member_id, config.session_timeout_ms, now_s)
        is_full = (
            request.rebalance_timeout_ms != NOT_SAID
            and (request.names is not None or request.regex is not None)
            and request.owned is not None
        )
        is_assignment_sent = request.epoch == JOIN_EPOCH or is_full or after.assigned != standing.assigned
        answer = HeartbeatAnswer(
            member_id=member.member_id,
            epoch=after.epoch,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            assigned=after.assigned if is_assignment_sent else None,
        )
        return answer, self.take_change()

    def take_change(self) -> ConsumerGroupChange | None:
        """The rows of what a request changed. Raises `GroupRejection` where no ledger entry takes them."""
        change = self.copy.pending()
        if change is not None and not fits(change):
            self._undo()
            raise too_large(f"what this makes of group {self.group_id!r} does not fit into a ledger entry: {_REMEDY}")
        return self.copy.take_change()

    def _undo(self) -> None:
        """Be what this was before the request."""
        self.copy.undo()
        self.changes.clear()
        if self._too_large_epoch != self.group.epoch:
            self._too_large_epoch = None
        for put_back in self._before_request:
            put_back()

    def _save_deadlines(self, member_ids: list[str]) -> None:
        """To be called before deadlines of these members are changed by a request that may be undone."""
        timers = (self.sessions, self.joins, self.syncs)
        self._before_request = [_putting_back(timer, member_id) for timer in timers for member_id in member_ids]
        self._before_request += [_putting_back(self.revocations, member_id) for member_id in member_ids]

    def admit(
        self,
        before: ConsumerMember | None,
        member: ConsumerMember,
        standing: MemberAssignment,
        replaced: ConsumerMember | None,
        said: Partitions | None,
        config: ConsumerGroupConfig,
        find_topic: FindTopic,
        now_s: float,
    ) -> MemberAssignment:
        """Take over what a member says of itself, and take it a step towards its target; where it stands then.

        `before`: the member before this request, or the one that it replaces. `replaced`: the static member that goes.
        Raises `GroupRejection` where the target assignment that it asks for is too large. `take_change` follows.
        """
        self._save_deadlines([member.member_id] if replaced is None else [member.member_id, replaced.member_id])
        if before is None or replaced is not None:
            place = "" if replaced is None else f" in the place of {replaced.member_id}"
            self.changes.append(("joins", (f"{member.member_id} (client {member.client_id}){place}",)))
        is_same_regex = before is not None and before.subscribed_regex == member.subscribed_regex
        if replaced is not None:
            target = self.group.targets.get(replaced.member_id, ())
            self._remove(replaced.member_id)
            self.copy.put_member(member)
            self.copy.put_target(member.member_id, target)
        self.copy.put_member(member)
        names_before = () if before is None else before.subscribed_names
        has_other_names = member.subscribed_names is not names_before and member.subscribed_names != names_before
        self.copy.drop_unused_regexes()
        self._update_target(
            config,
            find_topic,
            now_s,
            is_required=self.copy.is_new
            or has_other_names
            or (not is_same_regex and self._is_resolved(member, before)),
        )
        self._check_has_anything(member, standing, find_topic)
        has_changed = has_other_names or not is_same_regex
        return self._step(member, standing, said, find_topic, now_s, has_changed=has_changed)

    def _find_member(
        self, request: ConsumerHeartbeat, config: ConsumerGroupConfig
    ) -> tuple[ConsumerMember | None, MemberAssignment, ConsumerMember | None]:
        """The member as it was, where it stands, and the static member in whose place it comes."""
        member_id = request.member_id
        member = self.group.members.get(member_id)
        self.check_room(member_id, config)
        if request.instance_id is not None:
            return self._find_static(request, request.instance_id)
        if member is None and request.epoch != JOIN_EPOCH:
            raise self.unknown(member_id)
        standing = self.group.assignment(member_id)
        self._check_epoch(request, standing)
        return member, standing, None

    def check_room(self, member_id: str, config: ConsumerGroupConfig) -> None:
        """Raise `GroupRejection` where the group is full. Source: throwIfConsumerGroupIsFull."""
        if len(self.group.members) >= config.max_size and member_id not in self.group.members:
            raise GroupRejection(
                ErrorCode.group_max_size_reached,
                f"group {self.group_id!r} has {len(self.group.members)} members, which is the most",
            )

    def _find_static(
        self, request: ConsumerHeartbeat, instance_id: str
    ) -> tuple[ConsumerMember | None, MemberAssignment, ConsumerMember | None]:
        member = self.copy.static_member(instance_id)
        if request.epoch != JOIN_EPOCH:
            member = self.static_member(instance_id, request.member_id)
            standing = self.group.assignment(member.member_id)
            self._check_epoch(request, standing)
            return member, standing, None
        if member is None:
            existing = self.group.members.get(request.member_id)
            return existing, self.group.assignment(request.member_id), None
        standing = self.group.assignment(member.member_id)
        if member.member_id == request.member_id:
            # Differs from Kafka, which answers UNRELEASED_INSTANCE_ID: a fenced member that joins again is itself.
            return member, standing, None
        if member.classic is None and standing.epoch != LEAVE_STATIC_EPOCH:
            raise GroupRejection(
                ErrorCode.unreleased_instance_id,
                f"instance id {instance_id!r} is member {member.member_id!r}'s, which has not left",
            )
        return member, replace(standing, epoch=0, previous_epoch=0), member

    def _check_epoch(self, request: ConsumerHeartbeat, standing: MemberAssignment) -> None:
        """Source: throwIfConsumerGroupMemberEpochIsInvalid. Joining again is never wrong."""
        if request.epoch in (JOIN_EPOCH, standing.epoch):
            return
        is_answer_lost = request.epoch == standing.previous_epoch and has_only(request.owned, standing.assigned)
        if request.epoch > standing.epoch or not is_answer_lost:
            raise GroupRejection(
                ErrorCode.fenced_member_epoch,
                f"member {request.member_id!r} says epoch {request.epoch}, and is at {standing.epoch}: "
                "it must give up its partitions and join again",
            )

    def static_member(self, instance_id: str, member_id: str) -> ConsumerMember:
        """The member that is this instance, and has this id. Raises `GroupRejection`."""
        member = self.copy.static_member(instance_id)
        if member is None:
            raise GroupRejection(
                ErrorCode.unknown_member_id, f"instance id {instance_id!r} is no member of group {self.group_id!r}"
            )
        if member.member_id != member_id:
            raise GroupRejection(
                ErrorCode.fenced_instance_id, f"instance id {instance_id!r} is now member {member.member_id!r}'s"
            )
        return member

    def unknown(self, member_id: str) -> GroupRejection:
        return GroupRejection(ErrorCode.unknown_member_id, f"{member_id!r} is no member of group {self.group_id!r}")

    def _is_resolved(self, member: ConsumerMember, before: ConsumerMember | None) -> bool:
        """Whether another expression changes at once what the member gets, or only once it is looked up."""
        if not member.subscribed_regex:
            return before is not None and bool(before.subscribed_regex)
        return member.subscribed_regex in self.group.regexes

    def _update_target(
        self, config: ConsumerGroupConfig, find_topic: FindTopic, now_s: float, *, is_required: bool
    ) -> None:
        """Raise the epoch where that is required or topics look different; compute the assignment that it asks for."""
        topics_hash = self.copy.topics_hash(find_topic)
        if is_required or topics_hash != self.group.topics_hash:
            self.copy.raise_epoch(topics_hash)
        self._assign_if_due(config, find_topic, now_s, is_asked=is_required)

    def _assign_if_due(
        self, config: ConsumerGroupConfig, find_topic: FindTopic, now_s: float, *, is_asked: bool = False
    ) -> None:
        """Compute the target assignment, but that of a large group not for every member that comes (KIP-1263).

        One that does not fit into a ledger entry is an error for the member whose request needs it. Without such a
        member, as where topics have grown, all keep what they had, the log says so, and it is not made again in this
        group epoch; a member that has nothing gets the error with its next heartbeat.
        Differs from Kafka, which lets small groups wait too. Members of the classic protocol would ask all the while.
        """
        if self.group.epoch in (self.group.target_epoch, self._too_large_epoch):
            return
        is_early = self._assigned_s is not None and now_s < self._assigned_s + config.assignment_interval_ms / 1000
        if is_early and self._assigned_rows > CONSUMER_GROUP_ASSIGNED_AT_ONCE_MAX and not self.copy.has_classic:
            return
        rows_count = self.copy.assign(preferred_assignor(self.group, config.assignors[0]), find_topic)
        if rows_count is not None:
            self._assigned_rows, self._assigned_s = rows_count, now_s
        elif is_asked:
            self._undo()
            raise self._assignment_too_large()
        else:
            self._too_large_epoch = self.group.epoch
        problem = f"its target assignment does not fit into a ledger entry, members keep what they have: {_REMEDY}"
        self.problems.note(problem, is_so=rows_count is None)

    def _check_has_anything(self, member: ConsumerMember, standing: MemberAssignment, find_topic: FindTopic) -> None:
        """Raise `GroupRejection` where the member waits for partitions of an assignment that is too large."""
        is_given = member.member_id in self.group.targets or standing.assigned or standing.revoking
        if self.group.epoch == self._too_large_epoch and not is_given and self.copy.topics_of(member, find_topic):
            self._undo()
            raise self._assignment_too_large()

    def _assignment_too_large(self) -> GroupRejection:
        return too_large(f"the assignment of group {self.group_id!r} would not fit into a ledger entry: {_REMEDY}")

    def assign(self, config: ConsumerGroupConfig, find_topic: FindTopic, now_s: float) -> ConsumerGroupChange | None:
        """Compute the target assignment that waited for its time, if any."""
        if self.group.members:
            self._assign_if_due(config, find_topic, now_s)
        return self.copy.take_change()

    def _step(
        self,
        member: ConsumerMember,
        standing: MemberAssignment,
        said: Partitions | None,
        find_topic: FindTopic,
        now_s: float,
        *,
        has_changed: bool,
    ) -> MemberAssignment:
        """Take the member one step towards its target."""
        member_id = member.member_id
        aim = Aim(
            epoch=self.group.target_epoch,
            target=self.group.targets.get(member_id, ()),
            subscribed=lambda: self.copy.topics_of(member, find_topic),
            has_changed=has_changed,
            is_free=lambda topic_id, index: self.copy.owner(topic_id, index) in (None, member_id),
        )
        after = reconcile(standing, aim, said)
        if after != self.group.assignment(member_id):
            self.copy.put_assignment(member_id, after)
            if member.classic is None and after.state is MemberState.UNREVOKED_PARTITIONS:
                deadline_s = self._begins_s(member_id, now_s) + member.rebalance_timeout_ms / 1000
                self.revocations[member_id] = after.epoch, deadline_s
                self.due_s = min(self.due_s, deadline_s)
            else:
                self.revocations.pop(member_id, None)
        return after

    # Leaving, and being gone.

    def _leave(
        self, request: ConsumerHeartbeat, find_topic: FindTopic
    ) -> tuple[HeartbeatAnswer, ConsumerGroupChange | None]:
        member_id = self.leaver(request)
        answer = HeartbeatAnswer(member_id=member_id, epoch=request.epoch, heartbeat_interval_ms=0, assigned=None)
        if request.epoch == LEAVE_STATIC_EPOCH:
            standing = self.group.assignment(member_id)
            self.copy.put_assignment(member_id, replace(standing, epoch=LEAVE_STATIC_EPOCH, revoking=()))
            self.revocations.pop(member_id, None)
            self.changes.append(("leaves for a while", (member_id,)))
            return answer, self.copy.take_change()
        return answer, self.fence([member_id], find_topic)

    def leaver(self, request: ConsumerHeartbeat) -> str:
        """The member that a request is to take out of the group. Raises `GroupRejection`."""
        if request.instance_id is None:
            if request.member_id not in self.group.members:
                raise self.unknown(request.member_id)
            return request.member_id
        return self.static_member(request.instance_id, request.member_id).member_id

    def fence(self, member_ids: list[str], find_topic: FindTopic, *, why: str = "leaves") -> ConsumerGroupChange | None:
        """Take members out of the group; who stays is given what they had with its next heartbeats.

        Raises `GroupRejection` where no ledger entry takes their ids; one takes those that `expired` returns, and any
        single id.
        """
        self._save_deadlines(member_ids)
        self.changes.append((why, member_ids))
        for member_id in member_ids:
            self._remove(member_id)
        self.copy.drop_unused_regexes()
        self.copy.raise_epoch(self.copy.topics_hash(find_topic))
        return self.take_change()

    def _remove(self, member_id: str) -> None:
        self.copy.remove(member_id)
        for deadlines in (self.sessions, self.revocations, self.joins, self.syncs):
            deadlines.pop(member_id, None)

    def expired(self, config: ConsumerGroupConfig, now_s: float) -> list[str]:
        """Members that were silent for too long, or did not do in time what they were asked to: to be fenced."""
        if now_s < self.due_s:
            return []
        for member_id, member in self.group.members.items():
            if member_id not in self.sessions:
                self.sessions[member_id] = self._loaded_s + _session_timeout_ms(member, config) / 1000
            standing = self.group.assignment(member_id)
            is_late_to_revoke = member.classic is None and standing.state is MemberState.UNREVOKED_PARTITIONS
            if is_late_to_revoke and member_id not in self.revocations:
                self.revocations[member_id] = standing.epoch, self._loaded_s + member.rebalance_timeout_ms / 1000
        timers = (self.sessions, self.joins, self.syncs)
        gone = {member_id for timer in timers for member_id, deadline_s in timer.items() if deadline_s <= now_s}
        for member_id, (epoch, deadline_s) in list(self.revocations.items()):
            if deadline_s <= now_s and self.group.assignment(member_id).epoch == epoch:
                gone.add(member_id)
            elif deadline_s <= now_s:
                del self.revocations[member_id]
        deadlines = [deadline_s for timer in timers for deadline_s in timer.values()]
        deadlines += [deadline_s for _, deadline_s in self.revocations.values()]
        self.due_s = min((deadline_s for deadline_s in deadlines if deadline_s > now_s), default=float("inf"))
        return self._so_many_at_once(sorted(gone), now_s)

    def _so_many_at_once(self, gone: list[str], now_s: float) -> list[str]:
        """The first of `gone`, as many as one entry takes; the others are returned by the next call."""
        bytes_count = 0
        for place, member_id in enumerate(gone):
            bytes_count += len(member_id.encode())
            if place and bytes_count > CONSUMER_GROUP_GONE_BYTES_MAX:
                self.due_s = now_s
                return gone[:place]
        return gone

    def reset_session(self, member_id: str, timeout_ms: int, now_s: float) -> None:
        """The member was heard of."""
        self._set_deadline(self.sessions, member_id, self._begins_s(member_id, now_s) + timeout_ms / 1000)

    def await_join(self, member: ConsumerMember, now_s: float) -> None:
        """The member of the classic protocol is asked to join again; its time begins when it is first asked."""
        if member.member_id not in self.joins:
            self._await(self.joins, member, now_s)

    def await_sync(self, member: ConsumerMember, now_s: float) -> None:
        """It has joined, and has to ask for its assignment."""
        self.joins.pop(member.member_id, None)
        self._await(self.syncs, member, now_s)

    def _await(self, deadlines: dict[str, float], member: ConsumerMember, now_s: float) -> None:
        ends_s = self._begins_s(member.member_id, now_s) + member.rebalance_timeout_ms / 1000
        self._set_deadline(deadlines, member.member_id, ends_s)

    def _begins_s(self, member_id: str, now_s: float) -> float:
        """When a member's time-out begins: not while the coordinator before may still answer its heartbeats."""
        return max(now_s, self._loaded_s) if member_id in self._loaded_members else now_s

    def _set_deadline(self, deadlines: dict[str, float], member_id: str, deadline_s: float) -> None:
        deadlines[member_id] = deadline_s
        self.due_s = min(self.due_s, deadline_s)


_REMEDY = "let fewer members subscribe to fewer topics"


def _putting_back(deadlines: dict[str, T], member_id: str) -> Callable[[], None]:
    """A function that sets the member's deadline back to its current value."""
    before = deadlines.get(member_id)

    def put_back() -> None:
        if before is None:
            deadlines.pop(member_id, None)
        else:
            deadlines[member_id] = before

    return put_back


def _session_timeout_ms(member: ConsumerMember, config: ConsumerGroupConfig) -> int:
    return config.session_timeout_ms if member.classic is None else member.classic.session_timeout_ms
