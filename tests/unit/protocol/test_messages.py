"""Other messages on literal bytes: read by kio's schemas under our bounds, answered behind the right header."""

import struct
from dataclasses import fields
from datetime import timedelta
from uuid import UUID

import pytest
from kio.schema.api_versions.v0.response import ApiVersionsResponse as ApiVersionsResponse0
from kio.schema.api_versions.v3.response import ApiVersionsResponse as ApiVersionsResponse3
from kio.schema.describe_topic_partitions.v0.request import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse
from kio.schema.metadata.v1.request import MetadataRequest, MetadataRequestTopic
from kio.schema.produce.v3.request import ProduceRequest
from kio.static.primitive import i32, i32Timedelta

from protocol.connection import RequestFrame
from protocol.errors import MalformedRequest
from protocol.limits import REQUEST_METADATA_BYTES_MAX
from protocol.messages import read_request, write_body, write_response

NO_TIME = i32Timedelta.parse(timedelta(0))


def frame_of(api_key: int, api_version: int, body: bytes) -> RequestFrame:
    return RequestFrame(
        number=0,
        api_key=api_key,
        api_version=api_version,
        correlation_id=7,
        client_id="",
        header_bytes=0,
        body=memoryview(bytearray(body)),
    )


def shown(api_key: int, api_version: int, body: bytes) -> dict[str, object]:
    entity = read_request(frame_of(api_key, api_version, body))
    return {field.name: getattr(entity, field.name) for field in fields(entity)}


class TestReading:
    def test_arrays_of_structures_null_and_empty(self) -> None:
        topics = (MetadataRequestTopic(name="t"),)  # type: ignore[arg-type]
        assert read_request(frame_of(3, 1, b"\0\0\0\1\0\1t")) == MetadataRequest(topics=topics)
        assert shown(3, 1, b"\0\0\0\0") == {"topics": ()}
        assert shown(3, 1, b"\xff\xff\xff\xff") == {"topics": None}

    def test_ids_null_names_and_booleans(self) -> None:
        body = b"\3" + bytes(16) + b"\2t\0" + bytes(15) + b"\7" + b"\0\0" + b"\1\0\0"
        values = shown(3, 12, body)
        assert isinstance(values["topics"], tuple)
        assert [(topic.topic_id, topic.name) for topic in values["topics"]] == [(None, "t"), (UUID(int=7), None)]
        assert (values["allow_auto_topic_creation"], values["include_topic_authorized_operations"]) == (True, False)

    def test_any_byte_but_0_is_true_as_in_kafka(self) -> None:
        assert shown(3, 4, b"\0\0\0\0\2")["allow_auto_topic_creation"] is True

    @pytest.mark.parametrize(
        ("value_ms", "read"),
        [
            (-1, timedelta(milliseconds=-1)),
            (86_400_000, timedelta(days=1)),
            ((1 << 63) - 1, timedelta.max - timedelta(microseconds=999)),
            (-(1 << 63), timedelta.min),
        ],
    )
    def test_long_times_as_far_as_a_timedelta_goes(self, value_ms: int, read: timedelta) -> None:
        body = b"\0\1g\xff\xff\xff\xff\0\0" + struct.pack(">q", value_ms) + b"\0\0\0\0"
        assert shown(8, 2, body)["retention_time"] == read

    def test_times_and_arrays_of_numbers(self) -> None:
        values = shown(19, 2, b"\0\0\0\1\0\1t\0\0\0\2\0\3\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\4\0\0\0\0\0\0\x75\x30\0")
        assert values["timeout"] == timedelta(seconds=30)
        assert isinstance(values["topics"], tuple)
        assert values["topics"][0].num_partitions == 2
        assert values["topics"][0].assignments[0].broker_ids == (4,)

    def test_a_nullable_structure_follows_its_marker(self) -> None:
        topics = (TopicRequest(name="t"),)  # type: ignore[arg-type]
        limit = i32(100)
        assert read_request(frame_of(75, 0, b"\2\2t\0\0\0\0\x64\xff\0")) == DescribeTopicPartitionsRequest(
            topics=topics, response_partition_limit=limit, cursor=None
        )
        cursor = Cursor(topic_name="u", partition_index=i32(5))  # type: ignore[arg-type]
        assert read_request(frame_of(75, 0, b"\2\2t\0\0\0\0\x64\1\2u\0\0\0\5\0\0")) == DescribeTopicPartitionsRequest(
            topics=topics, response_partition_limit=limit, cursor=cursor
        )

    def test_tagged_fields_that_the_schema_has(self) -> None:
        limits = b"\0\0\1\xf4\0\0\0\1\0\1\0\0\1\0\0\0\0\xff\xff\xff\xff"
        assert shown(1, 12, b"\xff\xff\xff\xff" + limits + b"\1\1\1" + b"\1\0\2\2c")["cluster_id"] == "c"

    def test_tagged_fields_that_nobody_knows_are_stepped_over(self) -> None:
        assert shown(10, 3, b"\2g\0" + b"\1\x63\2ab") == {"key": "g", "key_type": 0}

    def test_bytes_are_copied_out_of_the_frame(self) -> None:
        body = b"\xff\xff\0\1\0\0\0\1" + b"\0\0\0\1\0\1t\0\0\0\2\0\0\0\0\0\0\0\1x\0\0\0\1\xff\xff\xff\xff"
        request = read_request(frame_of(0, 3, body))
        assert isinstance(request, ProduceRequest)
        assert [data.records for data in request.topic_data[0].partition_data] == [b"x", None]

    def test_bytes_behind_the_request_are_ignored(self) -> None:
        assert shown(3, 1, b"\0\0\0\0more") == {"topics": ()}


