"""Partitions that are added to a topic are written, read and archived as if they had been there from the start."""

from agent.fetch.sessions import RequestedPartition
from coordinator.commands.admin import CreatePartitions
from coordinator.commands.commands import Done
from coordinator.invariants import check
from coordinator.state.rendezvous import Placement
from protocol.errors import ErrorCode
from protocol.limits import MIB
from protocol.types import PartitionIndex
from tests.support.agent.data_paths import DataPaths, data_paths
from tests.support.commands.commands import TOPIC
from tests.support.records.plain_records import Record, make_batch, read_batches

GROWN = CreatePartitions(topic_id=TOPIC, partition_count=3)


def batch(value: bytes) -> bytes:
    return make_batch([Record(offset=0, timestamp=1_700_000_000_000, value=value)])


async def fetched(paths: DataPaths, partition: int) -> tuple[int, list[bytes | None]]:
    """The error code and the values of what a consumer at the beginning is given at once."""
    wanted = RequestedPartition("t", partition, 0, MIB, -1, -1)
    (read,) = await paths.fetch_path.fetch([wanted], max_wait_ms=0, bytes_min=1, bytes_max=MIB)
    records = read_batches(b"".join(bytes(part) for part in read.records)).records if read.records else []
    return read.error_code, [record.value for record in records]


async def test_they_take_records_and_give_them_from_memory_and_from_the_archive() -> None:
    async with data_paths() as paths:
        await paths.produce(batch(b"0"))
        assert await paths.parts.ledger.propose(GROWN) == Done()
        for partition in range(3):
            (told,) = await paths.produce(batch(b"%d" % partition), partition=partition)
            assert told.error_code is ErrorCode.none
            assert told.base_offset == (1 if partition == 0 else 0)
        for _ in range(2):
            assert await fetched(paths, 0) == (ErrorCode.none, [b"0", b"0"])
            assert await fetched(paths, 1) == (ErrorCode.none, [b"1"])
            assert await fetched(paths, 2) == (ErrorCode.none, [b"2"])
            await paths.archiver.archive_topic(TOPIC)
        assert check(paths.parts.ledger.state) == []


async def test_s4_a_fetch_of_one_that_this_agent_has_not_seen_yet_finds_it() -> None:
    async with data_paths() as paths:
        assert await fetched(paths, 1) == (ErrorCode.unknown_topic_or_partition, [])
        growth = paths.parts.ledger.propose(GROWN)
        assert await fetched(paths, 1) == (ErrorCode.none, [])
        assert await growth == Done()


async def test_leaders_of_the_others_stay() -> None:
    async with data_paths() as paths:
        state = paths.parts.ledger.state
        placement = Placement(state.sessions)
        before = placement.assignments(TOPIC, 1, None)
        await paths.parts.ledger.propose(GROWN)
        after = placement.assignments(TOPIC, len(state.topics[TOPIC].partitions), None)
        assert list(after[:1]) == list(before)
        assert len(after) == 3
        assert state.partition(TOPIC, PartitionIndex(2)) is not None
