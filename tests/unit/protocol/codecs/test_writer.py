"""Generated writers on literal values. That they write what kio writes is a property test."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kio.schema.api_versions.v3.response import ApiVersionsResponse
from kio.schema.consumer_group_heartbeat.v0.response import ConsumerGroupHeartbeatResponse
from kio.schema.create_delegation_token.v1.response import CreateDelegationTokenResponse
from kio.schema.create_topics.v7.response import CreateTopicsResponse
from kio.schema.fetch.v12.response import FetchResponse
from kio.schema.heartbeat.v0.response import HeartbeatResponse as HeartbeatResponse0
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.list_offsets.v4.response import ListOffsetsResponse as ListOffsetsResponse4
from kio.schema.list_offsets.v6.response import ListOffsetsResponse
from kio.schema.metadata.v5.response import MetadataResponse

from protocol.codecs.schema import structure_schema
from protocol.codecs.writer import response_writer

HEAD = b"\0\0\0\7"


def written(entity_type: type, values: Mapping[str, Any], *, has_tags_in_header: bool = False) -> bytes:
    """The response behind its correlation id."""
    write = response_writer(structure_schema(entity_type), entity_type.__name__, has_tags_in_header=has_tags_in_header)
    response = write(7, values)
    assert response[:4] == HEAD
    return bytes(response[4:])


class TestFixedFields:
    def test_a_response_of_fixed_fields(self) -> None:
        assert written(HeartbeatResponse0, {"error_code": 5}) == b"\0\5"
        assert written(HeartbeatResponse, {"error_code": 5}, has_tags_in_header=True) == b"\0" + bytes(4) + b"\0\5\0"

    def test_a_throttle_time_of_the_handler(self) -> None:
        values = {"error_code": 5, "throttle_time": timedelta(milliseconds=258)}
        assert written(HeartbeatResponse, values, has_tags_in_header=True) == b"\0" + b"\0\0\1\2" + b"\0\5\0"

    def test_rows_of_fixed_fields(self) -> None:
        row = {"partition_index": 5, "error_code": 1, "timestamp": 42, "offset": 7, "leader_epoch": 3}
        values = {"topics": [{"name": "t", "partitions": [row, row]}]}
        packed = b"\0\0\0\5\0\1" + bytes(7) + b"\x2a" + bytes(7) + b"\7\0\0\0\3"
        assert written(ListOffsetsResponse4, values) == bytes(4) + b"\0\0\0\1\0\1t\0\0\0\2" + packed * 2
        compact = b"\0" + bytes(4) + b"\2\2t\3" + (packed + b"\0") * 2 + b"\0\0"
        assert written(ListOffsetsResponse, values, has_tags_in_header=True) == compact

    def test_times_of_day(self) -> None:
        instants = dict.fromkeys(
            ("issue_timestamp", "expiry_timestamp", "max_timestamp"), datetime.fromtimestamp(0.258, UTC)
        )
        texts = dict.fromkeys(("principal_type", "principal_name", "token_id"), "a")
        answer = written(CreateDelegationTokenResponse, {"error_code": 0, "hmac": b"h", **instants, **texts})
        time = bytes(6) + b"\1\2"
        assert answer == b"\0\0" + b"\0\1a" * 2 + time * 3 + b"\0\1a" + b"\0\0\0\1h" + bytes(4)


class TestVariableFields:
    def test_null_texts_and_arrays_of_numbers(self) -> None:
        partition = {"error_code": 0, "partition_index": 2, "leader_id": 1, "replica_nodes": [1], "isr_nodes": ()}
        topic = {"error_code": 0, "name": "t", "partitions": [partition]}
        broker = {"node_id": 1, "host": "h", "port": 9, "rack": None}
        values = {"brokers": [broker], "cluster_id": None, "controller_id": 1, "topics": [topic]}
        assert written(MetadataResponse, values) == (
            bytes(4)
            + b"\0\0\0\1\0\0\0\1\0\1h\0\0\0\x09\xff\xff"
            + b"\xff\xff\0\0\0\1"
            + b"\0\0\0\1\0\0\0\1t\0\0\0\0\1"
            + b"\0\0\0\0\0\2\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\0\0\0\0\0"
        )

    def test_a_structure_that_may_be_null(self) -> None:
        values = {"error_code": 0, "member_epoch": 1, "heartbeat_interval": timedelta(0)}
        head = bytes(4) + b"\0\0\0\0" + b"\0\0\0\1" + bytes(4)
        assert written(ConsumerGroupHeartbeatResponse, values) == head + b"\xff\0"
        assigned = values | {"assignment": {"topic_partitions": [{"topic_id": None, "partitions": [3]}]}}
        packed = b"\1\2" + bytes(16) + b"\2\0\0\0\3\0\0\0"
        assert written(ConsumerGroupHeartbeatResponse, assigned) == head + packed

    def test_a_null_array_of_structures(self) -> None:
        topic = {"name": "t", "topic_id": None, "error_code": 0, "error_message": "e", "configs": None}
        fixed = b"\xff\xff\xff\xff\xff\xff"
        answer = written(CreateTopicsResponse, {"topics": [topic]})
        assert answer == bytes(4) + b"\2\2t" + bytes(16) + b"\0\0\2e" + fixed + b"\0\0\0"


class TestTaggedFields:
    def test_only_those_without_their_default(self) -> None:
        assert written(ApiVersionsResponse, {"error_code": 0, "api_keys": [], "supported_features": []}) == (
            b"\0\0\1" + bytes(4) + b"\0"
        )
        features = [{"name": "f", "min_version": 0, "max_version": 2}]
        values = {"error_code": 0, "api_keys": [], "supported_features": features, "finalized_features_epoch": 9}
        assert written(ApiVersionsResponse, values) == (
            b"\0\0\1" + bytes(4) + b"\2" + b"\0\x08\2\2f\0\0\0\2\0" + b"\1\x08" + bytes(7) + b"\x09"
        )

    def test_a_structure_that_equals_its_default_is_left_out(self) -> None:
        epoch = {"epoch": -1, "end_offset": -1}
        partition = {
            "partition_index": 1,
            "error_code": 0,
            "high_watermark": 2,
            "aborted_transactions": None,
            "records": None,
            "diverging_epoch": epoch,
            "current_leader": {"leader_id": 1, "leader_epoch": 0},
        }
        values = {"error_code": 0, "responses": [{"topic": "t", "partitions": [partition]}]}
        tags = b"\1\1\x09\0\0\0\1\0\0\0\0\0"
        assert written(FetchResponse, values).endswith(b"\xff\0" + tags + b"\0\0")
        longer = partition | {"diverging_epoch": {"epoch": 1, "end_offset": 1}}
        answer = written(FetchResponse, {"error_code": 0, "responses": [{"topic": "t", "partitions": [longer]}]})
        assert b"\2\0\x0d\0\0\0\1" + bytes(7) + b"\1\0" + tags[1:] in answer


def test_a_field_without_a_default_has_to_be_there() -> None:
    with pytest.raises(KeyError, match="error_code"):
        written(HeartbeatResponse0, {})