class TestMalformed:
    @pytest.mark.parametrize(
        ("api_key", "version", "body"),
        [
            (3, 12, b"\xff\xff\xff\xff\x07" + bytes(10)),  # kio's own reader would abort the process here
            (3, 1, b"\x7f\xff\xff\xff"),
            (3, 12, b"\x00\x01"),  # cut off
            (3, 4, b"\0\0\0\0"),
            (3, 1, b"\0\0\0\1\0\1\xff"),  # a name that is not UTF-8
            (3, 1, b"\0\0\0\1\xff\xff"),  # no name
            (20, 1, b"\xff\xff\xff\xff\0\0\0\0"),  # null where an array must be
            (75, 0, b"\2\2t\0\0\0\0\x64"),
            (36, 0, b"\xff\xff\xff\xff"),  # null where bytes must be
        ],
    )
    def test_what_cannot_be_read(self, api_key: int, version: int, body: bytes) -> None:
        with pytest.raises(MalformedRequest):
            read_request(frame_of(api_key, version, body))

    def test_elements_are_bounded_over_all_arrays(self) -> None:
        body = (1_000_001).to_bytes(4, "big") + b"\0\0" * 1_000_001
        with pytest.raises(MalformedRequest, match="1000000 elements"):
            read_request(frame_of(3, 1, body))

    def test_a_request_of_many_megabytes(self) -> None:
        with pytest.raises(MalformedRequest, match="bytes"):
            read_request(frame_of(3, 1, bytes(REQUEST_METADATA_BYTES_MAX + 1)))


class TestAnswering:
    def test_a_flexible_answer_has_tagged_fields_in_its_header(self) -> None:
        answer = FindCoordinatorResponse(
            throttle_time=NO_TIME,
            error_code=ErrorCode.none,
            error_message=None,
            node_id=i32(1),  # type: ignore[arg-type]
            host="h",
            port=i32(9092),
        )
        assert write_response(frame_of(10, 3, b""), answer) == [
            b"\0\0\0\7\0" + b"\0\0\0\0\0\0\0\0\0\0\1\2h\0\0\x23\x84\0"
        ]

    def test_api_versions_never_has(self) -> None:
        answer = ApiVersionsResponse3(error_code=ErrorCode.none, api_keys=(), throttle_time=NO_TIME)
        assert write_response(frame_of(18, 3, b""), answer) == [b"\0\0\0\7" + b"\0\0\1\0\0\0\0\0"]
        assert write_body(answer) == b"\0\0\1\0\0\0\0\0", "a body that is kept has no header"

    def test_an_unknown_version_of_api_versions_is_answered_in_version_0(self) -> None:
        answer = ApiVersionsResponse0(error_code=ErrorCode.unsupported_version, api_keys=())
        assert write_response(frame_of(18, 99, b""), answer) == [b"\0\0\0\7" + b"\0\x23\0\0\0\0"]
