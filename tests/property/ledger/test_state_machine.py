"""Whatever is written to the ledger, every agent computes the same sound state from it, and never fails.

Entries are arbitrary commands of a few sessions, topics, objects and producers, so that they meet each other; some come
under numbers that repeat or leave a gap.
"""

import itertools
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.apply.apply import apply
from coordinator.commands.commands import (
    AllocateProducerIds,
    ApplyRetention,
    ArchivedChunk,
    ChunksCommitted,
    ClaimMaintenanceLeader,
    Command,
    CompareDigest,
    CreateTopic,
    DeleteTopic,
    EndSession,
    ExpireProducers,
    ForgetObjects,
    ForgetSessions,
    PartitionReplacement,
    Proposal,
    RaiseRules,
    ReplaceChunks,
    ReplacedChunk,
    ReportDigest,
    ReportTime,
    StartDrain,
    TableCommit,
)
from coordinator.commands.rules import RULES_CHECKED_STORAGE, RULES_NEWEST
from coordinator.invariants import check
from coordinator.ledger.port import LedgerCorrupt, LedgerRecord
from coordinator.snapshot import decode_snapshot, digest, encode_snapshot
from coordinator.state.state import ClusterState
from protocol.types import Milliseconds, ObjectNumber, Offset, PartitionIndex, Position, SessionId, TopicId
from storage.refs import ObjectKind, intake_key, parquet_key
from tests.support.commands.commands import Batch, Chunk, Cluster, commit, create, delete_before, start
from tests.support.commands.entries import decode, encode
from tests.support.commands.table_commits import commit_table, table_commit
from tests.support.strategies.admin_commands import admin_commands
from tests.support.strategies.group_commands import group_commands
from tests.support.strategies.registry_commands import registry_commands

ROOT = Path(__file__).parents[3]
TOPICS = [TopicId(bytes([number] * 16)) for number in range(1, 4)]
NAMES = ["a", "a.b", "a_b"]
UPKEEP = -1
"""In the place of the row from which a pass begins: no pass, the table alone."""

sessions = st.integers(1, 3)
times = st.none() | st.integers(0, 1_000)
topic_ids = st.sampled_from(TOPICS)
numbers = st.integers(0, 20)
plain_batches = st.builds(Batch, records=st.integers(1, 3), timestamp=st.integers(-1, 500))
producer_batches = st.builds(
    Batch,
    records=st.integers(1, 3),
    producer=st.integers(0, 2),
    epoch=st.integers(-1, 1),
    sequence=st.integers(-1, 6) | st.sampled_from([(1 << 31) - 1, (1 << 31) - 2]),
    is_transactional=st.sampled_from([False, False, False, True]),
)
chunks = st.builds(
    Chunk,
    topic_id=topic_ids,
    partition=st.integers(0, 2),
    batches=st.lists(plain_batches, min_size=1, max_size=3)
    | st.lists(plain_batches | producer_batches, min_size=1, max_size=6),
)
commits = st.builds(
    lambda number, session, parts: commit(number, *parts, session=session),
    numbers,
    sessions,
    st.lists(chunks, min_size=1, max_size=4),
)
creations: st.SearchStrategy[CreateTopic] = st.builds(
    lambda name, topic_id, partitions, configs: create(name, topic_id=topic_id, partitions=partitions, **configs),
    st.sampled_from(NAMES),
    topic_ids,
    st.integers(0, 3),
    st.fixed_dictionaries(
        {},
        optional={
            "message_timestamp_type": st.just("LogAppendTime"),
            "cleanup_policy": st.sampled_from(["delete", "compact", "compact,delete", ""]),
            "retention_ms": st.sampled_from(["-1", "0", "300", "9" * 40, "no number"]),
            "retention_bytes": st.sampled_from(["-1", "0", "250"]),
            "penstock_table_retention_ms": st.sampled_from(["-2", "-1", "0", "400"]),
        },
    ),
)
commands: st.SearchStrategy[Command] = st.one_of(
    commits,
    commits,
    commits,
    creations,
    st.builds(start, st.sampled_from(["a", "b"]), node=st.integers(1, 2), rules=st.integers(0, 2)),
    st.builds(EndSession, session=sessions.map(SessionId)),
    st.builds(StartDrain, session=sessions.map(SessionId)),
    st.builds(ClaimMaintenanceLeader, epoch=st.integers(0, 3)),
    st.just(CompareDigest(shape=bytes(8))),
    st.builds(ReportDigest, position=st.integers(0, 20), digest=st.sampled_from([None, bytes(32), b"1" * 32])),
    st.builds(RaiseRules, rules_version=st.integers(0, 3)),
    st.builds(DeleteTopic, topic_id=topic_ids),
    st.builds(AllocateProducerIds, count=st.integers(-1, 3)),
    st.builds(
        ForgetObjects,
        object_keys=st.lists(
            st.builds(lambda s, n: intake_key(SessionId(s), ObjectNumber(n)), sessions, numbers), max_size=3
        ).map(tuple),
    ),
    st.builds(ForgetSessions, sessions=st.lists(sessions.map(SessionId), max_size=2).map(tuple)),
    st.builds(ExpireProducers, cutoff_ms=st.integers(-5, 1_500).map(Milliseconds)),
    st.builds(delete_before, st.integers(0, 12), topic_id=topic_ids, partition=st.integers(0, 2)),
    st.builds(
        ApplyRetention,
        now_ms=st.integers(0, 1_500).map(Milliseconds),
        topic_ids=st.lists(topic_ids, max_size=2).map(tuple),
        retention_ms=st.integers(-1, 1_000),
        retention_bytes=st.integers(-1, 500),
        is_deleting=st.booleans(),
    ),
    group_commands,
    admin_commands,
    registry_commands,
    st.just(ReportTime()),
)


