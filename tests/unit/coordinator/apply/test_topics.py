"""Topics come and go, and the idle producers in them."""

import pytest
from msgspec.structs import replace

from coordinator.apply import topics as apply_topics
from coordinator.commands.admin import AssignReplicas, CreatePartitions
from coordinator.commands.commands import (
    AllocateProducerIds,
    ChunksCommitted,
    Command,
    CreateTopic,
    DeleteTopic,
    Done,
    ExpireProducers,
    Outcome,
    Rejected,
    ReportTime,
)
from protocol.errors import ErrorCode
from protocol.limits import REPLICAS_ASSIGNED_MAX
from protocol.types import Milliseconds, PartitionIndex, ProducerId, TopicId
from tests.support.commands.commands import TOPIC, Batch, Chunk, Cluster, commit, create, idempotent, start

OTHER = TopicId(bytes([1] * 16))


def assigned(*replicas: tuple[int, tuple[int, ...]]) -> AssignReplicas:
    return AssignReplicas(topic_id=TOPIC, replicas=tuple((PartitionIndex(index), nodes) for index, nodes in replicas))


def rejection(outcome: Outcome) -> ErrorCode:
    assert isinstance(outcome, Rejected)
    return outcome.error_code


def test_it_is_known_since_when_topics_are_what_they_are() -> None:
    cluster = Cluster.started()
    changes: list[Command] = [
        create("u", topic_id=OTHER),
        CreatePartitions(topic_id=TOPIC, partition_count=3),
        DeleteTopic(topic_id=TOPIC),
    ]
    for command in changes:
        cluster.do(ReportTime())
        before = cluster.state.topics_at
        assert before < cluster.state.position
        assert cluster.do(command) == Done()
        assert before < cluster.state.topics_at == cluster.state.position
        assert isinstance(cluster.do(command), Rejected)
        assert cluster.state.topics_at < cluster.state.position


class TestReplicasByHand:
    def test_a_topic_keeps_those_that_it_was_created_with(self) -> None:
        cluster = Cluster.started()
        assert cluster.do(replace(create("u", topic_id=OTHER, partitions=2), replicas=((2, 1), (1,)))) == Done()
        assert cluster.state.topics[OTHER].replicas == {0: (2, 1), 1: (1,)}
        assert cluster.state.topics[TOPIC].replicas == {}

    def test_partitions_that_are_added_keep_theirs(self) -> None:
        cluster = Cluster.started()
        assert cluster.do(CreatePartitions(topic_id=TOPIC, partition_count=3, replicas=((2,), (3, 1)))) == Done()
        assert cluster.do(CreatePartitions(topic_id=TOPIC, partition_count=4)) == Done()
        assert cluster.state.topics[TOPIC].replicas == {1: (2,), 2: (3, 1)}

    def test_they_are_assigned_anew_in_order_of_partitions(self) -> None:
        cluster = Cluster.started()
        cluster.do(CreatePartitions(topic_id=TOPIC, partition_count=3, replicas=((2,), (3, 1))))
        assert cluster.do(assigned((2, (1,)), (0, (3, 2)))) == Done()
        assert list(cluster.state.topics[TOPIC].replicas.items()) == [(0, (3, 2)), (1, (2,)), (2, (1,))]

    @pytest.mark.parametrize("replicas", [((1,),), ((1,), (2,), (3,)), ((1,), ()), ((1,), (2, 2))])
    def test_what_no_partition_can_have_is_refused(self, replicas: tuple[tuple[int, ...], ...]) -> None:
        cluster = Cluster.started()
        grown = CreatePartitions(topic_id=TOPIC, partition_count=3, replicas=replicas)
        created = replace(create("u", topic_id=OTHER, partitions=2), replicas=replicas)
        for command in (grown, created):
            assert rejection(cluster.do(command)) is ErrorCode.invalid_replica_assignment
        assert (len(cluster.state.topics), cluster.state.partitions_count) == (1, 1)

    def test_nothing_is_assigned_where_one_of_all_cannot_be(self) -> None:
        cluster = Cluster.started()
        too_many = tuple(range(REPLICAS_ASSIGNED_MAX + 1))
        assert rejection(cluster.do(assigned((0, (1,)), (0, too_many)))) is ErrorCode.invalid_replica_assignment
        assert rejection(cluster.do(assigned((0, (1,)), (1, (1,))))) is ErrorCode.unknown_topic_or_partition
        cluster.do(DeleteTopic(topic_id=TOPIC))
        assert rejection(cluster.do(assigned((0, (1,))))) is ErrorCode.unknown_topic_id

    def test_none_are_assigned_by_an_alteration_that_is_refused(self) -> None:
        cluster = Cluster.started()
        cluster.do(assigned((0, (1,)), (1, (1,))))
        assert cluster.state.topics[TOPIC].replicas == {}


