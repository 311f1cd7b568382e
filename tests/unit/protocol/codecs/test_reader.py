"""Generated readers on literal bytes. That they read what kio reads is a property test."""

from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
from kio.schema.fetch.v15.request import FetchRequest
from kio.schema.heartbeat.v0.request import HeartbeatRequest as HeartbeatRequest0
from kio.schema.heartbeat.v3.request import HeartbeatRequest as HeartbeatRequest3
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest

from protocol.codecs import reader
from protocol.codecs.reader import request_reader
from protocol.codecs.schema import structure_schema
from protocol.errors import MalformedRequest
from tests.support.records.message_values import plain_fields

REPLICA_STATE = b"\1\1\x0d" + b"\0\0\0\5" + b"\0\0\0\0\0\0\0\6" + b"\0"
"""One tagged field, the second, of 13 bytes: a replica, its epoch, and no tagged fields."""
FETCH = bytes(4) + bytes(4) + bytes(4) + b"\0" + bytes(4) + bytes(4) + b"\1" + b"\1" + b"\1"
"""Waits, sizes, level and session; no topics, none forgotten, no rack."""


def reading(entity_type: type) -> Callable[[bytes], Any]:
    return request_reader(structure_schema(entity_type), entity_type.__name__)


class TestTexts:
    def test_compact_ones(self) -> None:
        request = reading(HeartbeatRequest)(b"\2g\0\0\0\5\2m\0\0")
        assert (request.group_id, request.generation_id, request.member_id) == ("g", 5, "m")
        assert request.group_instance_id is None

    def test_a_length_of_several_bytes(self) -> None:
        request = reading(HeartbeatRequest)(b"\xac\2" + b"g" * 299 + b"\0\0\0\5\1\2i\0")
        assert (request.group_id, request.member_id, request.group_instance_id) == ("g" * 299, "", "i")

    def test_legacy_ones(self) -> None:
        request = reading(HeartbeatRequest0)(b"\0\1g\0\0\0\5\0\0")
        assert (request.group_id, request.generation_id, request.member_id) == ("g", 5, "")

    @pytest.mark.parametrize(
        ("body", "why"),
        [
            (b"\0", "null"),
            (b"\7g", "6 bytes, but 1 remain"),
            (b"\2g\0\0\0\5\2m\7", "6 bytes, but 0 remain"),
            (b"\xff\xff\xff\xff\x0f", "int32"),
        ],
    )
    def test_what_is_no_text(self, body: bytes, why: str) -> None:
        with pytest.raises(MalformedRequest, match=why):
            reading(HeartbeatRequest)(body)

    def test_one_at_the_end_that_is_cut_off(self) -> None:
        read, body = reading(HeartbeatRequest3), b"\0\1g\0\0\0\5\0\0" + b"\0\2id"
        assert read(body).group_instance_id == "id"
        with pytest.raises(MalformedRequest, match="2 bytes, but 1 remain"):
            read(body[:-1])


class TestArrays:
    def test_of_numbers(self) -> None:
        assert reading(ListConfigResourcesRequest)(b"\3\2\x10\0").resource_types == (2, 16)

    def test_of_structures_null_or_empty(self) -> None:
        read = reading(ListPartitionReassignmentsRequest)
        assert read(bytes(4) + b"\0\0").topics is None
        assert read(bytes(4) + b"\1\0").topics == ()
        topics = read(bytes(4) + b"\2\2t\3\0\0\0\1\0\0\0\2\0\0").topics
        assert plain_fields(topics) == ({"name": "t", "partition_indexes": (1, 2)},)

    @pytest.mark.parametrize(
        ("body", "why"),
        [
            (bytes(4) + b"\7\0", "6 elements, but 1 bytes remain"),
            (bytes(4) + b"\2\2t\0\0", "null"),
            (bytes(4) + b"\2\2t\7", "6 elements, but 0 bytes remain"),
        ],
    )
    def test_what_is_no_array(self, body: bytes, why: str) -> None:
        with pytest.raises(MalformedRequest, match=why):
            reading(ListPartitionReassignmentsRequest)(body)

    def test_all_together_have_a_bound(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reader, "ARRAY_LENGTH_MAX", 3)
        read = reading(ElectLeadersRequest)
        assert len(read(b"\0\2\2t\3" + bytes(8) + b"\0" + bytes(4) + b"\0").topic_partitions) == 1
        with pytest.raises(MalformedRequest, match="elements"):
            read(b"\0\2\2t\4" + bytes(12) + b"\0" + bytes(4) + b"\0")


class TestStructures:
    def test_one_that_may_be_null(self) -> None:
        read = reading(DescribeTopicPartitionsRequest)
        assert read(b"\1\0\0\0\7\xff\0").cursor is None
        assert plain_fields(read(b"\1\0\0\0\7\1\2t\0\0\0\3\0\0").cursor) == {"topic_name": "t", "partition_index": 3}

    def test_tagged_ones_and_their_defaults(self) -> None:
        read = reading(FetchRequest)
        state = read(FETCH + b"\0").replica_state
        assert (state.replica_id, state.replica_epoch) == (-1, -1)
        request = read(FETCH + REPLICA_STATE)
        assert plain_fields(request.replica_state) == {"replica_id": 5, "replica_epoch": 6}
        assert request.cluster_id is None

    def test_tagged_fields_that_the_version_lacks_are_stepped_over(self) -> None:
        assert reading(FetchRequest)(FETCH + b"\1\7\2ab" + b"behind").rack_id == ""

    def test_arrays_in_tagged_fields_count_too(self) -> None:
        with pytest.raises(MalformedRequest, match="tagged field 1 of 13 bytes"):
            reading(FetchRequest)(FETCH + REPLICA_STATE[:-1])
