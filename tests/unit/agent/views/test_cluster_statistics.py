"""The values of the cluster-wide metrics, from a state."""

from agent.runtime.clock import SystemClock
from agent.runtime.yielding import CooperativeYield
from agent.views.cluster_statistics import ClusterStatistics, TopicStatistics, cluster_statistics
from coordinator.commands.group_values import CommittedOffset, GroupState
from coordinator.state.state import ClusterState
from protocol.types import Milliseconds, Offset, PartitionIndex, SessionId, TopicId
from tests.support.agent.small_agent import TOPIC_ID, made_state
from tests.support.commands.commands import Chunk, Cluster, commit
from tests.support.commands.transaction_commands import add, begin, decided, end, transactional

AT_10 = CommittedOffset(Offset(10), 0, "", Milliseconds(0))


async def statistics_of(state: ClusterState, now_ms: int | None = None) -> ClusterStatistics:
    turns = CooperativeYield(SystemClock(), 1)
    return await cluster_statistics(state, turns, None if now_ms is None else Milliseconds(now_ms))


async def test_a_topic_is_counted_over_its_partitions() -> None:
    statistics = await statistics_of(made_state())
    assert statistics.topics == [
        TopicStatistics(
            name="orders",
            log_ends=[15, 0],
            chunks=2,
            intake_bytes=100,
            lake_bytes=400,
            unarchived_ms=Milliseconds(2_000),
            unstable_records=0,
            unstable_ms=None,
        )
    ]
    counts = (statistics.topics_count, statistics.partitions, statistics.chunks, statistics.objects)
    assert counts == (1, 2, 2, 2)
    assert (statistics.objects_pending_deletion, statistics.sessions) == (1, 1)


async def test_a_topic_lags_by_what_read_committed_does_not_show_in_its_worst_partition() -> None:
    cluster = Cluster.started()
    decided(cluster, begin())
    decided(cluster, add(0))
    cluster.do(commit(0, Chunk(batches=[transactional(0, records=2)])), time_ms=10_000)
    (topic,) = (await statistics_of(cluster.state)).topics
    assert (topic.unstable_records, topic.unstable_ms) == (2, 1_000)
    decided(cluster, end())
    (topic,) = (await statistics_of(cluster.state)).topics
    assert (topic.unstable_records, topic.unstable_ms) == (0, None)


async def test_groups_lag_in_each_of_their_topics_and_claims_alone_are_no_groups() -> None:
    state = made_state()
    deleted = TopicId(bytes(16))
    state.groups["g"] = GroupState(
        group_id="g",
        claim_epoch=1,
        claimed_by=SessionId(3),
        offsets={TOPIC_ID: {PartitionIndex(0): AT_10}, deleted: {PartitionIndex(0): AT_10}},
    )
    state.groups["claimed"] = GroupState(group_id="claimed", claim_epoch=2, claimed_by=SessionId(3))
    statistics = await statistics_of(state)
    assert statistics.groups == [("g", "classic", "Empty", 0)]
    assert statistics.lags == [("g", "orders", 5, 2_000)]


async def test_the_moment_is_the_clocks_and_never_before_the_states() -> None:
    state = made_state()
    state.time_ms = Milliseconds(500)
    assert [(await statistics_of(state, now_ms)).now_ms for now_ms in (None, 400, 600)] == [500, 500, 600]
