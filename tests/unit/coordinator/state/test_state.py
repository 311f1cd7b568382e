"""Looking things up in the state."""

import pytest

from protocol.types import PartitionIndex, TopicId
from tests.support.commands.commands import TOPIC, Cluster


@pytest.mark.parametrize(("topic_id", "index"), [(TopicId(bytes(16)), 0), (TOPIC, 1), (TOPIC, -1)])
def test_a_partition_that_is_not_there_is_none(topic_id: TopicId, index: int) -> None:
    assert Cluster.started().state.partition(topic_id, PartitionIndex(index)) is None


def test_a_partition_is_found_by_topic_id_and_index() -> None:
    state = Cluster.started().state
    assert state.partition(TOPIC, PartitionIndex(0)) is state.topics[TOPIC].partitions[0]


@pytest.mark.parametrize(("configs", "expected"), [({}, False), ({"message_timestamp_type": "LogAppendTime"}, True)])
def test_s14_a_topic_knows_whose_clock_stamps_its_records(configs: dict[str, str], *, expected: bool) -> None:
    assert Cluster.started(**configs).state.topics[TOPIC].is_log_append_time is expected
