"""Transactional producers over `data_paths`, and consumers of both isolation levels."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crc32c import crc32c

from agent.fetch.partition_read import PartitionRead
from agent.fetch.sessions import RequestedPartition
from coordinator.commands.commands import Command
from coordinator.commands.transaction import TransactionDecided
from coordinator.state.state import PartitionState
from protocol.errors import ErrorCode
from protocol.limits import MIB
from protocol.records.batch import split_batches
from protocol.types import PartitionIndex
from storage.batcher import BatchGroup
from tests.support.agent.data_paths import DataPaths, Ticket
from tests.support.clients.committed_reader import PartitionReader
from tests.support.commands.commands import TOPIC
from tests.support.commands.transaction_commands import V1, add, begin, end
from tests.support.records.plain_records import Record, make_batch
from txn.isolation import IsolationLevel

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
TRANSACTIONAL_BIT = 1 << 4


def values_batch(values: Sequence[bytes], *, timestamp: int = 1_000) -> bytes:
    return make_batch([Record(offset=n, timestamp=timestamp + n, value=value) for n, value in enumerate(values)])


def in_transaction(batch: bytes, producer: int, epoch: int, sequence: int) -> bytes:
    """The batch as one of a producer's transaction."""
    changed = bytearray(batch)
    struct.pack_into(">h", changed, 21, struct.unpack_from(">h", changed, 21)[0] | TRANSACTIONAL_BIT)
    struct.pack_into(">qhi", changed, 43, producer, epoch, sequence)
    struct.pack_into(">I", changed, 17, crc32c(memoryview(changed)[21:]))
    return bytes(changed)


@dataclass(slots=True)
class Producer:
    """A V1 client with a transactional id of its own."""

    paths: DataPaths
    name: str
    producer_id: int = -1
    epoch: int = -1
    sequence: int = 0

    async def begin(self, *partitions: int) -> None:
        """Open a transaction with these partitions, 0 without any."""
        if self.producer_id < 0:
            given = await decided(self.paths, begin(transactional_id=self.name))
            self.producer_id, self.epoch = given.producer_id, given.epoch
        await decided(
            self.paths,
            add(*(partitions or (0,)), producer=self.producer_id, epoch=self.epoch, transactional_id=self.name),
        )

    def batch(self, *values: bytes, timestamp: int = 1_000) -> bytes:
        """The next batch of the transaction."""
        made = in_transaction(values_batch(values, timestamp=timestamp), self.producer_id, self.epoch, self.sequence)
        self.sequence += len(values)
        return made

    async def end(self, *, is_commit: bool) -> None:
        await decided(
            self.paths,
            end(
                is_commit=is_commit,
                version=V1,
                producer=self.producer_id,
                epoch=self.epoch,
                transactional_id=self.name,
            ),
        )


async def decided(paths: DataPaths, command: Command) -> TransactionDecided:
    outcome = await paths.parts.ledger.propose(command)
    assert isinstance(outcome, TransactionDecided), outcome
    assert outcome.error_code is ErrorCode.none, outcome
    return outcome


async def produce_chunk(paths: DataPaths, batches: Iterable[bytes], partition: int = 0) -> list[int]:
    """Batches of one partition in one intake object: one chunk. Their base offsets."""
    tickets = list[Ticket]()
    for batch in batches:
        view = memoryview(batch)
        tickets.append(Ticket())
        group = BatchGroup(TOPIC, PartitionIndex(partition), view, split_batches(view), tickets[-1])
        paths.produce_path.add(group)
    settled = [await ticket.settled for ticket in tickets]
    assert {each.error_code for each in settled} <= {ErrorCode.none}, settled
    return [each.base_offset for each in settled]


async def transact(producer: Producer, *values: bytes, is_commit: bool) -> None:
    """A whole transaction of one batch."""
    await producer.begin()
    await producer.paths.produce(producer.batch(*values))
    await producer.end(is_commit=is_commit)


def partition_of(paths: DataPaths, partition: int = 0) -> PartitionState:
    found = paths.parts.ledger.state.partition(TOPIC, PartitionIndex(partition))
    assert found is not None
    return found


async def fetch(
    paths: DataPaths,
    offset: int,
    isolation: IsolationLevel = COMMITTED,
    *,
    bytes_max: int = MIB,
    max_wait_ms: int = 0,
    partition: int = 0,
) -> PartitionRead:
    wanted = RequestedPartition("t", partition, offset, bytes_max, -1, -1)
    (read,) = await paths.fetch_path.fetch(
        [wanted], max_wait_ms=max_wait_ms, bytes_min=1, bytes_max=MIB, isolation=isolation
    )
    return read


async def read_all(
    paths: DataPaths, offset: int, isolation: IsolationLevel = COMMITTED, *, bytes_max: int = MIB
) -> PartitionReader:
    """A consumer from `offset` on, until it is given nothing more."""
    reader = PartitionReader(offset, is_committed=isolation is COMMITTED)
    while True:
        read = await fetch(paths, reader.position, isolation, bytes_max=bytes_max)
        assert read.error_code is ErrorCode.none, read
        if not read.records:
            return reader
        aborted = [(each.producer_id, each.offset_first) for each in read.aborted]
        reader.take(b"".join(bytes(part) for part in read.records), aborted)


def values_of(reader: PartitionReader) -> list[bytes | None]:
    return [record.value for record in reader.records]
