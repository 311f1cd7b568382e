"""Records are deleted after a barrier, each partition is answered for itself, and what is deleted needs no entry."""

import asyncio
import struct

import pytest

from agent.ledger import entry_batches
from agent.request.services import Request
from coordinator.commands.commands import DeleteTopic
from coordinator.ledger.memory import MemoryLedger
from protocol.connection import RequestFrame
from protocol.errors import ErrorCode
from tests.support.agent.data_paths import DataPaths, data_paths, services_of
from tests.support.commands.commands import TOPIC, create
from tests.support.handlers.handler_client import handled
from tests.support.records.plain_records import Record, make_batch

BATCH = make_batch([Record(offset=n, timestamp=1_000 + n) for n in range(3)])

Row = tuple[int, int]
"""A partition and an offset."""
Answer = tuple[int, int]
"""A low watermark and an error code."""


def request(*rows: Row, topic: bytes = b"t") -> Request:
    """DeleteRecords 0 for one topic."""
    partitions = b"".join(struct.pack(">iq", *row) for row in rows)
    body = struct.pack(">ih", 1, len(topic)) + topic + struct.pack(">i", len(rows)) + partitions + struct.pack(">i", 0)
    frame = RequestFrame(
        number=0, api_key=21, api_version=0, correlation_id=5, client_id="", header_bytes=10, body=memoryview(body)
    )
    return Request(frame=frame, listener="PLAINTEXT", peer="p")


async def deleted(paths: DataPaths, *rows: Row, topic: bytes = b"t") -> dict[int, Answer]:
    """The answers by partition."""
    async with asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        answer = b"".join(bytes(part) for part in await handled(services, request(*rows, topic=topic)))
    rows_bytes = 14 * len({partition for partition, _ in rows})
    told = struct.iter_unpack(">iqh", answer[-rows_bytes:])
    return {partition: (low_watermark, error_code) for partition, low_watermark, error_code in told}


@pytest.mark.parametrize(
    ("offset", "answer"),
    [
        (0, (0, 0)),
        (2, (2, 0)),
        (6, (6, 0)),
        (-1, (6, 0)),
        (7, (-1, ErrorCode.offset_out_of_range)),
        (-2, (-1, ErrorCode.offset_out_of_range)),
    ],
)
async def test_an_offset_is_answered_with_where_the_log_starts_now(offset: int, answer: Answer) -> None:
    async with data_paths() as paths:
        await paths.produce(BATCH, BATCH)
        assert await deleted(paths, (0, offset)) == {0: answer}
        partition = paths.parts.ledger.state.topics[TOPIC].partitions[0]
        assert partition.log_start == max(answer[0], 0)


async def test_a_fetch_below_the_start_is_out_of_range_and_one_at_it_gets_the_batch_that_holds_it() -> None:
    async with data_paths() as paths:
        await paths.produce(BATCH, BATCH)
        await deleted(paths, (0, 4))
        below, at = await paths.fetch(3), await paths.fetch(4)
    assert below.error_code is ErrorCode.offset_out_of_range
    assert (at.error_code, at.log_start, at.high_watermark, at.record_bytes) == (ErrorCode.none, 4, 6, len(BATCH))


async def test_each_partition_is_answered_for_itself_and_the_last_of_two_offsets_counts() -> None:
    async with data_paths(partitions=2) as paths:
        await paths.produce(BATCH)
        answers = await deleted(paths, (0, 9), (1, 0), (0, 1), (2, 0))
        assert answers == {0: (1, 0), 1: (0, 0), 2: (-1, ErrorCode.unknown_topic_or_partition)}
        unknown = await deleted(paths, (0, 0), topic=b"gone")
        assert unknown == {0: (-1, ErrorCode.unknown_topic_or_partition)}


@pytest.mark.parametrize(
    ("policy", "error_code"), [("compact", ErrorCode.policy_violation), ("compact,delete", 0), ("delete", 0)]
)
async def test_what_is_kept_by_key_alone_is_not_deleted_by_offset(policy: str, error_code: int) -> None:
    async with data_paths() as paths:
        await paths.parts.ledger.propose(DeleteTopic(topic_id=TOPIC))
        await paths.parts.ledger.propose(create("k", cleanup_policy=policy))
        assert (await deleted(paths, (0, 0), topic=b"k"))[0][1] == error_code


async def test_what_is_below_the_start_already_needs_no_entry() -> None:
    async with data_paths() as paths:
        await paths.produce(BATCH)
        await deleted(paths, (0, 2))
        head = await paths.parts.backend.head()
        assert await deleted(paths, (0, 1)) == {0: (2, 0)}
        assert await paths.parts.backend.head() == head


async def test_s4_a_ledger_that_is_away_is_a_retriable_error() -> None:
    async with data_paths() as paths:
        ledger = paths.parts.backend
        assert isinstance(ledger, MemoryLedger)
        ledger.is_reachable = False
        away = await deleted(paths, (0, 0), (5, 0))
        ledger.is_reachable = True
        assert set(away.values()) == {(-1, ErrorCode.not_leader_or_follower)}
        assert await deleted(paths, (0, 0)) == {0: (0, 0)}


async def test_what_one_entry_cannot_hold_goes_into_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_batches, "DROPPING_PARTITIONS_PER_ENTRY_MAX", 2)
    async with data_paths(partitions=3) as paths:
        for partition in range(3):
            await paths.produce(BATCH, partition=partition)
        head = await paths.parts.backend.head()
        assert await deleted(paths, (0, 1), (1, 2), (2, 3)) == {0: (1, 0), 1: (2, 0), 2: (3, 0)}
        assert (await paths.parts.backend.head()).appends_count == head.appends_count + 2


async def test_chunks_that_one_entry_must_not_drop_all_go_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_batches, "DROPPED_CHUNKS_PER_ENTRY_MAX", 2)
    async with data_paths(partitions=2) as paths:
        await paths.produce(*[BATCH] * 5)
        await paths.produce(BATCH, partition=1)
        head = await paths.parts.backend.head()
        assert await deleted(paths, (0, 13), (1, 1)) == {0: (13, 0), 1: (1, 0)}
        assert (await paths.parts.backend.head()).appends_count == head.appends_count + 2
        first, second = paths.parts.ledger.state.topics[TOPIC].partitions
        assert (first.log_start, len(first.index), second.log_start) == (13, 1, 1)
        assert await deleted(paths, (0, -1)) == {0: (15, 0)}
        assert len(first.index) == 0
