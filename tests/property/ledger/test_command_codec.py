"""Whatever `encode` accepts is read back equal; whatever no agent could read is refused before it is written.

Values are drawn around every bound, also far outside: a proposer's bug must not reach the ledger.
"""

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from coordinator.codec.codec import Unwritable
from coordinator.commands.agents import DescribeAgent, RequestDrain
from coordinator.commands.commands import (
    AdvanceLogStart,
    AllocateProducerIds,
    ApplyRetention,
    ArchivedChunk,
    BatchColumns,
    ChunkColumns,
    ClaimMaintenanceLeader,
    Command,
    CommitChunks,
    CommitTable,
    CompareDigest,
    CreateTopic,
    DeleteTopic,
    Endpoint,
    EndSession,
    ExpireProducers,
    ForgetObjects,
    ForgetSessions,
    NewObject,
    PartitionReplacement,
    Proposal,
    RaiseRules,
    ReplaceChunks,
    ReplacedChunk,
    ReportDigest,
    ReportTime,
    StartDrain,
    StartSession,
    TableCommit,
)
from protocol.types import Milliseconds, ObjectNumber, Offset, PartitionIndex, SessionId, TopicId
from tests.support.commands.entries import decode, encode

EDGES = [edge + step for edge in (0, 1 << 8, 1 << 15, 1 << 16, 1 << 31, 1 << 32, 1 << 63) for step in (-1, 0, 1)]
ints = st.sampled_from([*EDGES, *(-edge for edge in EDGES)]) | st.integers(-2, 300)
texts = st.text(max_size=5) | st.sampled_from(["\ud800", "x" * 2_000])
uuids = st.binary(min_size=16, max_size=16) | st.binary(max_size=17)
small = st.integers(0, 3)


@st.composite
def commits(draw: st.DrawFn) -> CommitChunks:
    """Sound ones and nearly sound ones: one value at most is drawn from everywhere."""
    count = draw(st.integers(0, 4))

    def column(values: st.SearchStrategy[int]) -> list[int]:
        return draw(st.lists(values, min_size=count, max_size=count))

    chunks = {
        "topic": column(st.integers(0, 1)),
        "partition": column(small),
        "byte_first": column(small),
        "batch_count": [1] * count,
    }
    batches = {
        "record_bytes": column(st.integers(1, 90)),
        "record_count": column(st.integers(1, 3)),
        "max_timestamp": column(ints.filter(lambda value: -(1 << 63) <= value < 1 << 63)),
        "producer_id": column(st.integers(-1, 5)),
        "producer_epoch": column(st.integers(-1, 5)),
        "base_sequence": column(st.integers(-1, 5)),
        "is_transactional": column(st.integers(0, 1)),
    }
    if count and draw(st.booleans()):
        table = draw(st.sampled_from([chunks, batches]))
        name = draw(st.sampled_from(sorted(table)))
        if draw(st.booleans()):
            table[name][draw(st.integers(0, count - 1))] = draw(ints)
        else:
            table[name].append(1)
    return CommitChunks(
        object_session=SessionId(draw(small | ints)),
        object_number=ObjectNumber(draw(small)),
        object_bytes=draw(st.sampled_from([100, 90, 0, -1])),
        topic_ids=tuple(map(TopicId, draw(st.lists(uuids, min_size=1, max_size=3)))),
        chunks=ChunkColumns(**chunks),
        batches=BatchColumns(**batches),
        batch_crcs=draw(st.sampled_from([b"", bytes(range(4 * count)), b"crc"])),
    )


