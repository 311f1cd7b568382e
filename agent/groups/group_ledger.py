"""Groups as this agent may coordinate them: whose they are, the claims that it holds, and its entries about them.

Rule: an agent that coordinates a group holds the newest claim on it, and every entry carries that claim's epoch (safety
rule S13). What an entry did is known when it is applied; one that was refused, or of which nothing is known, ends the
claim here: whatever this agent has in memory of the group may be wrong then, and is read from the state again under the
next claim. Commits of offsets of one turn of the loop, of all groups, share entries; they never change places with
other entries of their group.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from agent.ledger.apply_loop import ApplyLoop
from agent.ledger.ledger_writer import LedgerWriter
from agent.runtime.clock import Clock
from coordinator.commands.commands import Command, Done, Outcome, Refused
from coordinator.commands.consumer_group_values import ConsumerGroupChange
from coordinator.commands.group import (
    ClaimGroups,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    GroupsClaimed,
    OffsetsCommitted,
    WriteClassicGroup,
    WriteConsumerGroup,
)
from coordinator.commands.group_values import ClassicGroup, GroupState, group_key
from coordinator.commands.transaction import CommitTransactionalOffsets, Stamp
from coordinator.ledger.port import LedgerUnavailable, OutcomeUnknown
from coordinator.state.rendezvous import owner_of
from coordinator.state.state import NO_POSITION
from protocol.errors import ErrorCode
from protocol.limits import (
    BARRIER_SECONDS_MAX,
    COORDINATORS_CACHED_MAX,
    GROUP_ID_BYTES_MAX,
    GROUP_IDS_PER_CLAIM_MAX,
    GROUP_LEDGER_SECONDS_MAX,
    OFFSET_METADATA_CHARS_PER_ENTRY_MAX,
    OFFSETS_PER_COMMIT_ENTRY_MAX,
)
from protocol.types import Offset, PartitionIndex, Position, ProducerEpoch, ProducerId, SessionId, TopicId
from txn.transaction import TransactionVersion

NO_RETENTION = -1
NO_CLAIM = (0, 0)
"""The claim of a write to a group that is not owned: claims have larger epochs, so the ledger refuses it."""


@dataclass(frozen=True, slots=True)
class NotCoordinator(Exception):
    """This agent cannot speak for the group, as the client is told: it looks for the coordinator and asks again."""

    error_code: ErrorCode
    message: str | None = None


class OffsetRow(NamedTuple):
    """One partition's offset, as a group commits it."""

    topic_id: TopicId
    partition: PartitionIndex
    offset: Offset
    leader_epoch: int = -1
    metadata: str = ""
    retention_ms: int = NO_RETENTION


class CommittingProducer(NamedTuple):
    """Who commits offsets in a transaction, as its request says."""

    transactional_id: str
    producer_id: ProducerId
    epoch: ProducerEpoch
    version: TransactionVersion
    stamp: Stamp | None


@dataclass(frozen=True, slots=True)
class _OffsetCommit:
    group_id: str
    claim_epoch: int
    rows: Sequence[OffsetRow]
    future: asyncio.Future[Sequence[ErrorCode]]
    error_codes: list[ErrorCode] = field(default_factory=list[ErrorCode])
    """The errors of the rows whose entry is applied, in their order."""


