"""Intakes that the ledger puts with the entries that commit them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agent.produce.produce_path import ProducePath
from coordinator.commands.commands import AllocateProducerIds, ProducerIdsAllocated
from protocol.errors import ErrorCode
from protocol.limits import CHEAP_OBJECT_BYTES_TARGET
from storage.memory_store import MemoryStore
from storage.object_store import StoreFull
from tests.support.agent.data_paths import DataPaths, Ticket, data_paths, group_of
from tests.support.agent.ledger_parts import until
from tests.support.ledger.joint_ledger import JointMemoryLedger
from tests.support.records.plain_records import Record, make_batch

PLAIN = make_batch([Record(offset=0, timestamp=5, value=b"first"), Record(offset=1, timestamp=6, value=b"second")])
LARGE = make_batch([Record(offset=0, timestamp=5, value=bytes(CHEAP_OBJECT_BYTES_TARGET))])


class JointPaths:
    """Paths over a ledger that takes objects, and that ledger."""

    def __init__(self, paths: DataPaths, ledger: JointMemoryLedger, path: ProducePath) -> None:
        self.paths = paths
        self.ledger = ledger
        self.path = path
        self.rejected_keys: list[str] = []

    def add(self, batch: bytes = PLAIN) -> Ticket:
        ticket = Ticket()
        self.path.add(group_of(batch, ticket))
        return ticket


@asynccontextmanager
async def joint_paths(*, is_full: bool = False) -> AsyncIterator[JointPaths]:
    memory = MemoryStore()
    ledger = JointMemoryLedger(memory)

    async def admit(key: str) -> None:
        if is_full:
            raise StoreFull(f"{key}: the disk is full")

    async with data_paths(ledger=ledger, memory=memory) as paths, asyncio.TaskGroup() as tasks:
        path = ProducePath(
            paths.parts.context(store=paths.store),
            cache=paths.cache,
            tasks=tasks,
            flush_interval_ms=5,
            is_store_cheap=True,
            admit=admit,
        )
        yield JointPaths(paths, ledger, path)


async def test_records_are_acknowledged_and_read_after_one_write() -> None:
    async with joint_paths() as joint:
        ticket = joint.add()
        assert (await ticket.settled).base_offset == 0
        ((numbers, keys),) = joint.ledger.writes
        assert len(numbers) == len(keys) == 1
        assert [meta.key async for meta in joint.paths.memory.list("intake/")] == keys
        read = await joint.paths.fetch(0)
        assert read.records


async def test_what_comes_while_a_write_is_on_its_way_is_one_intake() -> None:
    async with joint_paths() as joint:
        joint.ledger.may_write.clear()
        first = joint.add()
        await until(lambda: joint.ledger.is_writing)
        later = [joint.add() for _ in range(5)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert joint.path._joint_writes_count == 1
        joint.ledger.may_write.set()
        assert [(await ticket.settled).base_offset for ticket in (first, *later)] == [0, 2, 4, 6, 8, 10]
        assert len(joint.ledger.writes) == 2


async def test_what_came_meanwhile_goes_with_the_append_of_other_commands() -> None:
    async with joint_paths() as joint:
        joint.ledger.may_write.clear()
        first = joint.add()
        await until(lambda: joint.ledger.is_writing)
        later, other = joint.add(), joint.paths.parts.ledger.propose(AllocateProducerIds(count=1))
        joint.ledger.may_write.set()
        assert isinstance(await other, ProducerIdsAllocated)
        assert [(await ticket.settled).base_offset for ticket in (first, later)] == [0, 2]
        assert [(len(numbers), len(keys)) for numbers, keys in joint.ledger.writes] == [(1, 1), (2, 1)]


async def test_an_intake_that_is_full_does_not_wait_for_the_write_before() -> None:
    async with joint_paths() as joint:
        joint.ledger.may_write.clear()
        tickets = [joint.add(LARGE) for _ in range(3)]
        await until(lambda: joint.path._joint_writes_count == 3)
        joint.ledger.may_write.set()
        assert [(await ticket.settled).base_offset for ticket in tickets] == [0, 1, 2]


async def test_what_is_not_admitted_is_neither_put_nor_committed() -> None:
    async with joint_paths(is_full=True) as joint:
        assert (await joint.add().settled).error_code is ErrorCode.request_timed_out
        assert joint.ledger.writes == []
        await joint.path.drain()


async def test_what_finds_no_room_is_answered_as_by_a_store_that_is_full(caplog: pytest.LogCaptureFixture) -> None:
    """The leader is the right one. `agent.bucket.disk_reserve` logs the full disk, once."""
    async with joint_paths() as joint:
        joint.ledger.room_bytes = 10
        assert (await joint.add().settled).error_code is ErrorCode.request_timed_out
        assert caplog.records == []
        joint.ledger.room_bytes = 1 << 20
        assert (await joint.add().settled).base_offset == 0
        await joint.path.drain()