class TestGrowth:
    def test_a_topic_has_its_new_partitions_behind_the_others(self) -> None:
        cluster = Cluster.started()
        cluster.produce(0, Batch(records=3))
        assert cluster.do(CreatePartitions(topic_id=TOPIC, partition_count=3)) == Done()
        assert [partition.log_end for partition in cluster.state.topics[TOPIC].partitions] == [3, 0, 0]
        assert cluster.state.partitions_count == 3

    def test_the_new_ones_take_records(self) -> None:
        cluster = Cluster.started()
        cluster.do(CreatePartitions(topic_id=TOPIC, partition_count=2))
        outcome = cluster.do(commit(0, Chunk(partition=1, batches=[Batch(records=2)])))
        assert isinstance(outcome, ChunksCommitted)
        assert list(outcome.error_codes) == [0]

    @pytest.mark.parametrize("partition_count", [2, 1, 0, -1, 10_001])
    def test_a_number_that_is_no_growth_is_refused(self, partition_count: int) -> None:
        cluster = Cluster.started()
        cluster.do(CreatePartitions(topic_id=TOPIC, partition_count=2))
        grown = CreatePartitions(topic_id=TOPIC, partition_count=partition_count)
        assert rejection(cluster.do(grown)) is ErrorCode.invalid_partitions
        assert len(cluster.state.topics[TOPIC].partitions) == 2

    def test_a_topic_that_is_gone_is_refused(self) -> None:
        cluster = Cluster.started()
        assert rejection(cluster.do(CreatePartitions(topic_id=OTHER, partition_count=2))) is ErrorCode.unknown_topic_id

    def test_the_cluster_has_a_limit_of_partitions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(apply_topics, "PARTITIONS_MAX", 3)
        cluster = Cluster.started()
        four = CreatePartitions(topic_id=TOPIC, partition_count=4)
        assert rejection(cluster.do(four)) is ErrorCode.policy_violation
        assert cluster.do(CreatePartitions(topic_id=TOPIC, partition_count=3)) == Done()

    def test_s8_a_producer_goes_on_in_a_partition_that_a_deleted_topic_had(self) -> None:
        cluster = Cluster.started()
        cluster.do(AllocateProducerIds(count=10))
        cluster.do(CreatePartitions(topic_id=TOPIC, partition_count=2))
        before = cluster.do(commit(0, Chunk(partition=1, batches=[idempotent(5)])))
        assert isinstance(before, ChunksCommitted)
        assert list(before.error_codes) == [ErrorCode.out_of_order_sequence_number]
        cluster.do(DeleteTopic(topic_id=TOPIC))
        cluster.do(create(topic_id=OTHER))
        cluster.do(CreatePartitions(topic_id=OTHER, partition_count=2))
        after = cluster.do(commit(1, Chunk(topic_id=OTHER, partition=1, batches=[idempotent(5)])))
        assert isinstance(after, ChunksCommitted)
        assert list(after.error_codes) == [0]


class TestCreation:
    def test_a_topic_has_its_partitions_configs_and_time(self) -> None:
        cluster = Cluster()
        cluster.do(start(), time_ms=40)
        assert cluster.do(create(partitions=3, retention_ms="5", cleanup_policy="compact")) == Done()
        topic = cluster.state.topics[TOPIC]
        assert (topic.name, len(topic.partitions), topic.created_ms) == ("t", 3, 40)
        assert list(topic.configs.items()) == [("cleanup.policy", "compact"), ("retention.ms", "5")]
        assert cluster.state.topic_ids == {"t": TOPIC}
        assert cluster.state.partitions_count == 3

    @pytest.mark.parametrize(
        ("command", "error_code"),
        [
            (create("t", topic_id=OTHER), ErrorCode.topic_already_exists),
            (create("a b", topic_id=OTHER), ErrorCode.invalid_topic_exception),
            (create("a.b_c", topic_id=OTHER), ErrorCode.invalid_topic_exception),
            (create("u"), ErrorCode.invalid_request),
            (create("u", topic_id=TopicId(bytes(16))), ErrorCode.invalid_request),
            (create("u", topic_id=OTHER, partitions=0), ErrorCode.invalid_partitions),
            (create("u", topic_id=OTHER, partitions=-1), ErrorCode.invalid_partitions),
            (create("u", topic_id=OTHER, partitions=10_001), ErrorCode.invalid_partitions),
        ],
    )
    def test_a_topic_that_cannot_be_is_refused(self, command: CreateTopic, error_code: ErrorCode) -> None:
        cluster = Cluster.started()
        cluster.do(create("a_b.c", topic_id=TopicId(bytes([2] * 16))))
        assert rejection(cluster.do(command)) is error_code
        assert len(cluster.state.topics) == 2

    def test_the_cluster_has_a_limit_of_partitions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(apply_topics, "PARTITIONS_MAX", 3)
        cluster = Cluster.started()
        assert rejection(cluster.do(create("u", topic_id=OTHER, partitions=3))) is ErrorCode.policy_violation
        assert cluster.do(create("u", topic_id=OTHER, partitions=2)) == Done()