class GroupLedger:
    """Claims groups, and writes about those that this agent holds."""

    def __init__(self, *, metadata: ApplyLoop, writer: LedgerWriter, clock: Clock) -> None:
        self._metadata = metadata
        self._writer = writer
        self._clock = clock
        self._live: list[tuple[SessionId, bool]] = []
        self._live_at = NO_POSITION
        """The position as of which that holds."""
        self._owners: dict[str, SessionId | None] = {}
        self._versions: dict[str, tuple[int, int]] = {}
        """The claim's epoch of each claimed group, and the version that its next entry is made of."""
        self._versions_max = GROUP_IDS_PER_CLAIM_MAX
        self._changes: dict[str, list[asyncio.Future[Outcome]]] = {}
        """The proposed changes of each group that are not applied yet, in order."""
        self._claims: dict[str, asyncio.Future[ErrorCode]] = {}
        self._claims_wanted: list[str] = []
        self._commits: list[_OffsetCommit] = []

    def coordinator(self, group_id: str) -> SessionId | None:
        """Whose group it is, as far as this agent knows; None while no agent lives."""
        self._forget_owners_of_others()
        try:
            return self._owners[group_id]
        except KeyError:
            owner = owner_of(group_key(group_id), self._metadata.state.sessions)
            if not _is_too_long(group_id):
                self._remember_owner(group_id, owner)
            return owner

    def _forget_owners_of_others(self) -> None:
        """Sessions come, drain and go by entries alone: while the position is the same, so are they."""
        state = self._metadata.state
        if state.position == self._live_at:
            return
        self._live_at = state.position
        live = [(session_id, session.is_draining) for session_id, session in state.sessions.items()]
        if live != self._live:
            self._live, self._owners = live, {}

    def _remember_owner(self, group_id: str, owner: SessionId | None) -> None:
        if len(self._owners) >= COORDINATORS_CACHED_MAX:
            self._owners = {}
        self._owners[group_id] = owner

    def owns(self, group_id: str) -> bool:
        """Whether this agent holds the claim, and nothing says that it is over.

        An agent whose session was not confirmed for a lease's time may have been replaced: then it is not (S4).
        """
        group = self._metadata.state.groups.get(group_id)
        if group is None or group.claimed_by != self._writer.session or not self._writer.is_confirmed:
            return False
        held = self._versions.get(group_id)
        return held is not None and held[0] == group.claim_epoch and self.coordinator(group_id) == group.claimed_by

    def has_unapplied_changes(self, group_id: str) -> bool:
        """Whether changes of a group are on their way under its newest claim: the state is behind what was decided."""
        group, held = self._metadata.state.groups.get(group_id), self._versions.get(group_id)
        return group is not None and held is not None and held[0] == group.claim_epoch and held[1] > group.version

    async def claim(self, group_id: str) -> GroupState:
        """The group, claimed by this agent: at once where it is already, else by an entry.

        Raises `NotCoordinator`: NOT_COORDINATOR only where the group is another agent's, as far as this one knows.
        """
        if _is_too_long(group_id):
            raise NotCoordinator(ErrorCode.invalid_group_id)
        if not self.owns(group_id):
            error_code = await self._claim(group_id)
            if error_code is not ErrorCode.none:
                raise NotCoordinator(error_code)
            if not self.owns(group_id):
                is_mine_to_claim = self._claim_error(group_id) is ErrorCode.none
                # The claim may be there, and this agent not confirmed just now: then it is worth another try.
                raise NotCoordinator(
                    ErrorCode.coordinator_not_available if is_mine_to_claim else ErrorCode.not_coordinator
                )
        return self._metadata.state.groups[group_id]

    async def _claim(self, group_id: str) -> ErrorCode:
        error_code = self._claim_error(group_id)
        if error_code is not ErrorCode.none:
            return error_code
        claim = self._claims.get(group_id)
        if claim is None:
            claim = self._claims[group_id] = asyncio.get_running_loop().create_future()
            if not self._claims_wanted:
                asyncio.get_running_loop().call_soon(self._send_claims)
            self._claims_wanted.append(group_id)
        try:
            async with self._clock.timeout(GROUP_LEDGER_SECONDS_MAX):
                return await asyncio.shield(claim)
        except TimeoutError:
            return ErrorCode.coordinator_not_available

    def _claim_error(self, group_id: str) -> ErrorCode:
        """Why this agent cannot ask for the group."""
        if self._writer.session not in self._metadata.state.sessions:
            return ErrorCode.coordinator_not_available
        return ErrorCode.none if self.coordinator(group_id) == self._writer.session else ErrorCode.not_coordinator

    def _send_claims(self) -> None:
        wanted, self._claims_wanted = self._claims_wanted, []
        for first in range(0, len(wanted), GROUP_IDS_PER_CLAIM_MAX):
            group_ids = tuple(wanted[first : first + GROUP_IDS_PER_CLAIM_MAX])
            done = self._writer.propose(ClaimGroups(group_ids=group_ids))
            done.add_done_callback(partial(self._claimed, group_ids))

    def _claimed(self, group_ids: Sequence[str], done: asyncio.Future[Outcome]) -> None:
        outcome = _outcome(done)
        if isinstance(outcome, GroupsClaimed):
            epochs, error_codes = outcome.claim_epochs, list(map(ErrorCode, outcome.error_codes))
        else:
            assert isinstance(outcome, Refused), f"unexpected outcome of a claim: {outcome}"
            epochs, error_codes = (-1,) * len(group_ids), [ErrorCode.coordinator_not_available] * len(group_ids)
        for group_id, epoch, error_code in zip(group_ids, epochs, error_codes, strict=True):
            group = self._metadata.state.groups.get(group_id)
            if group is not None and group.claim_epoch == epoch:
                self._versions[group_id] = epoch, group.version
            self._claims.pop(group_id).set_result(error_code)
        self._forget_groups_that_are_gone()

    def _forget_groups_that_are_gone(self) -> None:
        """Forget groups that expired or that others claimed, once in so many claims that each of them costs little."""
        if len(self._versions) < self._versions_max:
            return
        groups = self._metadata.state.groups
        self._versions = {
            group_id: held
            for group_id, held in self._versions.items()
            if (group := groups.get(group_id)) is not None and group.claim_epoch == held[0]
        }
        self._versions_max = 2 * len(self._versions) + GROUP_IDS_PER_CLAIM_MAX

    def write(self, group_id: str, group: ClassicGroup) -> asyncio.Future[Outcome]:
        """Write a generation of a group that is mine.

        The future gets `Done` once it is applied, or `Refused`: then the claim is over, and the client should be told
        the error. Cancelling it changes nothing.
        """
        claim_epoch, version = self._versions.get(group_id, NO_CLAIM)
        return self._write(
            group_id,
            WriteClassicGroup(group_id=group_id, claim_epoch=claim_epoch, version=version, group=group),
        )

    def write_consumer(self, group_id: str, change: ConsumerGroupChange) -> asyncio.Future[Outcome]:
        """Like `write`, of a consumer group (KIP-848)."""
        claim_epoch, version = self._versions.get(group_id, NO_CLAIM)
        return self._write(
            group_id,
            WriteConsumerGroup(group_id=group_id, claim_epoch=claim_epoch, version=version, change=change),
        )

    def _write(self, group_id: str, command: WriteClassicGroup | WriteConsumerGroup) -> asyncio.Future[Outcome]:
        self._versions[group_id] = command.claim_epoch, command.version + 1
        answer, change = self._send(group_id, command.claim_epoch, command)
        changes = self._changes.setdefault(group_id, [])
        changes.append(change)

        def forget(done: asyncio.Future[Outcome]) -> None:
            changes.remove(done)  # not always the first: one that is refused unsent overtakes those before it
            if not changes:
                del self._changes[group_id]

        change.add_done_callback(forget)
        return answer

    def until_applied(self, group_id: str) -> asyncio.Future[ErrorCode]:
        """NONE once all changes of the group that are on their way now are applied.

        NOT_COORDINATOR where one was not: then what was said here of the group never was so. Cancelling it changes
        nothing.
        """
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def settle(done: asyncio.Future[Outcome]) -> None:
            if not future.done():
                future.set_result(ErrorCode.none if isinstance(_outcome(done), Done) else ErrorCode.not_coordinator)

        changes = self._changes.get(group_id)
        if changes is None:
            future.set_result(ErrorCode.none)
        else:
            changes[-1].add_done_callback(settle)  # each is made of what those before it leave
        return future

    def delete_offsets(
        self, group_id: str, partitions: Sequence[tuple[TopicId, PartitionIndex]]
    ) -> asyncio.Future[Outcome]:
        """Like `write`: drop committed offsets."""
        claim_epoch, _ = self._versions.get(group_id, NO_CLAIM)
        command = DeleteOffsets(group_id=group_id, claim_epoch=claim_epoch, partitions=tuple(partitions))
        return self._send(group_id, claim_epoch, command)[0]

    def delete_group(self, group_id: str) -> asyncio.Future[Outcome]:
        """Like `write`: drop the group, unless it has members; then it is NON_EMPTY_GROUP, and the claim stays."""
        claim_epoch, _ = self._versions.get(group_id, NO_CLAIM)
        return self._send(group_id, claim_epoch, DeleteGroup(group_id=group_id, claim_epoch=claim_epoch))[0]

    def _send(
        self, group_id: str, claim_epoch: int, command: Command
    ) -> tuple[asyncio.Future[Outcome], asyncio.Future[Outcome]]:
        """Submit a command behind the commits that were gathered.

        Its answer, which may be cancelled, and what the answer comes of, which may not.
        """
        self._flush()
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def settle(done: asyncio.Future[Outcome]) -> None:
            outcome = _outcome(done)
            if not _keeps_claim(command, outcome):
                self._give_up(group_id, claim_epoch)
            if not answer.done():
                answer.set_result(outcome)

        submitted = self._writer.propose(command)
        submitted.add_done_callback(settle)
        return answer, submitted

    def commit(self, group_id: str, rows: Sequence[OffsetRow]) -> asyncio.Future[Sequence[ErrorCode]]:
        """Commit offsets of a group that is mine. The future gets an error for each row once all are applied."""
        claim_epoch, _ = self._versions.get(group_id, NO_CLAIM)
        loop = asyncio.get_running_loop()
        commit = _OffsetCommit(group_id, claim_epoch, rows, loop.create_future())
        if not rows:
            commit.future.set_result(())
            return commit.future
        if not self._commits:
            loop.call_soon(self._flush)
        self._commits.append(commit)
        return commit.future

    def commit_in_transaction(
        self, group_id: str, rows: Sequence[OffsetRow], producer: CommittingProducer
    ) -> asyncio.Future[Outcome]:
        """Commit offsets of a group that is mine as part of a transaction: one entry, which keeps all of them or none.

        The future gets its outcome once that is applied, and raises `OutcomeUnknown`; cancel it to give up.
        """
        self._flush()
        claim_epoch, _ = self._versions.get(group_id, NO_CLAIM)
        topics: defaultdict[TopicId, int] = defaultdict(lambda: len(topics))
        command = CommitTransactionalOffsets(
            group_id=group_id,
            claim_epoch=claim_epoch,
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            epoch=producer.epoch,
            version=producer.version,
            stamp=producer.stamp,
            topic=[topics[row.topic_id] for row in rows],
            topic_ids=tuple(topics),
            partition=[row.partition for row in rows],
            offset=[row.offset for row in rows],
            leader_epoch=[row.leader_epoch for row in rows],
            metadata=_notes(rows),
        )
        submitted = self._writer.propose(command)

        def settle(done: asyncio.Future[Outcome]) -> None:
            if done.cancelled():
                return
            outcome = _outcome(done)
            if isinstance(outcome, Refused) and outcome.error_code is ErrorCode.not_coordinator:
                self._give_up(group_id, claim_epoch)

        submitted.add_done_callback(settle)
        return submitted

    def _flush(self) -> None:
        """Submit the commits that were gathered."""
        commits, self._commits = self._commits, []
        entry: list[tuple[_OffsetCommit, OffsetRow]] = []
        chars_count = 0
        for commit in commits:
            is_named = False
            for row in commit.rows:
                chars = len(row.metadata) + (0 if is_named else len(commit.group_id))
                is_full = len(entry) >= OFFSETS_PER_COMMIT_ENTRY_MAX
                if is_full or (entry and chars_count + chars > OFFSET_METADATA_CHARS_PER_ENTRY_MAX):
                    self._submit(entry)
                    entry, chars_count = [], 0
                    chars = len(row.metadata) + len(commit.group_id)
                entry.append((commit, row))
                chars_count += chars
                is_named = True
        if entry:
            self._submit(entry)

    def _submit(self, entry: Sequence[tuple[_OffsetCommit, OffsetRow]]) -> None:
        groups: defaultdict[tuple[str, int], int] = defaultdict(lambda: len(groups))
        topics: defaultdict[TopicId, int] = defaultdict(lambda: len(topics))
        rows = [row for _, row in entry]
        group = [groups[commit.group_id, commit.claim_epoch] for commit, _ in entry]
        topic = [topics[row.topic_id] for row in rows]
        command = CommitOffsets(
            groups=tuple(groups),
            topic_ids=tuple(topics),
            group=group,
            topic=topic,
            partition=[row.partition for row in rows],
            offset=[row.offset for row in rows],
            leader_epoch=[row.leader_epoch for row in rows],
            retention_ms=[row.retention_ms for row in rows],
            metadata=_notes(rows),
        )
        commits = [commit for commit, _ in entry]
        self._writer.propose(command).add_done_callback(partial(self._committed, commits))

    def _committed(self, commits: Sequence[_OffsetCommit], done: asyncio.Future[Outcome]) -> None:
        outcome = _outcome(done)
        if isinstance(outcome, OffsetsCommitted):
            error_codes = list(map(ErrorCode, outcome.error_codes))
        else:
            assert isinstance(outcome, Refused), f"unexpected outcome of a commit: {outcome}"
            error_codes = [outcome.error_code] * len(commits)
        for commit, error_code in zip(commits, error_codes, strict=True):
            commit.error_codes.append(error_code)
            if error_code is ErrorCode.not_coordinator:
                self._give_up(commit.group_id, commit.claim_epoch)
            if len(commit.error_codes) == len(commit.rows) and not commit.future.done():
                commit.future.set_result(commit.error_codes)

    def _give_up(self, group_id: str, claim_epoch: int) -> None:
        """The claim is over: from now on the group is not mine, until it is claimed anew."""
        held = self._versions.get(group_id)
        if held is not None and held[0] == claim_epoch:
            del self._versions[group_id]

    def confirmed(self, group_id: str, claim_epoch: int) -> asyncio.Future[ErrorCode]:
        """NONE once a barrier that begins now finds neither a newer claim on the group nor another coordinator (S4).

        Else NOT_COORDINATOR, or, also where the ledger does not answer in time, COORDINATOR_NOT_AVAILABLE. Cancelling
        it changes nothing.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ErrorCode] = loop.create_future()

        def give_up() -> None:
            if not future.done():
                future.set_result(ErrorCode.coordinator_not_available)

        timer = loop.call_later(BARRIER_SECONDS_MAX, give_up)

        def settle(done: asyncio.Future[Position]) -> None:
            timer.cancel()
            error_code = ErrorCode.coordinator_not_available if done.exception() else self._claim_error(group_id)
            group = self._metadata.state.groups.get(group_id)
            if error_code is ErrorCode.none and group is not None and group.claim_epoch != claim_epoch:
                error_code = ErrorCode.not_coordinator
            if not future.done():
                future.set_result(error_code)

        self._metadata.begin_barrier().add_done_callback(settle)
        return future

    async def check_readable(self, group_id: str) -> GroupState | None:
        """The group as the ledger has it now (safety rule S4); None where there is none, or nothing but a claim.

        Raises `NotCoordinator` where another agent coordinates it: what that one is about to write is not seen here.
        """
        try:
            await self._metadata.barrier()
        except LedgerUnavailable as error:
            raise NotCoordinator(ErrorCode.coordinator_not_available) from error
        return self.readable(group_id)

    def readable(self, group_id: str) -> GroupState | None:
        """The same behind a barrier that was taken already, as for many groups at once."""
        session = self._writer.session
        if session not in self._metadata.state.sessions:
            raise NotCoordinator(ErrorCode.coordinator_not_available)
        if self.coordinator(group_id) != session:
            raise NotCoordinator(ErrorCode.not_coordinator)
        group = self._metadata.state.groups.get(group_id)
        return None if group is None or group.is_vacant else group


def _notes(rows: Sequence[OffsetRow]) -> tuple[str, ...]:
    """Nothing where all rows have none."""
    return tuple(row.metadata for row in rows) if any(row.metadata for row in rows) else ()


def _is_too_long(group_id: str) -> bool:
    return len(group_id.encode()) > GROUP_ID_BYTES_MAX


def _keeps_claim(command: Command, outcome: Outcome) -> bool:
    """Whether this agent's copy of the group is right, and the group exists."""
    if isinstance(command, DeleteGroup):
        return isinstance(outcome, Refused) and outcome.error_code is ErrorCode.non_empty_group
    return isinstance(outcome, Done)


def _outcome(done: asyncio.Future[Outcome]) -> Outcome:
    """The outcome of a command. Where it is unknown, clients are sent to look for the coordinator."""
    if done.cancelled():
        return Refused(error_code=ErrorCode.not_coordinator, reason="the agent is stopping")
    error = done.exception()
    if error is None:
        return done.result()
    assert isinstance(error, OutcomeUnknown), f"unexpected end of a command: {error!r}"
    return Refused(error_code=ErrorCode.not_coordinator, reason=str(error))
