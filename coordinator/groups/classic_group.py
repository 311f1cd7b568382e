"""The live part of one classic group: who joins, who is assigned what, and who has not been heard of for too long.

Rule: sans I/O. A request or the passing of time goes in by one of the methods; what is to be done comes out of
`take_work`; `deadline_s` says when `expire` has something to do. The group changes at once, ahead of the ledger: its
coordinator answers nothing that depends on a change before that is applied, and discards the whole object where it was
not. States change by `classic_states.NEXT_STATES` alone; anything else is a bug and raises.

    Empty -> PreparingRebalance: the first member joins, and others get some time to come too
    PreparingRebalance -> CompletingRebalance: all have joined, or had the time to; a new generation begins
    PreparingRebalance -> Empty: all have left meanwhile
    CompletingRebalance -> Stable: the leader sent the assignment
    CompletingRebalance, Stable -> PreparingRebalance: a member joined, left, timed out, or changed its protocols

Source: org.apache.kafka.coordinator.group.GroupMetadataManager (classicGroup* methods) and classic.ClassicGroup
(Kafka 4.3); KIP-62, KIP-134, KIP-345, KIP-394, KIP-559, KIP-814.
"""

from collections.abc import Sequence

from coordinator.commands.group_values import ClassicGroup
from coordinator.groups.classic_admission import has_capacity, is_protocol_supported
from coordinator.groups.classic_answers import ClassicAnswers
from coordinator.groups.classic_descriptions import describe
from coordinator.groups.classic_members import LiveMember, Members, member_of
from coordinator.groups.classic_messages import (
    NO_ASSIGNMENT,
    NO_MEMBER_ID,
    Description,
    GroupLimits,
    Join,
    JoinAnswer,
    JoinedMember,
    Leaver,
    Sync,
    SyncAnswer,
    Ticket,
    Work,
)
from coordinator.groups.classic_states import NEXT_STATES, ClassicGroupState, FirstJoinDelay
from coordinator.groups.consumer_group_size import classic_fits
from protocol.errors import ErrorCode
from protocol.limits import (
    CLASSIC_ASSIGNMENTS_BYTES_MAX,
    CLASSIC_JOIN_SECONDS_MAX,
    CLASSIC_REBALANCE_SECONDS_MIN,
)


