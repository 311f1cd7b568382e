"""Arbitrary commands of a few sessions, topics, objects and producers, so that they meet each other."""

from dataclasses import replace

from hypothesis import strategies as st

from coordinator.commands.agents import DescribeAgent, RequestDrain
from coordinator.commands.commands import (
    AllocateProducerIds,
    ApplyRetention,
    ClaimMaintenanceLeader,
    Command,
    CompareDigest,
    CreateTopic,
    DeleteTopic,
    EndSession,
    ExpireProducers,
    ForgetObjects,
    ForgetSessions,
    QuotaUse,
    RaiseRules,
    ReportDigest,
    ReportTime,
    StartDrain,
)
from coordinator.commands.rules import RULES_NEWEST
from protocol.types import Milliseconds, ObjectNumber, SessionId, TopicId
from storage.refs import intake_key
from tests.support.commands.commands import Batch, Chunk, commit, create, delete_before, start
from tests.support.strategies.admin_commands import admin_commands
from tests.support.strategies.group_commands import group_commands
from tests.support.strategies.registry_commands import registry_commands
from tests.support.strategies.security_commands import security_commands
from tests.support.strategies.token_commands import token_commands

TOPICS = [TopicId(bytes([number] * 16)) for number in range(1, 4)]
NAMES = ["a", "a.b", "a_b"]
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
    lambda number, session, parts, uses: replace(commit(number, *parts, session=session), quota_uses=uses),
    numbers,
    sessions,
    st.lists(chunks, min_size=1, max_size=4),
    st.just(()) | st.tuples(st.builds(QuotaUse, key=st.integers(0, 3), byte_count=st.integers(0, 9))),
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
    st.builds(
        DescribeAgent,
        http_url=st.none() | st.just("http://a:1"),
        version=st.just("1"),
        started_ms=st.none() | st.integers(0, 9).map(Milliseconds),
    ),
    st.builds(RequestDrain, session=sessions.map(SessionId)),
    st.builds(ClaimMaintenanceLeader, epoch=st.integers(0, 3)),
    st.just(CompareDigest(shape=bytes(8))),
    st.builds(ReportDigest, position=st.integers(0, 20), digest=st.sampled_from([None, bytes(32), b"1" * 32])),
    st.builds(RaiseRules, rules_version=st.integers(0, RULES_NEWEST)),
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
    security_commands,
    token_commands,
    st.just(ReportTime()),
)
