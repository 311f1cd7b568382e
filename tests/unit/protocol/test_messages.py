"""Other messages on literal bytes: read by kio's schemas under our bounds, answered behind the right header."""

import struct
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.response import MetadataResponse

from protocol import messages
from protocol.connection import RequestFrame
from protocol.errors import MalformedRequest
from protocol.limits import REQUEST_METADATA_BYTES_MAX
from protocol.messages import count_rows, read_request, write_body, write_response
from tests.support.records.kio_messages import kio_read
from tests.support.records.message_values import plain_fields


@pytest.fixture(autouse=True, scope="module")
def _no_codecs() -> None:
    """Other tests of this process may have made them already."""
    for made in (messages._request_reader, messages._response_writer, messages._row_counter):
        made.cache_clear()


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


def shown(api_key: int, api_version: int, body: bytes) -> dict[str, Any]:
    request = plain_fields(read_request(frame_of(api_key, api_version, body)))
    assert isinstance(request, dict)
    return request


class TestReading:
    def test_arrays_of_structures_null_and_empty(self) -> None:
        assert shown(3, 1, b"\0\0\0\1\0\1t") == {"topics": ({"name": "t"},)}
        assert shown(3, 1, b"\0\0\0\0") == {"topics": ()}
        assert shown(3, 1, b"\xff\xff\xff\xff") == {"topics": None}

    def test_ids_null_names_and_booleans(self) -> None:
        body = b"\3" + bytes(16) + b"\2t\0" + bytes(15) + b"\7" + b"\0\0" + b"\1\0\0"
        values = shown(3, 12, body)
        assert values["topics"] == ({"topic_id": None, "name": "t"}, {"topic_id": UUID(int=7), "name": None})
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
        (topic,) = values["topics"]
        assert topic["num_partitions"] == 2
        assert topic["assignments"] == ({"partition_index": 0, "broker_ids": (4,)},)

    def test_a_nullable_structure_follows_its_marker(self) -> None:
        values = {"topics": ({"name": "t"},), "response_partition_limit": 100}
        assert shown(75, 0, b"\2\2t\0\0\0\0\x64\xff\0") == values | {"cursor": None}
        cursor = {"topic_name": "u", "partition_index": 5}
        assert shown(75, 0, b"\2\2t\0\0\0\0\x64\1\2u\0\0\0\5\0\0") == values | {"cursor": cursor}

    def test_tagged_fields_that_the_schema_has(self) -> None:
        limits = b"\0\0\1\xf4\0\0\0\1\0\1\0\0\1\0\0\0\0\xff\xff\xff\xff"
        assert shown(1, 12, b"\xff\xff\xff\xff" + limits + b"\1\1\1" + b"\1\0\2\2c")["cluster_id"] == "c"

    def test_tagged_fields_that_nobody_knows_are_stepped_over(self) -> None:
        assert shown(10, 3, b"\2g\0" + b"\1\x63\2ab") == {"key": "g", "key_type": 0}

    def test_bytes_are_copied_out_of_the_frame(self) -> None:
        body = b"\xff\xff\0\1\0\0\0\1" + b"\0\0\0\1\0\1t\0\0\0\2\0\0\0\0\0\0\0\1x\0\0\0\1\xff\xff\xff\xff"
        frame = frame_of(0, 3, body)
        request: Any = read_request(frame)
        frame.body[:] = bytes(len(body))
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
        answer = {
            "error_code": ErrorCode.none,
            "error_message": None,
            "node_id": 1,
            "host": "h",
            "port": 9092,
            "coordinators": "which later versions have",
        }
        assert write_response(frame_of(10, 3, b""), answer) == [
            b"\0\0\0\7\0" + b"\0\0\0\0\0\0\0\0\0\0\1\2h\0\0\x23\x84\0"
        ]

    def test_api_versions_never_has(self) -> None:
        answer = {"error_code": ErrorCode.none, "api_keys": ()}
        assert write_response(frame_of(18, 3, b""), answer) == [b"\0\0\0\7" + b"\0\0\1\0\0\0\0\0"]
        assert write_body(18, 3, answer) == b"\0\0\1\0\0\0\0\0", "a body that is kept has no header"

    def test_rows_are_counted_as_the_version_has_them(self) -> None:
        answer = {"brokers": [{}], "topics": [{"partitions": [{}, {}]}], "coordinators": [{}] * 5}
        assert count_rows(frame_of(3, 12, b""), answer) == 1 + 1 + 2
        assert count_rows(frame_of(10, 4, b""), answer) == 5

    def test_a_field_without_a_default_has_to_be_there(self) -> None:
        with pytest.raises(KeyError, match="error_code"):
            write_response(frame_of(18, 3, b""), {"api_keys": ()})

    def test_a_legacy_text_that_is_too_long_is_a_bug(self) -> None:
        with pytest.raises(struct.error):
            write_response(frame_of(17, 0, b""), {"error_code": ErrorCode.none, "mechanisms": ["x" * 0x8000]})

    def test_long_texts_and_arrays_have_long_lengths(self) -> None:
        replicas = list(range(300))
        partition = {"error_code": 0, "partition_index": 0, "leader_id": 0}
        partitions = [partition | {"replica_nodes": replicas[:count], "isr_nodes": ()} for count in (126, 127, 300)]
        topic = {"error_code": 0, "name": "t" * 127, "topic_id": None, "partitions": partitions}
        (written,) = write_response(frame_of(3, 12, b""), {"brokers": (), "controller_id": 1, "topics": [topic] * 130})
        answer = kio_read(MetadataResponse, bytes(written[5:]))
        assert [topic.name for topic in answer.topics] == ["t" * 127] * 130
        sizes = [len(partition.replica_nodes) for partition in answer.topics[-1].partitions]
        assert sizes == [126, 127, 300]
        assert answer.topics[-1].partitions[-1].replica_nodes == tuple(replicas)