replacements = st.builds(
    PartitionReplacement,
    partition=ints.map(PartitionIndex),
    replaced=st.lists(
        st.builds(
            ReplacedChunk,
            offset_first=ints.map(Offset),
            offset_end=small.map(Offset),
            object_key=texts,
            byte_first=small,
        ),
        max_size=2,
    ).map(tuple),
    archived=st.lists(
        st.builds(
            ArchivedChunk,
            offset_first=small.map(Offset),
            offset_end=small.map(Offset),
            row_group=ints,
            row_first=small,
            row_count=small,
            byte_first=small,
            byte_count=ints,
            max_timestamp=ints.map(Milliseconds),
        ),
        max_size=2,
    ).map(tuple),
)
new_objects = st.builds(NewObject, key=texts, object_bytes=ints)
table_commits = st.builds(
    TableCommit,
    replaces=texts,
    metadata=new_objects,
    added=st.lists(new_objects, max_size=2).map(tuple),
    data_files=st.lists(texts, max_size=2).map(tuple),
    released=st.lists(texts, max_size=2).map(tuple),
)
commands: st.SearchStrategy[Command] = st.one_of(
    commits(),
    commits(),
    st.builds(
        StartSession,
        name=texts,
        node_id=ints,
        endpoints=st.lists(st.builds(Endpoint, listener=texts, host=texts, port=ints), max_size=2).map(tuple),
        zone=st.none() | texts,
        rules_version=ints,
    ),
    st.builds(EndSession, session=ints.map(SessionId)),
    st.builds(StartDrain, session=ints.map(SessionId)),
    st.builds(DescribeAgent, http_url=st.none() | texts, version=texts, started_ms=st.none() | ints.map(Milliseconds)),
    st.builds(RequestDrain, session=ints.map(SessionId)),
    st.builds(ClaimMaintenanceLeader, epoch=ints),
    st.builds(CompareDigest, shape=st.binary(min_size=7, max_size=9)),
    st.builds(ReportDigest, position=ints, digest=st.none() | st.binary(min_size=31, max_size=33)),
    st.builds(RaiseRules, rules_version=ints),
    st.builds(
        CreateTopic,
        name=texts,
        topic_id=uuids.map(TopicId),
        partition_count=ints,
        configs=st.lists(st.tuples(texts, texts), max_size=2).map(tuple),
    ),
    st.builds(DeleteTopic, topic_id=uuids.map(TopicId)),
    st.builds(AllocateProducerIds, count=ints),
    st.builds(
        ReplaceChunks,
        topic_id=uuids.map(TopicId),
        object_session=ints.map(SessionId),
        object_key=texts,
        object_bytes=ints,
        partitions=st.lists(replacements, max_size=2).map(tuple),
        table=st.none() | table_commits,
    ),
    st.builds(CommitTable, topic_id=uuids.map(TopicId), object_session=ints.map(SessionId), table=table_commits),
    st.builds(ForgetObjects, object_keys=st.lists(texts, max_size=3).map(tuple)),
    st.builds(ForgetSessions, sessions=st.lists(ints.map(SessionId), max_size=3).map(tuple)),
    st.builds(ExpireProducers, cutoff_ms=ints.map(Milliseconds)),
    st.builds(
        lambda topics, rows: AdvanceLogStart(
            topic_ids=tuple(topics),
            topic=[topic for topic, _, _ in rows],
            partition=[partition for _, partition, _ in rows],
            log_start=[log_start for _, _, log_start in rows],
        ),
        st.lists(uuids.map(TopicId), max_size=2),
        st.lists(st.tuples(st.integers(0, 1), small | ints, small | ints), max_size=3),
    ),
    st.builds(
        lambda rows, is_in_part, **values: ApplyRetention(
            topic_ids=tuple(topic for topic, _ in rows),
            partitions=tuple(partitions for _, partitions in rows) if is_in_part else (),
            **values,
        ),
        st.lists(st.tuples(uuids.map(TopicId), st.tuples(ints, ints)), max_size=2),
        st.booleans(),
        now_ms=ints.map(Milliseconds),
        retention_ms=ints,
        retention_bytes=ints,
        is_deleting=st.booleans(),
        chunks_max=ints,
    ),
    st.just(ReportTime()),
)


def _plain(command: Command) -> object:
    """The command with columns as lists: they are written from lists and read as arrays."""
    if isinstance(command, Struct):
        return command
    fields = asdict(command)
    for table in ("chunks", "batches"):
        if table in fields:
            fields[table] = {name: list(column) for name, column in fields[table].items()}
    return type(command), fields


@given(st.none() | ints.map(Milliseconds), commands)
def test_whatever_is_written_is_read_back_equal(time_ms: Milliseconds | None, command: Command) -> None:
    try:
        entry = encode(Proposal(time_ms=time_ms, command=command))
    except Unwritable:
        return
    proposal = decode(entry)
    assert proposal.time_ms == time_ms
    assert _plain(proposal.command) == _plain(command)


@given(commits())
def test_a_commit_that_points_outside_its_object_is_not_written(command: CommitChunks) -> None:
    ends = [
        first + count for first, count in zip(command.chunks.byte_first, command.batches.record_bytes, strict=False)
    ]
    if not ends or max(ends) > command.object_bytes:
        with pytest.raises(Unwritable):
            encode(Proposal(time_ms=None, command=command))
