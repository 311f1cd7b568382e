"""Whatever a fetch asks for, and whatever cannot be read: its answer keeps to its limits, and its consumer advances."""

import itertools
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from agent.fetch.sessions import RequestedPartition
from agent.fetch.steps import Barrier, FetchAnswer, WaitForMemory
from protocol.errors import ErrorCode
from protocol.limits import READ_PLANS_MAX
from storage.object_store import ObjectDamaged, ObjectMissing, StoreDenied, StoreError, StoreUnavailable
from tests.support.agent.planned_fetches import FetchWorld, requested_at
from tests.support.records.plain_records import read_batches

ERRORS: tuple[StoreError, ...] = (
    ObjectMissing("gone"),
    ObjectDamaged("damaged"),
    StoreDenied("denied"),
    StoreUnavailable("away"),
)
LIMITS = st.integers(1, 1_000)


@dataclass(frozen=True, slots=True)
class DrawnChunk:
    """A chunk: the sizes of its batches' values, and where it is."""

    batch_sizes: list[int]
    is_in_memory: bool
    error: StoreError | None


CHUNKS = st.builds(
    DrawnChunk,
    batch_sizes=st.lists(st.integers(0, 300), min_size=1, max_size=3),
    is_in_memory=st.booleans(),
    error=st.none(),
)
FAILING_CHUNKS = st.builds(
    DrawnChunk,
    batch_sizes=st.lists(st.integers(0, 300), min_size=1, max_size=3),
    is_in_memory=st.booleans(),
    error=st.none() | st.sampled_from(ERRORS),
)


def logs(chunks: st.SearchStrategy[DrawnChunk]) -> st.SearchStrategy[list[list[DrawnChunk]]]:
    """The chunks of each partition of a topic."""
    return st.lists(st.lists(chunks, max_size=4), min_size=1, max_size=5)


ARCHIVED = st.sampled_from([None, False, True])
"""Whether partition 0 is archived and, if so, whether what was produced is in memory; None: it is not archived."""


def world_of(partitions: list[list[DrawnChunk]], archived: bool | None) -> FetchWorld:
    world = FetchWorld(len(partitions))
    for number, drawn_chunks in enumerate(partitions):
        for drawn in drawn_chunks:
            world.append(number, *drawn.batch_sizes, is_in_memory=drawn.is_in_memory, error=drawn.error)
    if archived is not None and partitions[0]:
        world.archive(is_produced_in_memory=archived)
    return world


def batch_count(answer: FetchAnswer, number: int) -> int:
    return len(read_batches(b"".join(bytes(part) for part in answer.reads[number].records)).ranges)


@given(
    partitions=logs(FAILING_CHUNKS),
    offsets=st.lists(st.integers(0, 14), min_size=6, max_size=6),
    partition_limits=st.lists(LIMITS, min_size=6, max_size=6),
    bytes_max=LIMITS,
    bytes_min=LIMITS,
    wait_s=st.sampled_from([0.0, 1.0, 100.0]),
    budget_bytes=st.sampled_from([1, 500, 1 << 20]),
    archived=ARCHIVED,
    is_ledger_away=st.booleans(),
)
def test_an_answer_has_every_partition_once_and_keeps_to_its_limits(
    partitions: list[list[DrawnChunk]],
    offsets: list[int],
    partition_limits: list[int],
    bytes_max: int,
    bytes_min: int,
    wait_s: float,
    budget_bytes: int,
    archived: bool | None,
    *,
    is_ledger_away: bool,
) -> None:
    world = world_of(partitions, archived)
    world.budget.bytes_max, world.is_ledger_away = budget_bytes, is_ledger_away
    # One partition more than the topic has.
    requested = [requested_at(offsets[n], n, bytes_max=partition_limits[n]) for n in range(len(partitions) + 1)]
    answer = world.run(world.planner(*requested, bytes_min=bytes_min, bytes_max=bytes_max, wait_s=wait_s))
    assert [read.requested for read in answer.reads] == requested
    sizes = [read.record_bytes for read in answer.reads]
    with_records = [number for number, size in enumerate(sizes) if size]
    for number in with_records:
        is_first_batch = number == with_records[0] and batch_count(answer, number) == 1
        assert is_first_batch or (sizes[number] <= partition_limits[number] and sum(sizes) <= bytes_max)
    check_records(world, answer)
    assert world.budget.bytes_held == 0
    assert world.kinds.count(Barrier) <= 1 + READ_PLANS_MAX * len(requested)
    assert world.kinds.count(WaitForMemory) == 1


def check_records(world: FetchWorld, answer: FetchAnswer) -> None:
    """Records begin with the batch of the offset, without a gap; who gets none has an error, or is at the end."""
    steps = {int(step.key[1]): step for step in answer.fetch_steps}
    for read in answer.reads:
        if not read.records:
            assert read.requested.partition not in steps
            continue
        assert read.error_code is ErrorCode.none
        ranges = read_batches(b"".join(bytes(part) for part in read.records)).ranges
        assert ranges[0][0] <= read.requested.fetch_offset < ranges[0][1]
        assert all(end == first for (_, end), (first, _) in itertools.pairwise(ranges))
        assert read.offset_next == ranges[-1][1] == steps[read.requested.partition].offset_next <= read.high_watermark
    for unreadable in answer.unreadable:
        (read,) = [each for each in answer.reads if each.requested.partition == unreadable.partition]
        assert read.error_code in (ErrorCode.kafka_storage_error, ErrorCode.not_leader_or_follower)
        assert unreadable.key in {stored.key for stored in world.state.objects.values()}


@given(
    partitions=logs(CHUNKS),
    partition_max=LIMITS,
    bytes_max=LIMITS,
    budget_bytes=st.sampled_from([1, 1 << 20]),
    archived=ARCHIVED,
)
def test_every_fetch_advances_and_every_record_is_read(
    partitions: list[list[DrawnChunk]], partition_max: int, bytes_max: int, budget_bytes: int, archived: bool | None
) -> None:
    """As consumers with a session fetch: partitions that gave records are asked for last (KIP-74, KIP-227)."""
    world = world_of(partitions, archived)
    world.budget.bytes_max = budget_bytes
    requested = [requested_at(0, number, bytes_max=partition_max) for number in range(len(partitions))]
    ends = [partition.log_end for partition in world.topic.partitions]
    for _ in range(sum(ends)):
        answer = world.run(world.planner(*requested, bytes_max=bytes_max))
        assert {read.error_code for read in answer.reads} == {ErrorCode.none}
        assert any(read.records for read in answer.reads)
        for read in answer.reads:
            if read.records:
                read.requested.fetch_offset = read.offset_next
        requested.sort(key=lambda one: served_last(one, answer))
        if all(one.fetch_offset == ends[one.partition] for one in requested):
            return
    assert sum(ends) == 0


def served_last(requested: RequestedPartition, answer: FetchAnswer) -> bool:
    return any(read.requested is requested and read.records for read in answer.reads)
