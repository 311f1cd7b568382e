"""Clusters that lived, and lost their ledgers, for the tests of recovery."""

import struct
from collections.abc import Sequence
from dataclasses import replace

from crc32c import crc32c

from agent.bucket.cluster_identity import check_bucket, check_reached
from agent.ledger.bootstrap import load_state
from agent.maintenance.snapshots import Snapshots
from agent.recovery.preconditions import Permissions
from agent.recovery.recovery import recover as recover_with
from agent.recovery.report import RecoveryReport
from agent.runtime.clock import Clock
from coordinator.commands.commands import (
    ChunkColumns,
    ChunksCommitted,
)
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.ledger.port import (
    Ledger,
)
from coordinator.state.state import ClusterState
from protocol.types import ObjectNumber, PartitionIndex, SessionId, TopicId
from storage.chunk_format import ChunkParts, encode_object
from storage.memory_store import MemoryStore
from storage.object_store import ObjectStore
from storage.refs import intake_key
from tests.support.agent.ledger_parts import ManualClock, Parts, running_parts
from tests.support.commands.commands import TOPIC, Batch, Chunk, commit, create
from tests.support.records.plain_records import Record, make_batch

OTHER = TopicId(bytes([7] * 16))
DRY_RUN = Permissions(is_dry_run=True)
ACCEPTING = Permissions(is_loss_accepted=True)
FORCED = Permissions(is_forced=True)


def wiped() -> MemoryLedger:
    """A ledger that has forgotten everything, as one that agents began anew."""
    return MemoryLedger(MemoryLedgerCore(cluster_id="another"))


async def recover(
    ledger: Ledger,
    store: ObjectStore,
    permissions: Permissions | None = None,
    clock: Clock | None = None,
    *,
    unlisted: Sequence[tuple[str, str]] = (),
) -> RecoveryReport:
    return await recover_with(
        ledger,
        store,
        clock or ManualClock(),
        permissions or Permissions(),
        store_timeout_s=30.0,
        unlisted=unlisted,
    )


class TimedStore(MemoryStore):
    """Each object is a second younger than the one before."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000
        super().__init__(now_ms=self._tick)

    def _tick(self) -> int:
        self.now_ms += 1_000
        return self.now_ms


async def put_intake(
    store: ObjectStore, session: SessionId, number: int, *batches: tuple[int, int], topic_id: TopicId = TOPIC
) -> int:
    """An intake object of one chunk; a batch is (producer id or -1, base sequence). Three records each."""
    encoded = encode_object(
        session, ObjectNumber(number), [ChunkParts(topic_id=topic_id, partition=PartitionIndex(0), parts=made(batches))]
    )
    await store.put(intake_key(session, ObjectNumber(number)), encoded.parts)
    return encoded.object_bytes


def made(batches: Sequence[tuple[int, int]]) -> list[bytes]:
    records = [Record(offset=n, timestamp=1_000 + n, key=b"k", value=b"%d" % n) for n in range(3)]
    return [of_producer(make_batch(records), producer, sequence) for producer, sequence in batches]


def of_producer(batch: bytes, producer: int, sequence: int) -> bytes:
    """The batch with producer id, epoch 0 and base sequence in its header, and the checksum that this makes."""
    if producer < 0:
        return batch
    changed = bytearray(batch)
    struct.pack_into(">qhi", changed, 43, producer, 0, sequence)
    struct.pack_into(">I", changed, 17, crc32c(memoryview(changed)[21:]))
    return bytes(changed)


async def produce(parts: Parts, number: int, *batches: tuple[int, int]) -> None:
    """An intake object, put and committed."""
    session = parts.ledger.session
    object_bytes = await put_intake(parts.store, session, number, *batches)
    rows = [
        Batch(
            records=3,
            size=len(batch),
            timestamp=1_002,
            producer=producer,
            epoch=min(producer, 0),
            sequence=sequence,
        )
        for batch, (producer, sequence) in zip(made(batches), batches, strict=True)
    ]
    command = commit(number, Chunk(batches=rows), session=session)
    chunks = ChunkColumns(topic=[0], partition=[0], byte_first=[12], batch_count=[len(batches)])
    outcome = await parts.ledger.propose(replace(command, chunks=chunks, object_bytes=object_bytes))
    assert isinstance(outcome, ChunksCommitted)
    assert set(outcome.error_codes) == {0}


async def snapshot(parts: Parts) -> None:
    assert await Snapshots(
        parts.context(),
        maintenance_leader=parts.maintenance_leader,
        digests=parts.digests,
        entries_interval=1_000,
        bytes_interval=1 << 20,
    ).take()


async def lived(store: ObjectStore) -> MemoryLedger:
    """The ledger, which was wiped, of a cluster whose snapshot knows the first object of three."""
    await lived_whole(store)
    return wiped()


async def lived_whole(store: ObjectStore) -> MemoryLedger:
    """A cluster whose snapshot knows the first object of three; its agent was killed."""
    ledger = MemoryLedger(MemoryLedgerCore(cluster_id="mine"))
    await check_bucket(store, await ledger.identity())
    async with running_parts(ledger, store=store) as parts:
        await parts.ledger.propose(create())
        await produce(parts, 0, (7, 0))
        await snapshot(parts)
        await produce(parts, 1, (7, 3), (-1, -1))
        await produce(parts, 2, (7, 6))
        ledger.core.expire(parts.ledger.session)
    return ledger


async def all_keys(store: ObjectStore) -> set[str]:
    return {meta.key async for meta in store.list("")}


async def state_of(ledger: MemoryLedger, store: ObjectStore) -> ClusterState:
    await check_bucket(store, await ledger.identity(), appends_count=(await ledger.head()).appends_count)
    await check_reached(store, ledger)
    return (await load_state(ledger, store)).follower.state


def log_end(state: ClusterState, topic_id: TopicId = TOPIC) -> int:
    found = state.partition(topic_id, PartitionIndex(0))
    assert found is not None
    return found.log_end


def told(report: RecoveryReport) -> list[tuple[str, int, int, int, int]]:
    return [(t.topic, t.records, t.duplicates, t.without_sequence, t.rejected) for t in report.topics]
