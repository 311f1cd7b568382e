"""Reads through agents that did not write, in one process: one of them is behind until somebody asks for the head."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from agent.fetch.partition_read import PartitionRead
from agent.fetch.sessions import RequestedPartition
from agent.maintenance.garbage_collector import GarbageCollector
from agent.maintenance.snapshots import Snapshots
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.ledger.port import Head, LedgerRecord
from protocol.errors import ErrorCode
from protocol.types import Position
from storage.decorators.failing import FaultKind, InjectedFault, StoreOperation
from storage.refs import INTAKE_PREFIX, LAKE_PREFIX
from tests.support.agent.data_paths import DataPaths, another_agent, data_paths
from tests.support.commands.commands import TOPIC
from tests.support.handlers.listed_offsets import listed
from tests.support.records.plain_records import Record, make_batch, read_batches

BATCH = make_batch([Record(offset=n, timestamp=1_000 + n, value=b"x" * 50) for n in range(3)])
GRACE_MS = 60_000


class LaggingLedger(MemoryLedger):
    """While `is_in_use` a tail gives nothing: as if the watch were slow. To ask for the head ends that."""

    def __init__(self, core: MemoryLedgerCore) -> None:
        super().__init__(core)
        self._goes_on = asyncio.Event()
        self._goes_on.set()
        self.heads_count = 0

    def hold(self) -> None:
        self._goes_on.clear()

    async def tail(self, after: Position) -> AsyncGenerator[Sequence[LedgerRecord], None]:
        async for records in super().tail(after):
            await self._goes_on.wait()
            yield records

    async def head(self) -> Head:
        self.heads_count += 1
        found = await super().head()
        self._goes_on.set()
        return found


@asynccontextmanager
async def two_agents(
    *, cache_bytes: int = 1 << 20, partitions: int = 1
) -> AsyncIterator[tuple[DataPaths, DataPaths, LaggingLedger]]:
    """One that writes, another one that reads, and the latter's ledger."""
    ledgers = list[LaggingLedger]()

    def connect(core: MemoryLedgerCore) -> MemoryLedger:
        ledgers.append(LaggingLedger(core))
        return ledgers[0]

    async with (
        data_paths(partitions=partitions) as writes,
        another_agent(writes, connect=connect, cache_bytes=cache_bytes) as reads,
    ):
        yield writes, reads, ledgers[0]


async def test_s4_what_one_agent_acknowledged_no_other_calls_out_of_range_or_unknown_or_ends_before() -> None:
    async with two_agents() as (writes, reads, ledger):
        told = []
        for number in range(1, 6):
            ledger.hold()
            await writes.produce(BATCH)
            at_end = await reads.fetch(3 * number)
            told.append((at_end.error_code, at_end.high_watermark))
        ledger.hold()
        await writes.produce(BATCH)
        error_code, offset = await listed(reads)
    assert told == [(ErrorCode.none, 3 * number) for number in range(1, 6)]
    assert (error_code, offset) == (ErrorCode.none, 18)


async def test_s4_many_consumers_beyond_the_known_end_share_barriers() -> None:
    async with two_agents() as (writes, reads, ledger):
        ledger.hold()
        await writes.produce(BATCH)
        before = ledger.heads_count
        answers = await asyncio.gather(*(reads.fetch(3) for _ in range(500)))
        heads = ledger.heads_count - before
    assert {(answer.error_code, answer.high_watermark) for answer in answers} == {(ErrorCode.none, 3)}
    assert heads <= 2


async def test_a_long_poll_is_woken_by_what_another_agent_commits() -> None:
    async with two_agents() as (writes, reads, _):
        wanted = [RequestedPartition("t", 0, 0, 1 << 20, -1, -1)]
        async with asyncio.TaskGroup() as tasks:
            polling = tasks.create_task(
                reads.fetch_path.fetch(wanted, max_wait_ms=60_000, bytes_min=1, bytes_max=1 << 20)
            )
            await writes.produce(BATCH)
            (read,) = await polling
    assert records_of(read) == [0, 1, 2]


