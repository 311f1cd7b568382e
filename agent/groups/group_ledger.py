"""This agent's claims on groups, and its ledger entries about them.

In: groups to claim, generations, changes, and offsets to commit. Out: futures with the outcome of each entry, once it
is applied. Every entry carries the epoch of this agent's claim on the group; apply rejects it where another agent has
claimed the group since (safety rule S13).
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from agent.groups.group_owners import GroupOwners, is_too_long
from agent.ledger.ledger_client import LedgerClient
from agent.runtime.clock import Clock
from coordinator.commands.commands import Command, Done, Outcome, Rejected
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
from coordinator.commands.group_values import ClassicGroup, GroupState
from coordinator.commands.transaction import CommitTransactionalOffsets, ConnectionEpoch, TransactionalOffsetsPending
from coordinator.configs.broker_configs import broker_value
from coordinator.ledger.port import LedgerUnavailable, OutcomeUnknown
from protocol.errors import ErrorCode
from protocol.limits import (
    BARRIER_SECONDS_MAX,
    GROUP_IDS_PER_CLAIM_MAX,
    GROUP_LEDGER_SECONDS_MAX,
    OFFSET_METADATA_CHARS_PER_ENTRY_MAX,
    OFFSETS_PER_COMMIT_ENTRY_MAX,
)
from protocol.types import Offset, PartitionIndex, Position, ProducerEpoch, ProducerId, SessionId, TopicId
from txn.transaction import TransactionVersion

NO_RETENTION = -1
NO_CONFIGS: Final[Mapping[str, str]] = {}
NO_CLAIM = (0, 0)
"""Claim epoch and version of writes to a group that this agent does not own: apply rejects them, as no claim has 0."""


@dataclass(frozen=True, slots=True)
class NotCoordinator(Exception):
    """This agent does not coordinate the group now. The client gets the error code, and asks FindCoordinator again."""

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
    """The producer that commits offsets in a transaction, by its TxnOffsetCommit request."""

    transactional_id: str
    producer_id: ProducerId
    epoch: ProducerEpoch
    version: TransactionVersion
    connection_epoch: ConnectionEpoch | None


@dataclass(slots=True)
class _OffsetCommit:
    group_id: str
    claim_epoch: int
    rows: Sequence[OffsetRow]
    future: asyncio.Future[Sequence[ErrorCode]]
    error_codes: list[ErrorCode] = field(default_factory=list[ErrorCode])
    """The errors of the rows whose entry is applied, in the rows' order."""


