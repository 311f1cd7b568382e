"""Rows of a response are counted up to the number at which a thread encodes them."""

from collections.abc import Mapping
from typing import Any

import pytest
from kio.schema.consumer_group_heartbeat.v0.response import ConsumerGroupHeartbeatResponse
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.offset_commit.v8.response import OffsetCommitResponse

from protocol.codecs.row_counter import NUMBERS_PER_ROW, row_counter
from protocol.codecs.schema import structure_schema

ROWS_MAX = 20


def counted(entity_type: type, values: Mapping[str, Any]) -> int:
    return row_counter(structure_schema(entity_type), entity_type.__name__, rows_max=ROWS_MAX)(values)


def test_a_response_without_arrays_has_no_rows() -> None:
    assert counted(HeartbeatResponse, {"error_code": 0}) == 0


def test_structures_in_arrays_are_counted_at_any_depth() -> None:
    partition = {"partition_index": 0, "replica_nodes": [1, 2, 3]}
    topics = [{"name": "t", "partitions": [partition] * 2}, {"name": "u", "partitions": ()}]
    assert counted(MetadataResponse, {"brokers": [{}], "topics": topics}) == 1 + 2 + 2


@pytest.mark.parametrize("topics", [None, ()])
def test_what_is_null_or_left_out_has_no_rows(topics: object) -> None:
    assert counted(MetadataResponse, {"topics": topics}) == 0


def test_arrays_in_a_structure_are_counted() -> None:
    assignment = {"topic_partitions": [{"topic_id": None, "partitions": [0]}]}
    assert counted(ConsumerGroupHeartbeatResponse, {"assignment": assignment}) == 1
    assert counted(ConsumerGroupHeartbeatResponse, {"assignment": None}) == 0


def test_many_numbers_take_as_long_as_a_structure() -> None:
    numbers = list(range(2 * NUMBERS_PER_ROW))
    partition = {"replica_nodes": numbers, "isr_nodes": numbers[:-1], "offline_replicas": [1]}
    assert counted(MetadataResponse, {"topics": [{"partitions": [partition]}]}) == 2 + 2 + 1


def test_counting_stops_once_there_are_many() -> None:
    def of_topics(count: int, partitions: int) -> int:
        row: Mapping[str, Any] = {}
        return counted(OffsetCommitResponse, {"topics": [{"partitions": [row] * partitions}] * count})

    assert of_topics(2, 15) == 2 + 15 + 15
    assert of_topics(20, 21) == 20 + 21, "the other topics are not looked at"
