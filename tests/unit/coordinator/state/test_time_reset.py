"""A state that a wrong clock had moved ahead is set back to now, and nothing in it happened later (safety rule S21)."""

import pytest

from coordinator.commands.commands import DeleteTopic, EndSession, ExpireProducers
from coordinator.commands.group_values import CommittedOffset, GroupState
from coordinator.snapshot import decode_snapshot, digest, encode_with_digest
from coordinator.state.state import NO_TIME
from coordinator.state.time_reset import reset_time
from protocol.types import Milliseconds, Offset, PartitionIndex, ProducerId, SessionId, TopicId
from tests.support.commands.commands import TOPIC, Chunk, Cluster, commit, create, idempotent, start

NOW, AHEAD = Milliseconds(1_000_000), 31_000_000
OTHER, THIRD = TopicId(bytes([1] * 16)), TopicId(bytes([3] * 16))
PARTITION = PartitionIndex(0)


def committed(commit_ms: int) -> CommittedOffset:
    return CommittedOffset(offset=Offset(5), leader_epoch=-1, metadata="", commit_ms=Milliseconds(commit_ms))


def lived() -> Cluster:
    """A cluster whose ledger went from 900 s to 31,000 s, with something noted at either time."""
    cluster = Cluster()
    early = 900_000
    cluster.do(start("a"), session=1, time_ms=early)
    cluster.do(start("b", node=2), session=2)
    cluster.do(start("c", node=3), session=3)
    cluster.do(create(), time_ms=early)
    cluster.do(create("u", topic_id=OTHER), time_ms=early)
    cluster.do(commit(0, Chunk(topic_id=TOPIC, batches=[idempotent(0)])), time_ms=early)
    cluster.do(commit(1, Chunk(topic_id=OTHER, batches=[idempotent(0, producer=8)])), time_ms=early)
    cluster.do(DeleteTopic(topic_id=OTHER), time_ms=early)
    cluster.do(EndSession(session=SessionId(2)), time_ms=early)
    cluster.do(EndSession(session=SessionId(3)), time_ms=AHEAD)
    cluster.do(create("v", topic_id=THIRD), time_ms=AHEAD)
    cluster.do(commit(2, Chunk(topic_id=THIRD, batches=[idempotent(0, producer=9)])), time_ms=AHEAD)
    cluster.state.groups["g"] = GroupState(
        group_id="g",
        claim_epoch=1,
        claimed_by=SessionId(1),
        offsets={TOPIC: {PARTITION: committed(early), PartitionIndex(1): committed(AHEAD)}},
        pending={ProducerId(7): {TOPIC: {PARTITION: committed(AHEAD)}}},
        empty_since_ms=Milliseconds(AHEAD),
    )
    cluster.state.groups["h"] = GroupState(group_id="h", claim_epoch=2, claimed_by=SessionId(1))
    return cluster


def test_s21_nothing_in_the_state_happened_later_than_now_and_what_happened_before_stays() -> None:
    state = lived().state
    assert state.time_ms == AHEAD
    reset_time(state, NOW)
    assert state.time_ms == NOW
    assert state.sessions_ended == {SessionId(2): 900_000, SessionId(3): NOW - 1}
    assert set(state.released.values()) == {900_000}
    assert [topic.created_ms for topic in state.topics.values()] == [900_000, NOW]
    active = [
        producer.last_active_ms
        for topic in state.topics.values()
        for partition in topic.partitions
        for producer in partition.producers.values()
    ]
    assert active == [900_000, NOW]
    group = state.groups["g"]
    assert [found.commit_ms for found in group.offsets[TOPIC].values()] == [900_000, NOW]
    assert group.pending[ProducerId(7)][TOPIC][PARTITION].commit_ms == NOW
    assert group.empty_since_ms == NOW
    assert state.groups["h"].empty_since_ms is None


def test_what_waits_for_a_time_waits_on() -> None:
    state = lived().state
    state.released["intake/x"] = NO_TIME
    reset_time(state, NOW)
    assert state.released["intake/x"] == NO_TIME


def test_the_state_is_the_same_after_a_snapshot_and_expires_by_the_time_that_is_right() -> None:
    cluster = lived()
    cluster.state.groups.clear()  # they were not made by entries
    reset_time(cluster.state, NOW)
    content, _ = encode_with_digest(cluster.state)
    assert digest(decode_snapshot(content)) == digest(cluster.state)
    cluster.do(ExpireProducers(cutoff_ms=Milliseconds(900_001)), time_ms=NOW + 1)
    assert not cluster.state.topics[TOPIC].partitions[0].producers
    assert cluster.state.topics[THIRD].partitions[0].producers


def test_transactional_ids_have_to_be_forgotten_before() -> None:
    state = lived().state
    state.transactional_ids["x"] = None  # type: ignore[assignment]
    with pytest.raises(AssertionError, match="set back"):
        reset_time(state, NOW)