def records_of(read: PartitionRead) -> list[int]:
    assert read.error_code is ErrorCode.none
    return [record.offset for record in read_batches(b"".join(bytes(part) for part in read.records)).records]


def garbage_collector_of(paths: DataPaths) -> GarbageCollector:
    parts = paths.parts
    snapshots = Snapshots(
        parts.context(store=paths.memory),
        maintenance_leader=parts.maintenance_leader,
        digests=parts.digests,
        entries_interval=1_000,
        bytes_interval=1 << 20,
    )
    return GarbageCollector(
        parts.context(store=paths.memory),
        maintenance_leader=parts.maintenance_leader,
        snapshots=snapshots,
        grace_ms=GRACE_MS,
    )


async def archive_and_clean(paths: DataPaths, *, is_deleted: bool = True) -> None:
    """An agent's archive pass, and its garbage collector once the grace is over."""
    await paths.archiver.archive_topic(TOPIC)
    assert paths.parts.ledger.state.released
    if is_deleted:
        await paths.parts.maintenance_leader.claim()
        paths.parts.clock.seconds += 2 * GRACE_MS / 1000
        await garbage_collector_of(paths).collect()
        assert [meta async for meta in paths.memory.list(INTAKE_PREFIX)] == []


@pytest.mark.parametrize("is_behind", [True, False])
async def test_s6_an_object_that_another_agent_archived_and_deleted_meanwhile_is_read_from_the_archive(
    *, is_behind: bool
) -> None:
    """The deletion comes after the read was planned; an agent that is behind plans with what it knows, again and
    again, until a barrier tells it where the records are."""
    async with two_agents(cache_bytes=0) as (writes, reads, ledger):
        await writes.produce(BATCH, BATCH)
        await reads.parts.ledger.barrier()
        if is_behind:
            ledger.hold()
            await archive_and_clean(writes)
        else:
            reads.during_pause = lambda: archive_and_clean(writes)
            reads.store.script(
                InjectedFault(kind=FaultKind.SLOW, operation=StoreOperation.GET, key_prefix=INTAKE_PREFIX)
            )
        heads_before = ledger.heads_count
        read = await reads.fetch(0)
        barriers = ledger.heads_count - heads_before
    assert records_of(read) == list(range(6))
    assert read.high_watermark == 6
    assert barriers == 1


async def test_s6_so_is_one_that_several_wait_for_as_a_whole() -> None:
    async with two_agents(partitions=4) as (writes, reads, _):
        for _ in range(2):
            await writes.produce_together(dict.fromkeys(range(4), BATCH))
        await reads.parts.ledger.barrier()
        reads.during_pause = lambda: archive_and_clean(writes)
        reads.store.script(InjectedFault(kind=FaultKind.SLOW, operation=StoreOperation.GET, key_prefix=INTAKE_PREFIX))
        wanted = [RequestedPartition("t", partition, 0, 1 << 20, -1, -1) for partition in range(4)]
        fetches = [reads.fetch_path.fetch(wanted, max_wait_ms=0, bytes_min=1, bytes_max=1 << 20) for _ in range(5)]
        answers = await asyncio.gather(*fetches)
    assert [[records_of(read) for read in answer] for answer in answers] == [[list(range(6))] * 4] * 5


async def test_s6_an_archive_file_that_is_gone_for_good_is_a_retriable_error_and_never_an_end() -> None:
    async with two_agents(cache_bytes=0) as (writes, reads, _):
        await writes.produce(BATCH)
        await archive_and_clean(writes, is_deleted=False)
        await reads.parts.ledger.barrier()
        await writes.memory.delete([meta.key async for meta in writes.memory.list(LAKE_PREFIX)])
        read = await reads.fetch(0)
    assert (read.error_code, read.record_bytes) == (ErrorCode.not_leader_or_follower, 0)
