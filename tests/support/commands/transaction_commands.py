"""Transactions as commands: a producer `tx` on the made cluster's topic.

Rule: every helper gives one command, or applies one and says what came of it.
"""

from collections.abc import Sequence
from dataclasses import replace

from coordinator.commands.commands import Command, Outcome
from coordinator.commands.transaction import (
    AddToTransaction,
    CommitTransactionalOffsets,
    ConnectionEpoch,
    EndTransaction,
    InitTransactionalProducer,
    TransactionDecided,
)
from protocol.types import PartitionIndex, Position, ProducerEpoch, ProducerId, TopicId
from tests.support.commands.commands import TOPIC, Batch, Cluster
from txn.transaction import TransactionVersion

ID = "tx"
TIMEOUT_MS = 60_000
V1, V2 = TransactionVersion.V1, TransactionVersion.V2


def begin(
    *, transactional_id: str = ID, producer: int = -1, epoch: int = -1, timeout_ms: int = TIMEOUT_MS
) -> InitTransactionalProducer:
    return InitTransactionalProducer(
        transactional_id=transactional_id,
        timeout_ms=timeout_ms,
        producer_id=ProducerId(producer),
        epoch=ProducerEpoch(epoch),
    )


def add(
    *partitions: int,
    producer: int = 0,
    epoch: int = 0,
    groups: tuple[str, ...] = (),
    connection_epoch: tuple[int, int] | None = None,
    transactional_id: str = ID,
    topic_id: TopicId = TOPIC,
) -> AddToTransaction:
    return AddToTransaction(
        transactional_id=transactional_id,
        producer_id=ProducerId(producer),
        epoch=ProducerEpoch(epoch),
        partitions=tuple((topic_id, PartitionIndex(index)) for index in partitions),
        groups=groups,
        connection_epoch=made_connection_epoch(connection_epoch),
    )


def end(
    *,
    is_commit: bool = True,
    version: TransactionVersion = V2,
    producer: int = 0,
    epoch: int = 0,
    connection_epoch: tuple[int, int] | None = None,
    transactional_id: str = ID,
) -> EndTransaction:
    return EndTransaction(
        transactional_id=transactional_id,
        producer_id=ProducerId(producer),
        epoch=ProducerEpoch(epoch),
        version=version,
        is_commit=is_commit,
        connection_epoch=made_connection_epoch(connection_epoch),
    )


def pending(
    *values: int,
    epoch: int = 0,
    producer: int = 0,
    version: TransactionVersion = V2,
    connection_epoch: tuple[int, int] | None = None,
    metadata: Sequence[str] = (),
    group_id: str = "g",
    claim_epoch: int = 1,
) -> CommitTransactionalOffsets:
    """An offset for each partition of the topic, from the first one on."""
    return CommitTransactionalOffsets(
        group_id=group_id,
        claim_epoch=claim_epoch,
        transactional_id=ID,
        producer_id=ProducerId(producer),
        epoch=ProducerEpoch(epoch),
        version=version,
        connection_epoch=made_connection_epoch(connection_epoch),
        topic_ids=(TOPIC,),
        topic=[0] * len(values),
        partition=list(range(len(values))),
        offset=list(values),
        leader_epoch=[-1] * len(values),
        metadata=tuple(metadata),
    )


def transactional(
    sequence: int, *, records: int = 1, producer: int = 0, epoch: int = 0, version: TransactionVersion = V2
) -> Batch:
    """A batch of a transaction."""
    batch = Batch(records=records, producer=producer, epoch=epoch, sequence=sequence)
    return replace(batch, is_transactional=version)


def made_connection_epoch(values: tuple[int, int] | None) -> ConnectionEpoch | None:
    return None if values is None else ConnectionEpoch(position=Position(values[0]), serial=values[1])


def decided(cluster: Cluster, command: Command, *, session: int = 1, time_ms: int | None = None) -> TransactionDecided:
    """Apply a command and say what was decided."""
    outcome: Outcome = cluster.do(command, session=session, time_ms=time_ms)
    assert isinstance(outcome, TransactionDecided), outcome
    return outcome