class GroupLedger:
    """Claims groups, and writes entries about those that this agent owns."""

    def __init__(self, *, ledger: LedgerClient, clock: Clock, broker_configs: Mapping[str, str] = NO_CONFIGS) -> None:
        self.commit_timeout_s = int(broker_value(broker_configs, "offsets.commit.timeout.ms")) / 1000
        """How long a commit of offsets waits for the ledger."""
        self.offsets_committed_count = 0
        """Offsets that were committed through this agent."""
        self._ledger = ledger
        self._clock = clock
        self._owners = GroupOwners(ledger)
        self._versions: dict[str, tuple[int, int]] = {}
        """The epoch of this agent's claim on each group, and the group's version when all its entries are applied."""
        self._versions_max = GROUP_IDS_PER_CLAIM_MAX
        self._changes: dict[str, list[asyncio.Future[Outcome]]] = {}
        """The proposed changes of each group that are not applied yet, in order."""
        self._claims: dict[str, asyncio.Future[ErrorCode]] = {}
        """The claims that are not applied yet, those that are not proposed yet included."""
        self._claims_unsent: list[str] = []
        self._commits: list[_OffsetCommit] = []
        """Commits of offsets that are not proposed yet."""

    def coordinator(self, group_id: str) -> SessionId | None:
        """The session of the group's coordinator, as far as this agent knows; None while no agent lives."""
        return self._owners.owner(group_id)

    def owns(self, group_id: str) -> bool:
        """Whether this agent has the newest claim on the group, as far as it knows."""
        group = self._ledger.state.groups.get(group_id)
        # An agent whose session was not confirmed for a lease's time may have been replaced by another one (S4).
        if group is None or group.claimed_by != self._ledger.session or not self._ledger.is_confirmed:
            return False
        claim = self._versions.get(group_id)
        return claim is not None and claim[0] == group.claim_epoch and self.coordinator(group_id) == group.claimed_by

    def has_unapplied_changes(self, group_id: str) -> bool:
        """Whether changes of the group under its newest claim are not applied yet: the state is behind this agent."""
        group, claim = self._ledger.state.groups.get(group_id), self._versions.get(group_id)
        return group is not None and claim is not None and claim[0] == group.claim_epoch and claim[1] > group.version

    async def claim(self, group_id: str) -> GroupState:
        """The group under this agent's claim: without a wait where it has one, else by an entry.

        Raises `NotCoordinator`: NOT_COORDINATOR only where another agent coordinates the group, as far as this one
        knows; COORDINATOR_NOT_AVAILABLE where the same request may succeed later.
        """
        if is_too_long(group_id):
            raise NotCoordinator(ErrorCode.invalid_group_id)
        if not self.owns(group_id):
            error_code = await self._claim(group_id)
            if error_code is not ErrorCode.none:
                raise NotCoordinator(error_code)
            if not self.owns(group_id):
                # The claim may be applied, and this agent's session not confirmed: the client should try again here.
                may_claim = self._claim_error(group_id) is ErrorCode.none
                raise NotCoordinator(ErrorCode.coordinator_not_available if may_claim else ErrorCode.not_coordinator)
        return self._ledger.state.groups[group_id]

    async def _claim(self, group_id: str) -> ErrorCode:
        error_code = self._claim_error(group_id)
        if error_code is not ErrorCode.none:
            return error_code
        claim = self._claims.get(group_id)
        if claim is None:
            claim = self._claims[group_id] = asyncio.get_running_loop().create_future()
            # In the loop's next turn: after an agent's death many groups are claimed at once, by one entry.
            if not self._claims_unsent:
                asyncio.get_running_loop().call_soon(self._send_claims)
            self._claims_unsent.append(group_id)
        try:
            async with self._clock.timeout(GROUP_LEDGER_SECONDS_MAX):
                return await asyncio.shield(claim)  # other requests wait for the same claim
        except TimeoutError:
            return ErrorCode.coordinator_not_available

    def _claim_error(self, group_id: str) -> ErrorCode:
        """NONE where this agent may claim the group, else the error for its client."""
        # The session's start is not applied: apply would reject the claim.
        if self._ledger.session not in self._ledger.state.sessions:
            return ErrorCode.coordinator_not_available
        return ErrorCode.none if self.coordinator(group_id) == self._ledger.session else ErrorCode.not_coordinator

    def _send_claims(self) -> None:
        unsent, self._claims_unsent = self._claims_unsent, []
        for first in range(0, len(unsent), GROUP_IDS_PER_CLAIM_MAX):
            group_ids = tuple(unsent[first : first + GROUP_IDS_PER_CLAIM_MAX])
            done = self._ledger.propose(ClaimGroups(group_ids=group_ids))
            done.add_done_callback(partial(self._claimed, group_ids))

    def _claimed(self, group_ids: Sequence[str], done: asyncio.Future[Outcome]) -> None:
        outcome = _outcome(done)
        if isinstance(outcome, GroupsClaimed):
            epochs, error_codes = outcome.claim_epochs, list(map(ErrorCode, outcome.error_codes))
        else:
            assert isinstance(outcome, Rejected), f"unexpected outcome of a claim: {outcome}"
            epochs, error_codes = (-1,) * len(group_ids), [ErrorCode.coordinator_not_available] * len(group_ids)
        for group_id, epoch, error_code in zip(group_ids, epochs, error_codes, strict=True):
            group = self._ledger.state.groups.get(group_id)
            # Another claim, applied before this callback runs, would make this one's epoch the older one.
            if group is not None and group.claim_epoch == epoch:
                self._versions[group_id] = epoch, group.version
            self._claims.pop(group_id).set_result(error_code)
        self._drop_lost_claims()

    def _drop_lost_claims(self) -> None:
        """Forget claims on groups that were deleted, or that other agents claimed since."""
        # Only when the number of claims has doubled: then the walk costs each claim little.
        if len(self._versions) < self._versions_max:
            return
        groups = self._ledger.state.groups
        self._versions = {
            group_id: claim
            for group_id, claim in self._versions.items()
            if (group := groups.get(group_id)) is not None and group.claim_epoch == claim[0]
        }
        self._versions_max = 2 * len(self._versions) + GROUP_IDS_PER_CLAIM_MAX

    def write(self, group_id: str, group: ClassicGroup) -> asyncio.Future[Outcome]:
        """Write a generation of a classic group.

        The future gets `Done` once the entry is applied. It gets `Rejected` with the error for the client where this
        agent does not own the group, or the entry was rejected; the claim is over then. It may be cancelled: the entry
        is proposed all the same.
        """
        claim_epoch, version = self._versions.get(group_id, NO_CLAIM)
        return self._write(
            group_id,
            WriteClassicGroup(group_id=group_id, claim_epoch=claim_epoch, version=version, group=group),
        )

    def write_consumer(self, group_id: str, change: ConsumerGroupChange) -> asyncio.Future[Outcome]:
        """Like `write`, for a change of a consumer group (KIP-848)."""
        claim_epoch, version = self._versions.get(group_id, NO_CLAIM)
        return self._write(
            group_id,
            WriteConsumerGroup(group_id=group_id, claim_epoch=claim_epoch, version=version, change=change),
        )

    def _write(self, group_id: str, command: WriteClassicGroup | WriteConsumerGroup) -> asyncio.Future[Outcome]:
        # An entry names the version that it was made of, and apply rejects it at any other one. So no change is applied
        # to a copy that differs from this agent's, and after a rejected change those behind it are rejected, too.
        self._versions[group_id] = command.claim_epoch, command.version + 1
        answer, change = self._send(group_id, command.claim_epoch, command)
        changes = self._changes.setdefault(group_id, [])
        changes.append(change)

        def forget(done: asyncio.Future[Outcome]) -> None:
            changes.remove(done)  # not always the first: one that is rejected unsent is done before those before it
            if not changes:
                del self._changes[group_id]

        change.add_done_callback(forget)
        return answer

    def until_applied(self, group_id: str) -> asyncio.Future[ErrorCode]:
        """The future gets NONE once all changes of the group that are proposed by now are applied.

        It gets NOT_COORDINATOR where one was rejected: then this agent's copy of the group was wrong, and no answer
        may follow from it. It may be cancelled.
        """
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def settle(done: asyncio.Future[Outcome]) -> None:
            if not future.done():
                future.set_result(ErrorCode.none if isinstance(_outcome(done), Done) else ErrorCode.not_coordinator)

        changes = self._changes.get(group_id)
        if changes is None:
            future.set_result(ErrorCode.none)
        else:
            changes[-1].add_done_callback(settle)  # by its version the last change is applied only after all before it
        return future

    def delete_offsets(
        self, group_id: str, partitions: Sequence[tuple[TopicId, PartitionIndex]]
    ) -> asyncio.Future[Outcome]:
        """Delete committed offsets. The future is that of `write`."""
        claim_epoch, _ = self._versions.get(group_id, NO_CLAIM)
        command = DeleteOffsets(group_id=group_id, claim_epoch=claim_epoch, partitions=tuple(partitions))
        return self._send(group_id, claim_epoch, command)[0]

    def delete_group(self, group_id: str) -> asyncio.Future[Outcome]:
        """Delete the group. The future is that of `write`; with NON_EMPTY_GROUP the claim stays."""
        claim_epoch, _ = self._versions.get(group_id, NO_CLAIM)
        return self._send(group_id, claim_epoch, DeleteGroup(group_id=group_id, claim_epoch=claim_epoch))[0]

    def _send(
        self, group_id: str, claim_epoch: int, command: Command
    ) -> tuple[asyncio.Future[Outcome], asyncio.Future[Outcome]]:
        """Propose a command. Returns a future for the caller, which may be cancelled, and the proposal's own."""
        # Commits of offsets that were accepted before go first: an entry must not overtake those of its group.
        self._flush()
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def settle(done: asyncio.Future[Outcome]) -> None:
            outcome = _outcome(done)
            # After a rejected or unknown entry this agent's copy of the group may be wrong: without the claim the next
            # request claims the group again, and reads it from the state (S13).
            if not _keeps_claim(command, outcome):
                self._drop_claim(group_id, claim_epoch)
            if not answer.done():
                answer.set_result(outcome)

        proposed = self._ledger.propose(command)
        proposed.add_done_callback(settle)
        return answer, proposed

    def commit(self, group_id: str, rows: Sequence[OffsetRow]) -> asyncio.Future[Sequence[ErrorCode]]:
        """Commit offsets of a group. The future gets an error code for each row once all of them are applied.

        Where that takes longer than `commit_timeout_s`, it gets COORDINATOR_NOT_AVAILABLE for all rows. They may still
        be applied later. It may be cancelled: the rows are proposed all the same.
        """
        claim_epoch, _ = self._versions.get(group_id, NO_CLAIM)
        loop = asyncio.get_running_loop()
        commit = _OffsetCommit(group_id, claim_epoch, rows, loop.create_future())
        if not rows:
            commit.future.set_result(())
            return commit.future
        # In the loop's next turn: commits of all groups that arrive together share an entry.
        if not self._commits:
            loop.call_soon(self._flush)
        self._commits.append(commit)
        return commit.future

    def commit_in_transaction(
        self, group_id: str, rows: Sequence[OffsetRow], producer: CommittingProducer
    ) -> asyncio.Future[Outcome]:
        """Commit offsets of a group as part of a transaction, in one entry: all of them or none.

        The future gets the entry's outcome once it is applied, or raises `OutcomeUnknown`. To give up, cancel it.
        """
        self._flush()  # as in `_send`
        claim_epoch, _ = self._versions.get(group_id, NO_CLAIM)
        topics: defaultdict[TopicId, int] = defaultdict(lambda: len(topics))
        command = CommitTransactionalOffsets(
            group_id=group_id,
            claim_epoch=claim_epoch,
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            epoch=producer.epoch,
            version=producer.version,
            connection_epoch=producer.connection_epoch,
            topic=[topics[row.topic_id] for row in rows],
            topic_ids=tuple(topics),
            partition=[row.partition for row in rows],
            offset=[row.offset for row in rows],
            leader_epoch=[row.leader_epoch for row in rows],
            metadata=_metadata_of(rows),
        )
        proposed = self._ledger.propose(command)

        def settle(done: asyncio.Future[Outcome]) -> None:
            if done.cancelled():
                return
            outcome = _outcome(done)
            if isinstance(outcome, TransactionalOffsetsPending):
                self.offsets_committed_count += outcome.error_codes.count(int(ErrorCode.none))
            # Another error is the producer's, and says nothing of the claim.
            elif isinstance(outcome, Rejected) and outcome.error_code is ErrorCode.not_coordinator:
                self._drop_claim(group_id, claim_epoch)

        proposed.add_done_callback(settle)
        return proposed

    def _flush(self) -> None:
        """Propose the commits of offsets that were accepted, in as few entries as their bounds allow."""
        commits, self._commits = self._commits, []
        entry: list[tuple[_OffsetCommit, OffsetRow]] = []
        chars_count = 0
        for commit in commits:
            is_group_in_entry = False
            for row in commit.rows:
                chars = len(row.metadata) + (0 if is_group_in_entry else len(commit.group_id))
                is_full = len(entry) >= OFFSETS_PER_COMMIT_ENTRY_MAX
                if is_full or (entry and chars_count + chars > OFFSET_METADATA_CHARS_PER_ENTRY_MAX):
                    self._propose_commits(entry)
                    entry, chars_count = [], 0
                    chars = len(row.metadata) + len(commit.group_id)
                entry.append((commit, row))
                chars_count += chars
                is_group_in_entry = True
        if entry:
            self._propose_commits(entry)

    def _propose_commits(self, entry: Sequence[tuple[_OffsetCommit, OffsetRow]]) -> None:
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
            metadata=_metadata_of(rows),
        )
        commits = [commit for commit, _ in entry]
        # One timer for all commits of the entry.
        timer = asyncio.get_running_loop().call_later(self.commit_timeout_s, _give_up, commits)
        self._ledger.propose(command).add_done_callback(partial(self._committed, commits, timer))

    def _committed(
        self, commits: Sequence[_OffsetCommit], timer: asyncio.TimerHandle, done: asyncio.Future[Outcome]
    ) -> None:
        timer.cancel()
        outcome = _outcome(done)
        if isinstance(outcome, OffsetsCommitted):
            error_codes = list(map(ErrorCode, outcome.error_codes))
            self.offsets_committed_count += error_codes.count(ErrorCode.none)
        else:
            assert isinstance(outcome, Rejected), f"unexpected outcome of a commit: {outcome}"
            error_codes = [outcome.error_code] * len(commits)
        for commit, error_code in zip(commits, error_codes, strict=True):
            commit.error_codes.append(error_code)
            if error_code is ErrorCode.not_coordinator:
                self._drop_claim(commit.group_id, commit.claim_epoch)
            if len(commit.error_codes) == len(commit.rows) and not commit.future.done():
                commit.future.set_result(commit.error_codes)

    def _drop_claim(self, group_id: str, claim_epoch: int) -> None:
        """Forget the claim of that epoch: this agent does not own the group until it claims it again."""
        claim = self._versions.get(group_id)
        if claim is not None and claim[0] == claim_epoch:  # a newer claim may be there already, and is not concerned
            del self._versions[group_id]

    def confirmed(self, group_id: str, claim_epoch: int) -> asyncio.Future[ErrorCode]:
        """Check behind a barrier that the claim is the newest, before an error that is fatal to a member (S4).

        The future gets NONE; NOT_COORDINATOR where there is a newer claim or another coordinator; or
        COORDINATOR_NOT_AVAILABLE, also where the ledger does not answer in time. It may be cancelled.
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
            group = self._ledger.state.groups.get(group_id)
            if error_code is ErrorCode.none and group is not None and group.claim_epoch != claim_epoch:
                error_code = ErrorCode.not_coordinator
            if not future.done():
                future.set_result(error_code)

        self._ledger.begin_barrier().add_done_callback(settle)
        return future

    async def check_readable(self, group_id: str) -> GroupState | None:
        """The group as the ledger has it now (safety rule S4); None where there is none, or only a claim.

        Raises `NotCoordinator` where another agent coordinates it: changes that it has accepted may not be applied.
        """
        try:
            await self._ledger.barrier()
        except LedgerUnavailable as error:
            raise NotCoordinator(ErrorCode.coordinator_not_available) from error
        return self.readable(group_id)

    def readable(self, group_id: str) -> GroupState | None:
        """`check_readable` without the barrier, which the caller has taken, such as one for many groups."""
        session = self._ledger.session
        if session not in self._ledger.state.sessions:
            raise NotCoordinator(ErrorCode.coordinator_not_available)
        if self.coordinator(group_id) != session:
            raise NotCoordinator(ErrorCode.not_coordinator)
        group = self._ledger.state.groups.get(group_id)
        return None if group is None or group.is_vacant else group


def _give_up(commits: Sequence[_OffsetCommit]) -> None:
    """Answer commits whose entry is not applied in time: it may still be applied."""
    for commit in commits:
        if not commit.future.done():
            commit.future.set_result([ErrorCode.coordinator_not_available] * len(commit.rows))


def _metadata_of(rows: Sequence[OffsetRow]) -> tuple[str, ...]:
    """The metadata of the rows; empty where no row has any, as most commits, to keep entries small."""
    return tuple(row.metadata for row in rows) if any(row.metadata for row in rows) else ()


def _keeps_claim(command: Command, outcome: Outcome) -> bool:
    """Whether this agent's copy of the group is right after the entry, and the group exists."""
    if isinstance(command, DeleteGroup):
        return isinstance(outcome, Rejected) and outcome.error_code is ErrorCode.non_empty_group
    return isinstance(outcome, Done)


def _outcome(done: asyncio.Future[Outcome]) -> Outcome:
    """The outcome of a command; NOT_COORDINATOR where it is unknown, so that clients ask FindCoordinator again."""
    if done.cancelled():
        return Rejected(error_code=ErrorCode.not_coordinator, reason="the agent is stopping")
    error = done.exception()
    if error is None:
        return done.result()
    assert isinstance(error, OutcomeUnknown), f"unexpected end of a command: {error!r}"
    return Rejected(error_code=ErrorCode.not_coordinator, reason=str(error))