class TestDeletion:
    def test_a_deleted_topic_releases_its_objects(self) -> None:
        cluster = Cluster.started()
        cluster.produce(4, Batch())
        assert cluster.do(DeleteTopic(topic_id=TOPIC), time_ms=60) == Done()
        state = cluster.state
        assert (state.topics, state.topic_ids, state.objects, state.partitions_count) == ({}, {}, {}, 0)
        assert state.released == {"intake/0000000000000001/0000000000000004": 60}

    def test_a_topic_that_is_not_there_cannot_be_deleted(self) -> None:
        assert rejection(Cluster.started().do(DeleteTopic(topic_id=OTHER))) is ErrorCode.unknown_topic_id

    def test_a_name_is_free_again(self) -> None:
        cluster = Cluster.started()
        cluster.do(DeleteTopic(topic_id=TOPIC))
        assert cluster.do(create(topic_id=OTHER)) == Done()

    def test_s8_a_producer_goes_on_in_a_topic_that_was_created_again(self) -> None:
        cluster = Cluster.started()
        cluster.do(AllocateProducerIds(count=10))
        cluster.produce(0, idempotent(0, producer=7))
        cluster.do(DeleteTopic(topic_id=TOPIC))
        cluster.do(AllocateProducerIds(count=10))
        cluster.do(create())
        assert cluster.produce(1, idempotent(1, producer=7)).error_codes == [0]
        assert cluster.produce(2, idempotent(1, producer=10)).error_codes == [45]


class TestExpiry:
    def expire(self, *, cutoff_ms: int, now_ms: int) -> Cluster:
        cluster = Cluster.started()
        cluster.do(AllocateProducerIds(count=10))
        cluster.do(commit(0, Chunk(batches=[idempotent(0)])), time_ms=1 if now_ms else None)
        cluster.do(ReportTime(), time_ms=now_ms)
        assert cluster.do(ExpireProducers(cutoff_ms=Milliseconds(cutoff_ms))) == Done()
        return cluster

    def test_s8_a_producer_whose_state_was_dropped_goes_on(self) -> None:
        cluster = self.expire(cutoff_ms=2, now_ms=100)
        assert cluster.partition.producers == {}
        assert cluster.produce(1, idempotent(1)).error_codes == [0]

    def test_an_active_producer_stays(self) -> None:
        cluster = self.expire(cutoff_ms=1, now_ms=100)
        assert list(cluster.partition.producers) == [7]
        assert cluster.partition.unknown_producers_below == 0

    def test_s2_a_cutoff_ahead_of_the_state_counts_as_the_states_time(self) -> None:
        cluster = self.expire(cutoff_ms=1 << 60, now_ms=0)
        assert list(cluster.partition.producers) == [7]

    def test_s2_one_that_was_active_while_nobody_told_the_time_is_as_old_as_the_expiry(self) -> None:
        cluster = Cluster.started()
        cluster.do(ReportTime(), time_ms=10)
        cluster.produce(0, idempotent(0))
        cluster.do(ExpireProducers(cutoff_ms=Milliseconds(50)), time_ms=60)
        assert cluster.partition.producers[ProducerId(7)].last_active_ms == 60
        cluster.do(ExpireProducers(cutoff_ms=Milliseconds(61)), time_ms=61)
        assert cluster.partition.producers == {}

    def test_s2_an_expiry_that_tells_no_time_makes_nobody_older(self) -> None:
        cluster = Cluster.started()
        cluster.do(ReportTime(), time_ms=10)
        cluster.produce(0, idempotent(0))
        cluster.do(ExpireProducers(cutoff_ms=Milliseconds(50)))
        cluster.do(ExpireProducers(cutoff_ms=Milliseconds(50)), time_ms=60)
        assert cluster.partition.producers[ProducerId(7)].last_active_ms == 60
