"""Produce on literal bytes: what is read, what is refused, what is answered."""

import struct

import pytest

from protocol.errors import ErrorCode, MalformedRequest
from protocol.leaders import LeaderAndEpoch, NodeEndpoint
from protocol.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
    ProduceTopic,
    RecordError,
    read_produce_request,
    write_produce_response,
)

ID = bytes(range(16))
REQUEST_3 = (
    b"\xff\xff"  # no transactional id
    b"\xff\xff\x00\x00\x75\x30"  # acks -1, 30 s
    b"\x00\x00\x00\x01\x00\x01t"  # one topic, "t"
    b"\x00\x00\x00\x02"  # two partitions
    b"\x00\x00\x00\x05\x00\x00\x00\x03abc"
    b"\x00\x00\x00\x06\xff\xff\xff\xff"
)
REQUEST_9 = b"\x02x\x00\x01\x00\x00\x75\x30\x02\x02t\x03\x00\x00\x00\x05\x04abc\x00\x00\x00\x00\x06\x00\x00\x00\x00"
REQUEST_13 = b"\x00\x00\x00\x00\x00\x75\x30\x02" + ID + b"\x02\x00\x00\x00\x05\x04abc\x01\x09\x01z\x00\x00"


class TestReading:
    @pytest.mark.parametrize("version", range(3, 9))
    def test_versions_3_to_8(self, version: int) -> None:
        assert read_produce_request(memoryview(REQUEST_3), version) == ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=30_000,
            topics=[
                ProduceTopic(
                    name="t",
                    topic_id=None,
                    partitions=[
                        ProducePartition(index=5, records=memoryview(b"abc")),
                        ProducePartition(index=6, records=None),
                    ],
                )
            ],
        )

    @pytest.mark.parametrize("version", range(9, 13))
    def test_versions_9_to_12(self, version: int) -> None:
        request = read_produce_request(memoryview(REQUEST_9), version)
        assert (request.transactional_id, request.acks) == ("x", 1)
        assert [(partition.index, partition.records) for partition in request.topics[0].partitions] == [
            (5, b"abc"),
            (6, None),
        ]

    def test_version_13_knows_topics_by_id_and_steps_over_tagged_fields(self) -> None:
        (topic,) = read_produce_request(memoryview(REQUEST_13), 13).topics
        assert (topic.name, topic.topic_id) == (None, ID)
        assert topic.partitions == [ProducePartition(index=5, records=memoryview(b"abc"))]

    def test_records_are_views_of_the_frame(self) -> None:
        frame = bytearray(REQUEST_3)
        (topic,) = read_produce_request(memoryview(frame), 3).topics
        records = topic.partitions[0].records
        assert records is not None
        assert records.obj is frame

    def test_bytes_behind_the_request_are_ignored(self) -> None:
        assert len(read_produce_request(memoryview(REQUEST_9 + b"more"), 9).topics) == 1

    @pytest.mark.parametrize(("data", "version"), [(REQUEST_3, 3), (REQUEST_9, 9), (REQUEST_13, 13)])
    def test_a_request_that_is_cut_off_anywhere_is_malformed(self, data: bytes, version: int) -> None:
        for end in range(len(data)):
            with pytest.raises(MalformedRequest):
                read_produce_request(memoryview(data[:end]), version)

    @pytest.mark.parametrize(
        ("data", "version"),
        [
            (REQUEST_3.replace(b"\x00\x01t", b"\x00\x01\xff"), 3),  # not UTF-8
            (REQUEST_3.replace(b"\x00\x01t", b"\xff\xff"), 3),  # no name
            (REQUEST_3[:8] + b"\xff\xff\xff\xff", 3),  # null topics
            (REQUEST_3[:8] + b"\x7f\xff\xff\xff", 3),
            (REQUEST_3[:-4] + b"\0\0\0\5ab", 3),  # records longer than the request
            (REQUEST_9.replace(b"\x04abc", b"\xff\xff\xff\xff\x07abc"), 9),
        ],
    )
    def test_what_cannot_be_is_malformed(self, data: bytes, version: int) -> None:
        with pytest.raises(MalformedRequest):
            read_produce_request(memoryview(data), version)

    def test_partitions_are_bounded_over_all_topics(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("protocol.produce.ARRAY_LENGTH_MAX", 10)
        topic = b"\x00\x01t" + struct.pack(">i", 6) + bytes(8) * 6
        data = REQUEST_3[:8] + b"\x00\x00\x00\x02" + topic * 2
        with pytest.raises(MalformedRequest, match="10 partitions"):
            read_produce_request(memoryview(data), 3)


def answered(version: int, partition: ProduceResponsePartition, **fields: object) -> bytes:
    topic = ProduceResponseTopic(name="t", topic_id=ID, partitions=[partition])
    response = ProduceResponse(topics=[topic], throttle_time_ms=9)
    for name, value in fields.items():
        setattr(response, name, value)
    (data,) = write_produce_response(7, version, response)
    return bytes(data)


class TestWriting:
    ACCEPTED = ProduceResponsePartition(index=5, base_offset=1000, log_append_time_ms=2000, log_start_offset=3)
    NUMBERS = b"\0\0\0\5\0\0" + (1000).to_bytes(8, "big") + (2000).to_bytes(8, "big")
    LOG_START = (3).to_bytes(8, "big")

    @pytest.mark.parametrize(
        ("versions", "expected"),
        [
            (range(3, 5), b"\0\0\0\7\0\0\0\1\0\1t\0\0\0\1" + NUMBERS + b"\0\0\0\x09"),
            (range(5, 8), b"\0\0\0\7\0\0\0\1\0\1t\0\0\0\1" + NUMBERS + LOG_START + b"\0\0\0\x09"),
            (
                range(8, 9),
                b"\0\0\0\7\0\0\0\1\0\1t\0\0\0\1" + NUMBERS + LOG_START + b"\0\0\0\0\xff\xff" + b"\0\0\0\x09",
            ),
            (range(9, 13), b"\0\0\0\7\0\2\2t\2" + NUMBERS + LOG_START + b"\1\0\0\0" + b"\0\0\0\x09\0"),
            (range(13, 14), b"\0\0\0\7\0\2" + ID + b"\2" + NUMBERS + LOG_START + b"\1\0\0\0" + b"\0\0\0\x09\0"),
        ],
    )
    def test_an_acceptance(self, versions: range, expected: bytes) -> None:
        for version in versions:
            assert answered(version, self.ACCEPTED) == expected

    def test_a_refusal_has_base_offset_minus_1_and_says_why(self) -> None:
        refused = ProduceResponsePartition(
            index=5,
            error_code=ErrorCode.invalid_record,
            record_errors=[RecordError(batch_index=2, message="no key")],
            error_message="bad",
        )
        start = b"\0\0\0\5\0\x57" + b"\xff" * 24
        assert answered(8, refused) == (
            b"\0\0\0\7\0\0\0\1\0\1t\0\0\0\1" + start + b"\0\0\0\1\0\0\0\2\0\6no key\0\3bad" + b"\0\0\0\x09"
        )
        assert answered(9, refused) == b"\0\0\0\7\0\2\2t\2" + start + b"\2\0\0\0\2\7no key\0\4bad\0\0" + b"\0\0\0\x09\0"

    def test_an_error_with_an_offset_is_a_bug(self) -> None:
        wrong = ProduceResponsePartition(index=5, error_code=ErrorCode.corrupt_message, base_offset=0)
        with pytest.raises(AssertionError, match="base offset 0"):
            answered(9, wrong)

    def test_the_leader_and_its_address_go_into_tagged_fields_from_version_10_on(self) -> None:
        moved = ProduceResponsePartition(
            index=5,
            error_code=ErrorCode.not_leader_or_follower,
            current_leader=LeaderAndEpoch(leader_id=2, leader_epoch=3),
        )
        endpoints = [NodeEndpoint(node_id=2, host="h", port=9092, rack="r")]
        start = b"\0\0\0\7\0\2\2t\2" + b"\0\0\0\5\0\6" + b"\xff" * 24 + b"\1\0"
        assert answered(9, moved, node_endpoints=endpoints) == start + b"\0\0" + b"\0\0\0\x09\0"
        assert answered(10, moved, node_endpoints=endpoints) == (
            start + b"\1\0\x09\0\0\0\2\0\0\0\3\0" + b"\0" + b"\0\0\0\x09" + b"\1\0\x0e\2\0\0\0\2\2h\0\0\x23\x84\2r\0"
        )