class LiveClassicGroup:
    """One group on its coordinator. `value` is what the ledger has of it, or `NO_GROUP`."""

    def __init__(self, value: ClassicGroup, limits: GroupLimits, now_s: float) -> None:
        """Go on where the last coordinator stopped, which may hear members until `now_s`: their silence begins then."""
        self._limits = limits
        self._answers = ClassicAnswers()
        self.generation = value.generation
        self.protocol_type = value.protocol_type
        self.protocol = value.protocol
        self.members = Members(value.members, value.leader, now_s)
        self.state = (
            ClassicGroupState.EMPTY
            if not value.members
            else ClassicGroupState.STABLE
            if value.is_synced
            else ClassicGroupState.COMPLETING
        )
        self._join_deadline_s: float | None = None
        self._sync_deadline_s: float | None = None
        self._unsynced: dict[str, None] = {}
        """Members that have not asked for their assignment in this generation."""
        self._is_past_known = not value.members
        """Whether this coordinator would know of a rebalance that was going on: it began this generation itself."""
        self._first_delay: FirstJoinDelay | None = None
        """The delay of a rebalance that began in an empty group; None in any other."""
        if self.state is ClassicGroupState.COMPLETING:
            self._await_syncs(now_s)
        if value.is_rebalance_due:
            self.rebalance("the last member of the consumer protocol left: partitions may be unassigned", now_s)

    def take_work(self) -> Work:
        """The work that has come up since the last call."""
        return self._answers.take()

    @property
    def deadline_s(self) -> float | None:
        """When `expire` is to be called; None while time alone changes nothing. A heartbeat only ever moves it back."""
        times = (self._join_deadline_s, self._sync_deadline_s, self.members.deadline_s)
        return min((time_s for time_s in times if time_s is not None), default=None)

    @property
    def is_idle(self) -> bool:
        """Whether the ledger knows all there is to know, once what was written is applied."""
        return self.state is ClassicGroupState.EMPTY and not self.members.pending

    # JoinGroup

    def join(self, join: Join, now_s: float) -> None:
        """Let a member join, or join again. An error is answered at once, success when the generation begins."""
        if not has_capacity(join, self.state, self.members, self._limits.members_max):
            self._reject_for_size(join, now_s)
        elif not is_protocol_supported(join, self.state, self.members, self.protocol_type):
            self._answers.reject(join, ErrorCode.inconsistent_group_protocol, join.member_id)
        elif join.member_id == NO_MEMBER_ID:
            self._join_new(join, now_s)
        elif join.member_id in self.members.pending and join.group_instance_id is None:
            self._add(join, join.member_id, now_s)
        else:
            self._rejoin(join, now_s)

    def _reject_for_size(self, join: Join, now_s: float) -> None:
        """Reject a member for which there is no capacity: it is removed, and an id that was given out is invalid."""
        self._answers.reject(join, ErrorCode.group_max_size_reached, NO_MEMBER_ID)
        if self.members.check(join.member_id, join.group_instance_id) is ErrorCode.none:
            self._remove(join.member_id)
            self._rebalance_or_complete(f"there is no room for {join.member_id} any more", now_s)
        elif join.member_id in self.members.pending:
            self.members.remove(join.member_id)
            self._complete_if_all_joined(now_s)

    def _join_new(self, join: Join, now_s: float) -> None:
        if join.group_instance_id is not None:
            old_id = self.members.static_ids.get(join.group_instance_id)
            if old_id is None:
                self._add(join, join.member_id_new, now_s)
            else:
                self._replace(join, self.members.by_id[old_id], now_s)
        elif join.needs_known_id:
            self.members.pending[join.member_id_new] = now_s + join.session_timeout_ms / 1000
            self._answers.reject(join, ErrorCode.member_id_required, join.member_id_new)
        else:
            self._add(join, join.member_id_new, now_s)

    def _rejoin(self, join: Join, now_s: float) -> None:
        error = self.members.check(join.member_id, join.group_instance_id)
        if error is not ErrorCode.none:
            self._answers.reject(join, error, join.member_id)
            return
        member = self.members.by_id[join.member_id]
        is_leader = self.members.leader == member.member_id
        has_changed = member.protocols != join.protocols
        if self.state is ClassicGroupState.COMPLETING and not has_changed:
            # It did not get the answer, or not in time.
            self._answer_join(member, join.ticket, members=self.members.joined(self.protocol) if is_leader else ())
        elif self.state is ClassicGroupState.STABLE and not has_changed and not is_leader:
            self._answer_join(member, join.ticket)
        else:
            # A leader joins a stable group again in order to make another assignment: its topics may have changed.
            self.members.update(member, join)
            self._await_join(member, join)
            self._rebalance_or_complete(f"member {member.member_id} joins again: {join.reason}", now_s)

    def _add(self, join: Join, member_id: str, now_s: float) -> None:
        if not self.members:
            self.protocol_type = join.protocol_type
        if self.state is ClassicGroupState.PREPARING and self._first_delay is not None:
            self._first_delay.has_newcomer = True
        self.members.add(member_of(join, member_id, now_s + CLASSIC_JOIN_SECONDS_MAX))
        self._rebalance_or_complete(f"member {member_id} joins: {join.reason}", now_s)

    def _replace(self, join: Join, old: LiveMember, now_s: float) -> None:
        """Replace a static member that came back without its id: the old one is fenced (KIP-345)."""
        self._answers.end_join(old, ErrorCode.fenced_instance_id, old.member_id)
        self._answers.end_sync(old, ErrorCode.fenced_instance_id)
        leader_before = self.members.leader
        member = self.members.replace(old, join.member_id_new)
        self.members.update(member, join)
        member.heard_of(now_s)
        self._answers.log(f"member {member.member_id} takes the place of {old.member_id}")
        if self.state is ClassicGroupState.STABLE and self._is_past_known and self.members.vote() == self.protocol:
            # The assignment stays, and only the member id changes: no rebalance, but the ledger needs the new id.
            self._write()
            is_leader = self.members.leader == member.member_id
            if join.may_skip_assignment:
                members = self.members.joined(self.protocol) if is_leader else ()
                self._answer_join(member, join.ticket, members=members, skip_assignment=is_leader)
            else:
                self._answer_join(member, join.ticket, leader=leader_before)
            return
        self._await_join(member, join)
        if self.state is ClassicGroupState.PREPARING:
            self._complete_if_all_joined(now_s)
        else:
            # The leader may be assigning to the old id just now. Or the old one gave partitions up for a rebalance
            # that the last coordinator had begun (KIP-429), and no other member would ask for it. Differs from Kafka.
            self._rebalance(f"static member {member.member_id} came back: {join.reason}", now_s)

    # SyncGroup

    def sync(self, sync: Sync, now_s: float) -> None:
        """Answer with the member's assignment, once there is one; the leader brings it."""
        error = self._check_sync(sync)
        if error is not ErrorCode.none:
            self._answers.sync(sync.ticket, SyncAnswer(error_code=error))
            return
        member = self.members.by_id[sync.member_id]
        self._unsynced.pop(member.member_id, None)
        if not self._unsynced:
            self._sync_deadline_s = None
        self._answers.end_sync(member, ErrorCode.rebalance_in_progress)
        member.sync_ticket = sync.ticket
        if self.state is ClassicGroupState.STABLE:
            self._answer_sync(member, now_s)
        elif self.members.leader == member.member_id:
            self._assign(sync.assignments, now_s)

    def _assign(self, assignments: Sequence[tuple[str, bytes]], now_s: float) -> None:
        """Take the leader's assignment. One that is too large for an entry costs a rebalance, which delays a retry.

        It is UNKNOWN_SERVER_ERROR, as Kafka's RecordTooLargeException is (appendGroupMetadataErrorToResponseError).
        """
        assigned = dict(assignments)
        for each in self.members.all():
            each.assignment = assigned.get(each.member_id, NO_ASSIGNMENT)
        size = sum(len(assignment) for _, assignment in assignments)
        if size > CLASSIC_ASSIGNMENTS_BYTES_MAX or not classic_fits(self.value()):
            for each in self.members.all():
                if self._answers.end_sync(each, ErrorCode.unknown_server_error):
                    each.heard_of(now_s)
            self._rebalance(f"no ledger entry takes {size} bytes of assignments with all metadata", now_s)
        else:
            self._move_to(ClassicGroupState.STABLE)
            for each in self.members.all():
                self._answer_sync(each, now_s)
            self._write()

    def _check_sync(self, sync: Sync) -> ErrorCode:
        error = self.members.check(sync.member_id, sync.group_instance_id)
        if error is not ErrorCode.none:
            return error
        if sync.generation != self.generation:
            return ErrorCode.illegal_generation
        if sync.protocol_type not in (None, self.protocol_type) or sync.protocol not in (None, self.protocol):
            return ErrorCode.inconsistent_group_protocol
        return ErrorCode.rebalance_in_progress if self.state is ClassicGroupState.PREPARING else ErrorCode.none

    def _answer_sync(self, member: LiveMember, now_s: float) -> None:
        if member.sync_ticket is not None:
            answer = SyncAnswer(
                error_code=ErrorCode.none,
                protocol_type=self.protocol_type,
                protocol=self.protocol,
                assignment=member.assignment,
            )
            self._answers.sync(member.sync_ticket, answer)
            member.sync_ticket = None
            member.heard_of(now_s)

    # Heartbeat, LeaveGroup, OffsetCommit

    def heartbeat(self, member_id: str, group_instance_id: str | None, generation: int, now_s: float) -> ErrorCode:
        """Note that a member is alive; it has to join again where the answer is REBALANCE_IN_PROGRESS."""
        error = self.members.check(member_id, group_instance_id)
        if error is not ErrorCode.none:
            return error
        if generation != self.generation:
            return ErrorCode.illegal_generation
        self.members.by_id[member_id].still_heard_of(now_s)
        return ErrorCode.rebalance_in_progress if self.state is ClassicGroupState.PREPARING else ErrorCode.none

    def leave(self, leavers: Sequence[Leaver], now_s: float) -> tuple[ErrorCode, ...]:
        """Remove members; returns an error for each leaver, which is set where it was no member."""
        answers = tuple(self._leave(leaver) for leaver in leavers)
        gone = ", ".join(
            leaver.member_id or f"instance {leaver.group_instance_id}"
            for leaver, error in zip(leavers, answers, strict=True)
            if error is ErrorCode.none
        )
        if gone:
            self._rebalance_or_complete(f"left: {gone}", now_s)
        return answers

    def _leave(self, leaver: Leaver) -> ErrorCode:
        member_id = leaver.member_id
        if member_id == NO_MEMBER_ID:
            if leaver.group_instance_id not in self.members.static_ids:
                return ErrorCode.unknown_member_id
            member_id = self.members.static_ids[leaver.group_instance_id]
        elif member_id not in self.members.pending:
            error = self.members.check(member_id, leaver.group_instance_id)
            if error is not ErrorCode.none:
                return error
        self._remove(member_id)
        self._answers.log(f"member {member_id} leaves: {leaver.reason}")
        return ErrorCode.none

    def check_commit(
        self, member_id: str, group_instance_id: str | None, generation: int, now_s: float, *, is_pending: bool = False
    ) -> ErrorCode:
        """Whether offsets may be committed in that member's name; that counts as being heard of.

        A negative generation comes from a tool, or from a consumer that assigns itself: valid only in an empty group.
        What is pending until a transaction ends may be committed between JoinGroup and SyncGroup too (KIP-447).
        """
        if generation < 0 and self.state is ClassicGroupState.EMPTY:
            return ErrorCode.none
        error = self.members.check(member_id, group_instance_id)
        if error is not ErrorCode.none:
            return error
        if generation != self.generation:
            return ErrorCode.illegal_generation
        if self.state is ClassicGroupState.COMPLETING and not is_pending:
            return ErrorCode.rebalance_in_progress
        self.members.by_id[member_id].still_heard_of(now_s)
        return ErrorCode.none

    # Time

    def expire(self, now_s: float) -> None:
        """Do what the time has come for."""
        for member_id, until_s in tuple(self.members.pending.items()):
            if until_s <= now_s:
                self.members.remove(member_id)
                self._complete_if_all_joined(now_s)
        for member in self.members.all():
            expires_s = member.expires_s
            if expires_s is not None and expires_s <= now_s:
                self._remove(member.member_id)
                self._rebalance_or_complete(f"member {member.member_id} was not heard of", now_s)
        if self._join_deadline_s is not None and self._join_deadline_s <= now_s:
            self._end_join_phase(now_s)
        if self._sync_deadline_s is not None and self._sync_deadline_s <= now_s:
            silent = tuple(self._unsynced)
            for member_id in silent:
                self._remove(member_id)
            self._rebalance(f"did not ask for their assignment: {', '.join(silent)}", now_s)

    def _end_join_phase(self, now_s: float) -> None:
        if self._first_delay is not None and self._first_delay.goes_on():
            self._join_deadline_s = now_s + self._first_delay.wait_s
        else:
            self._complete_join(now_s)

    # Rebalances

    def rebalance(self, reason: str, now_s: float) -> None:
        """Have all members join again, unless they are about to."""
        if self.state in (ClassicGroupState.COMPLETING, ClassicGroupState.STABLE):
            self._rebalance(reason, now_s)

    def _rebalance_or_complete(self, reason: str, now_s: float) -> None:
        if self.state is ClassicGroupState.PREPARING:
            self._complete_if_all_joined(now_s)
        elif self.state is not ClassicGroupState.EMPTY or self.members:
            self._rebalance(reason, now_s)

    def _rebalance(self, reason: str, now_s: float) -> None:
        """Ask all members to join again: they learn it from their heartbeats."""
        for member in self.members.all():
            if self._answers.end_sync(member, ErrorCode.rebalance_in_progress):
                member.heard_of(now_s)
        self._unsynced.clear()
        self._sync_deadline_s = None
        is_first = self.state is ClassicGroupState.EMPTY
        self._answers.log(f"rebalances from generation {self.generation}: {reason}")
        self._move_to(ClassicGroupState.PREPARING)
        self._first_delay = None
        if is_first:
            self._first_delay = FirstJoinDelay(
                step_s=self._limits.initial_rebalance_delay_ms / 1000,
                rebalance_timeout_s=self.members.rebalance_timeout_s,
            )
            self._join_deadline_s = now_s + self._first_delay.wait_s
        elif self.members.have_all_joined:
            self._complete_join(now_s)
        else:
            self._join_deadline_s = self.members.rebalance_ends_s(now_s)

    def _complete_if_all_joined(self, now_s: float) -> None:
        if self.state is ClassicGroupState.PREPARING and self._first_delay is None and self.members.have_all_joined:
            self._complete_join(now_s)

    def _complete_join(self, now_s: float) -> None:
        """Begin a new generation of those who joined, and of static members, who keep their place while away."""
        self._join_deadline_s = None
        for member in self.members.all():
            if not member.is_awaiting_join and member.group_instance_id is None:
                self._remove(member.member_id)
                self._answers.log(f"member {member.member_id} did not join again in time")
        if not self.members.elect() and self.members:
            # Only static members are left, and none has come: until one does, or its session ends.
            self._join_deadline_s = now_s + max(self.members.rebalance_timeout_s, CLASSIC_REBALANCE_SECONDS_MIN)
            return
        self.generation += 1
        self._is_past_known = True
        if not self.members:
            self.protocol = None
            self._move_to(ClassicGroupState.EMPTY)
            self._write()
            return
        self.protocol = self.members.vote()
        self._move_to(ClassicGroupState.COMPLETING)
        self._await_syncs(now_s)
        for member in self.members.all():
            member.assignment = NO_ASSIGNMENT
            member.is_new = False
            member.heard_of(now_s)
            if member.join_ticket is not None:
                is_leader = self.members.leader == member.member_id
                members = self.members.joined(self.protocol) if is_leader else ()
                self._answer_join(member, member.join_ticket, members=members)
                member.join_ticket = None
        self._write()

    def _await_syncs(self, now_s: float) -> None:
        self._unsynced = dict.fromkeys(self.members.by_id)
        self._sync_deadline_s = self.members.rebalance_ends_s(now_s)

    # What is common

    def _await_join(self, member: LiveMember, join: Join) -> None:
        """A second JoinGroup replaces the first, whose sender is gone; Kafka never answers that one."""
        self._answers.end_join(member, ErrorCode.rebalance_in_progress, member.member_id)
        member.join_ticket = join.ticket

    def _remove(self, member_id: str) -> None:
        """Drop a member. Its waiting requests get UNKNOWN_MEMBER_ID, upon which a live client joins again."""
        self._unsynced.pop(member_id, None)
        member = self.members.remove(member_id)
        if member is not None:
            self._answers.end_join(member, ErrorCode.unknown_member_id, NO_MEMBER_ID)
            self._answers.end_sync(member, ErrorCode.unknown_member_id)

    def _answer_join(
        self,
        member: LiveMember,
        ticket: Ticket,
        *,
        members: tuple[JoinedMember, ...] = (),
        leader: str | None = None,
        skip_assignment: bool = False,
    ) -> None:
        """Answer with the current generation."""
        answer = JoinAnswer(
            error_code=ErrorCode.none,
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=leader or self.members.leader or "",
            skip_assignment=skip_assignment,
            members=members,
        )
        self._answers.join(ticket, answer)

    def _move_to(self, state: ClassicGroupState) -> None:
        assert state in NEXT_STATES[self.state], f"no way from {self.state.value} to {state.value}"
        self.state = state

    def _write(self) -> None:
        self._answers.write(self.value())

    def value(self) -> ClassicGroup:
        """The current generation, as the ledger keeps it."""
        return ClassicGroup(
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.members.leader,
            members=self.members.values(),
            is_synced=self.state is not ClassicGroupState.COMPLETING,
        )

    def describe(self) -> Description:
        """The group for DescribeGroups and ListGroups."""
        return describe(self.state, self.protocol_type, self.protocol, self.members.by_id.values())