def archive_of(state: ClusterState, session: int, number: int, topic_id: TopicId, row: int) -> Command | None:
    """A pass over what the topic's first partition holds from a row on, or None if that is nothing."""
    topic = state.topics.get(topic_id)
    if topic is None or row >= len(topic.partitions[0].index):
        return None
    found = list(topic.partitions[0].index.rows_from(topic.partitions[0].index.offset_first(row)))
    first, end = found[0].offset_first, found[-1].offset_end
    middle = Offset((first + end) // 2)
    key = parquet_key(topic.name, topic_id, SessionId(session), ObjectNumber(number))
    edges = [first, middle, end] if first < middle else [first, end]
    return ReplaceChunks(
        topic_id=topic_id,
        object_session=SessionId(session),
        object_key=key,
        object_bytes=10,
        partitions=(
            PartitionReplacement(
                partition=PartitionIndex(0),
                replaced=tuple(
                    ReplacedChunk(
                        offset_first=chunk.offset_first,
                        offset_end=chunk.offset_end,
                        object_key="" if chunk.is_marker else state.objects[chunk.object_id].key,
                        byte_first=chunk.byte_first,
                    )
                    for chunk in found
                ),
                archived=tuple(
                    ArchivedChunk(
                        offset_first=one,
                        offset_end=other,
                        row_group=0,
                        row_first=one - first,
                        row_count=other - one,
                        byte_first=4,
                        byte_count=6,
                        max_timestamp=Milliseconds(3),
                    )
                    for one, other in itertools.pairwise(edges)
                ),
            ),
        ),
        table=next_of_table(state, session, number, topic_id, added=(key,)) if number % 3 else None,
    )


def next_of_table(
    state: ClusterState, session: int, number: int, topic_id: TopicId, *, added: tuple[str, ...]
) -> TableCommit:
    """A commit that lets go of files without chunks, of the metadata before, and now and then of what it came with."""
    topic = state.topics[topic_id]
    replaces, released = "", set[str]()
    if topic.table is not None:
        replaces = topic.table.metadata_key
        released = {replaces, *(state.objects[object_id].key for object_id in topic.table.unneeded)}
        if number % 2:
            kinds = {state.objects[object_id].key: state.objects[object_id].kind for object_id in topic.table.objects}
            released |= {key for key, kind in kinds.items() if kind is ObjectKind.TABLE_METADATA}
    return table_commit(
        number,
        replaces=replaces,
        data_files=added,
        released=tuple(sorted(released)),
        session=session,
        name=topic.name,
        topic_id=topic_id,
    )


def upkeep_of(state: ClusterState, session: int, number: int, topic_id: TopicId) -> Command | None:
    """A commit of the table alone, or None where there is no such topic."""
    if topic_id not in state.topics:
        return None
    return commit_table(next_of_table(state, session, number, topic_id, added=()), session=session, topic_id=topic_id)


steps = st.lists(
    st.tuples(
        sessions,
        commands | st.tuples(numbers, topic_ids, st.integers(UPKEEP, 3)),
        times,
        st.sampled_from([0, 0, 0, 0, 0, 0, 0, -1, 1]),
    ),
    max_size=40,
)


def edges(state: ClusterState) -> dict[tuple[TopicId, int], tuple[int, int, int, int]]:
    """Where every partition's log, table and index start, and where they end: none of it ever moves back."""
    return {
        (topic_id, number): (held.log_start, held.table_start, held.index.first, held.log_end)
        for topic_id, topic in state.topics.items()
        for number, held in enumerate(topic.partitions)
    }


def run(entries: Sequence[tuple[int, Command | tuple[int, TopicId, int], int | None, int]]) -> Cluster:
    """A cluster with two sessions and a topic that went through the steps, checked after each."""
    cluster = Cluster()
    cluster.do(start("a", node=1, rules=RULES_NEWEST))
    cluster.do(start("b", node=2, rules=RULES_NEWEST), session=2)
    cluster.do(create("a", topic_id=TOPICS[0], partitions=2))
    for session, step, time_ms, slip in entries:
        if not isinstance(step, tuple):
            command: Command | None = step
        elif step[2] == UPKEEP:
            command = upkeep_of(cluster.state, session, *step[:2])
        else:
            command = archive_of(cluster.state, session, *step)
        if command is None:
            continue
        number = max(0, cluster.numbers.get(session, 0) + slip)
        cluster.numbers[session] = cluster.numbers.get(session, 0) + (slip == 0)
        before = edges(cluster.state)
        outcome = cluster.put(command, session=session, number=number, time_ms=time_ms)
        after = edges(cluster.state)
        for partition in before.keys() & after.keys():
            assert all(one <= other for one, other in zip(before[partition], after[partition], strict=True))
        if isinstance(outcome, ChunksCommitted):
            for error_code, offset in zip(outcome.error_codes, outcome.base_offsets, strict=True):
                assert (offset == -1) is (error_code != 0)
    return cluster


@given(steps)
def test_a_snapshot_at_any_position_leads_to_the_same_state(
    entries: list[tuple[int, Command | tuple[int, TopicId, int], int | None, int]],
) -> None:
    cluster = run(entries)
    state = ClusterState.empty("cluster", 1)
    for record in cluster.records:
        apply(state, record)
        state = decode_snapshot(encode_snapshot(state))
        assert check(state) == []
    assert digest(state) == digest(cluster.state)


@given(steps, st.data())
def test_repeating_what_was_applied_changes_nothing_but_positions(
    entries: list[tuple[int, Command | tuple[int, TopicId, int], int | None, int]], data: st.DataObject
) -> None:
    cluster = run(entries)
    live = [record for record in cluster.records if record.session in cluster.state.sessions]
    if not live:
        return
    record = data.draw(st.sampled_from(live))
    if record.number >= cluster.state.sessions[record.session].entry_next:
        return
    before = digest(cluster.state)
    assert apply(cluster.state, record)[0] is None
    assert digest(cluster.state) == before


unchecked = commands.map(lambda command: encode(Proposal(time_ms=None, command=command), RULES_CHECKED_STORAGE))
"""Entries in whose place changed bytes may be other entries: those of today have checksums."""


@given(st.one_of(st.binary(max_size=200), unchecked), st.data())
def test_any_bytes_are_applied_or_refused_as_unreadable(payload: bytes, data: st.DataObject) -> None:
    mutated = bytearray(payload)
    for _ in range(data.draw(st.integers(0, 3))):
        if mutated:
            mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    cluster = Cluster()
    cluster.do(start())
    cluster.do(create("a", topic_id=TOPICS[0], partitions=2))
    record = LedgerRecord(position=Position(9), session=SessionId(1), number=2, payload=bytes(mutated))
    before = digest(cluster.state)
    try:
        apply(cluster.state, record)
    except LedgerCorrupt:
        assert digest(cluster.state) == before
    else:
        assert decode(bytes(mutated)) is not None
        assert check(cluster.state) == []


REPLAY = """
import sys
from coordinator.apply.apply import apply
from coordinator.ledger.port import LedgerRecord
from coordinator.snapshot import digest
from coordinator.state.state import ClusterState
state = ClusterState.empty("cluster", 1)
for line in sys.stdin:
    position, session, number, payload = line.split()
    apply(state, LedgerRecord(position=int(position), session=int(session), number=int(number),
                              payload=bytes.fromhex(payload)))
    print(digest(state).hex())
"""


@settings(max_examples=5)
@given(st.lists(steps, min_size=3, max_size=3))
def test_another_process_with_another_hash_seed_computes_the_same_digests(
    runs: list[list[tuple[int, Command | tuple[int, TopicId, int], int | None, int]]],
) -> None:
    cluster = run([entry for entries in runs for entry in entries])
    lines = "\n".join(f"{r.position} {r.session} {r.number} {r.payload.hex()}" for r in cluster.records)
    answers = {
        subprocess.run(
            [sys.executable, "-c", REPLAY],
            input=lines,
            capture_output=True,
            check=True,
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            text=True,
        ).stdout
        for seed in ("0", "4711")
    }
    assert len(answers) == 1
    (answer,) = answers
    assert answer.split()[-1] == digest(cluster.state).hex()
