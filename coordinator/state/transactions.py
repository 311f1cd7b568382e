"""A transactional id in the state: `txn.transaction.TransactionMetadata`, its partitions and groups, and times.

Rule: values only; pure. Times are the state's at apply. A connection epoch identifies the connection
of a V1 client that acted last (safety rule S7). One id has a bounded number of them, however many groups it commits
for.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from coordinator.commands.transaction import ConnectionEpoch, TransactionPartition
from protocol.limits import OFFSET_COMMIT_EPOCHS_MAX
from protocol.types import Milliseconds, Position, SessionId
from txn.transaction import TransactionMetadata

NOT_STARTED = Milliseconds(-1)
FROM_THE_BEGINNING = Position(0)


class AppliedConnectionEpoch(NamedTuple):
    """The connection that acted last: when it did, through whose session, and which one of that agent's it was."""

    position: Position
    """The position of the entry by which it acted, not of the connection's beginning: a client that goes back to an old
    connection has abandoned those that it opened since."""
    session: SessionId
    serial: int

    def is_newer(self, session: SessionId, connection_epoch: ConnectionEpoch) -> bool:
        """Whether a request with that epoch from that session came on a connection that the client had before this one
        acted, or on one of unknown age: at the same position through another agent. The connections of one agent are
        ordered by their serials."""
        if session == self.session:
            return connection_epoch.serial < self.serial
        return connection_epoch.position <= self.position


class TransactionEnding(Enum):
    """How a transaction ended; the values are words for metrics."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    EXPIRED = "expired"
    """It was open for longer than its time-out."""
    FENCED = "fenced"
    """Another instance began under its transactional id."""
    TERMINATED = "terminated"
    """A tool aborted it (safety rule S15)."""


@dataclass(slots=True)
class TransactionCounts:
    """Transactions of the cluster that began and ended in the entries that this process applied."""

    begun: int = 0
    ended: dict[TransactionEnding, int] = field(default_factory=lambda: dict.fromkeys(TransactionEnding, 0))


@dataclass(slots=True, kw_only=True)
class TransactionalId:
    metadata: TransactionMetadata
    updated_ms: Milliseconds
    """The time of the last request under this id; `NO_TIME` where its entry had no time (safety rule S2)."""
    started_ms: Milliseconds = NOT_STARTED
    """When the open transaction began; -1 while none is open."""
    partitions: dict[TransactionPartition, None] = field(default_factory=dict[TransactionPartition, None])
    """The partitions of the open transaction, in the order in which they were added; empty while none is open."""
    groups: dict[str, None] = field(default_factory=dict[str, None])
    """Groups that may have pending offsets of the open transaction."""
    unplaced_runs: int = 0
    """Runs of unplaced batches of the open transaction, in all its partitions (`coordinator.state.unplaced_batches`);
    `unplaced_bytes` are their bytes."""
    unplaced_bytes: int = 0
    connection_epoch: AppliedConnectionEpoch | None = None
    """The connection on which a V1 request acted last since the producer was initialised (S7)."""
    offset_commit_epochs: dict[str, AppliedConnectionEpoch] = field(default_factory=dict[str, AppliedConnectionEpoch])
    """The same for V1's TxnOffsetCommit, by group: the newest `OFFSET_COMMIT_EPOCHS_MAX`."""
    offset_commit_epochs_from: Position = FROM_THE_BEGINNING
    """Epochs of older positions were dropped: of a group without one, every connection that began before is stale.

    A dropped epoch rejected, of other agents, what began at its position or before, and of its own agent what began
    before the connection that acted then: all of that began before its position. So nothing is let in that it would
    have rejected. What is rejected beyond that comes again on a new connection, which began after it.
    """

    def keep_offset_commit_epoch(self, group_id: str, connection_epoch: AppliedConnectionEpoch) -> None:
        """A connection acted for the group. The oldest epoch is dropped where there is one too many."""
        self.offset_commit_epochs[group_id] = connection_epoch
        if len(self.offset_commit_epochs) > OFFSET_COMMIT_EPOCHS_MAX:
            epochs = self.offset_commit_epochs
            oldest = min(epochs, key=lambda group_id: (epochs[group_id].position, group_id))
            dropped = self.offset_commit_epochs.pop(oldest)
            self.offset_commit_epochs_from = max(self.offset_commit_epochs_from, Position(dropped.position + 1))

    def is_offset_commit_stale(self, group_id: str, session: SessionId, connection_epoch: ConnectionEpoch) -> bool:
        """Whether a commit for the group came on a connection that its client had, or may have, left."""
        newest = self.offset_commit_epochs.get(group_id)
        return (
            connection_epoch.position < self.offset_commit_epochs_from
            if newest is None
            else newest.is_newer(session, connection_epoch)
        )

    def forget_connection_epochs(self) -> None:
        """A new epoch fences whatever is still on its way on older connections."""
        self.connection_epoch = None
        self.offset_commit_epochs.clear()
        self.offset_commit_epochs_from = FROM_THE_BEGINNING
