"""Fetch on literal bytes: what is read, what is refused, what is answered."""

import struct

import pytest

from protocol.errors import ErrorCode, MalformedRequest
from protocol.fetch import (
    AbortedTransaction,
    DivergingEpoch,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
    FetchTopic,
    ForgottenTopic,
    read_fetch_request,
    write_fetch_response,
)
from protocol.leaders import LeaderAndEpoch, NodeEndpoint
from protocol.limits import REQUEST_METADATA_BYTES_MAX
from protocol.wire import Buffer

ID = bytes(range(16))
CONSUMER = b"\xff\xff\xff\xff"
LIMITS = b"\0\0\1\xf4\0\0\0\1\0\1\0\0\1"  # 500 ms, from 1 byte, up to 65536, read_committed
SESSION = b"\0\0\0\x08\0\0\0\2"
OFFSET = bytes(7) + b"\x2a"
MINUS_ONE = b"\xff" * 8
BYTES_MAX = b"\0\0\x10\0"

REQUEST_4 = CONSUMER + LIMITS + b"\0\0\0\1\0\1t\0\0\0\1\0\0\0\5" + OFFSET + BYTES_MAX
REQUEST_5 = CONSUMER + LIMITS + b"\0\0\0\1\0\1t\0\0\0\1\0\0\0\5" + OFFSET + MINUS_ONE + BYTES_MAX
REQUEST_11 = (
    CONSUMER
    + LIMITS
    + SESSION
    + b"\0\0\0\1\0\1t\0\0\0\1\0\0\0\5\0\0\0\3"
    + OFFSET
    + MINUS_ONE
    + BYTES_MAX
    + b"\0\0\0\1\0\1u\0\0\0\2\0\0\0\1\0\0\0\2"
    + b"\0\1r"
)
PARTITION_12 = b"\0\0\0\5\0\0\0\3" + OFFSET + b"\0\0\0\2" + MINUS_ONE + BYTES_MAX
REQUEST_12 = (
    CONSUMER + LIMITS + SESSION + b"\2\2t\2" + PARTITION_12 + b"\0\0" + b"\2\2u\2\0\0\0\1\0" + b"\2r" + b"\1\0\2\2c"
)
REQUEST_18 = (
    LIMITS
    + SESSION
    + b"\2"
    + ID
    + b"\2"
    + PARTITION_12
    + b"\2\0\x10"
    + ID
    + b"\1\x08"
    + OFFSET
    + b"\0"
    + b"\1\1"
    + b"\1\1\x0d\0\0\0\7"
    + OFFSET
    + b"\0"
)
REQUESTS = [(REQUEST_4, 4), (REQUEST_5, 5), (REQUEST_11, 11), (REQUEST_12, 12), (REQUEST_18, 18)]


class TestReading:
    def test_version_4(self) -> None:
        assert read_fetch_request(memoryview(REQUEST_4), 4) == FetchRequest(
            max_wait_ms=500,
            bytes_min=1,
            bytes_max=65536,
            isolation_level=1,
            topics=[
                FetchTopic(
                    name="t", topic_id=None, partitions=[FetchPartition(index=5, fetch_offset=42, bytes_max=4096)]
                )
            ],
            forgotten_topics=[],
        )

    def test_version_5_has_a_log_start_offset(self) -> None:
        assert read_fetch_request(memoryview(REQUEST_5), 5) == read_fetch_request(memoryview(REQUEST_4), 4)

    def test_version_11_has_a_session_and_a_rack(self) -> None:
        request = read_fetch_request(memoryview(REQUEST_11), 11)
        assert (request.session_id, request.session_epoch, request.rack_id) == (8, 2, "r")
        assert request.forgotten_topics == [ForgottenTopic(name="u", topic_id=None, partitions=[1, 2])]
        assert request.topics[0].partitions[0].current_leader_epoch == 3

    def test_version_12_has_a_cluster_id_among_its_tagged_fields(self) -> None:
        request = read_fetch_request(memoryview(REQUEST_12), 12)
        assert (request.cluster_id, request.rack_id, request.replica_id) == ("c", "r", -1)
        assert request.topics[0].partitions == [
            FetchPartition(index=5, fetch_offset=42, bytes_max=4096, current_leader_epoch=3, last_fetched_epoch=2)
        ]

    def test_version_18_has_topic_ids_and_what_followers_tell(self) -> None:
        request = read_fetch_request(memoryview(REQUEST_18), 18)
        assert (request.replica_id, request.replica_epoch) == (7, 42)
        (topic,) = request.topics
        assert (topic.name, topic.topic_id) == (None, ID)
        assert (topic.partitions[0].replica_directory_id, topic.partitions[0].high_watermark) == (ID, 42)

    def test_tags_of_later_versions_are_unknown_to_earlier_ones(self) -> None:
        request = read_fetch_request(memoryview(REQUEST_18), 16)
        assert request.topics[0].partitions[0].replica_directory_id is None
        assert request.topics[0].partitions[0].high_watermark == (1 << 63) - 1
        request = read_fetch_request(memoryview(CONSUMER + REQUEST_18), 14)
        assert (request.replica_id, request.replica_epoch) == (-1, -1)

    @pytest.mark.parametrize(("data", "version"), REQUESTS)
    def test_a_request_that_is_cut_off_anywhere_is_malformed(self, data: bytes, version: int) -> None:
        for end in range(len(data)):
            with pytest.raises(MalformedRequest):
                read_fetch_request(memoryview(data[:end]), version)

    @pytest.mark.parametrize(
        ("data", "version"),
        [
            (REQUEST_4.replace(b"\0\1t", b"\0\1\xff"), 4),
            (REQUEST_4.replace(b"\0\1t", b"\xff\xff"), 4),
            (CONSUMER + LIMITS + b"\xff\xff\xff\xff", 4),
            (CONSUMER + LIMITS + b"\x7f\xff\xff\xff", 4),
            (REQUEST_12.replace(b"\2r\1", b"\0\1"), 12),  # no rack
            (REQUEST_12.replace(b"\1\0\2\2c", b"\1\0\2\2\xff"), 12),
            (REQUEST_18.replace(b"\1\1\x0d", b"\1\1\x05"), 18),  # a replica state that is too short
        ],
    )
    def test_what_cannot_be_is_malformed(self, data: bytes, version: int) -> None:
        with pytest.raises(MalformedRequest):
            read_fetch_request(memoryview(data), version)

    def test_partitions_are_bounded_over_all_topics(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("protocol.fetch.ARRAY_LENGTH_MAX", 10)
        topic = b"\0\1t" + struct.pack(">i", 4) + bytes(16) * 4
        with pytest.raises(MalformedRequest, match="10 partitions"):
            read_fetch_request(memoryview(CONSUMER + LIMITS + b"\0\0\0\3" + topic * 2 + topic[:7] + bytes(4)), 4)

    def test_forgotten_partitions_are_bounded_over_all_topics(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("protocol.fetch.ARRAY_LENGTH_MAX", 10)
        topic = b"\0\1t" + struct.pack(">i", 6) + bytes(4) * 6
        with pytest.raises(MalformedRequest, match="10 forgotten partitions"):
            read_fetch_request(memoryview(CONSUMER + LIMITS + SESSION + b"\0\0\0\0" + b"\0\0\0\2" + topic * 2), 7)

    def test_a_request_of_many_megabytes_is_malformed(self) -> None:
        with pytest.raises(MalformedRequest, match="bytes"):
            read_fetch_request(memoryview(bytes(REQUEST_METADATA_BYTES_MAX + 1)), 4)


def answered(version: int, partition: FetchResponsePartition) -> list[Buffer]:
    topic = FetchResponseTopic(name="t", topic_id=ID, partitions=[partition])
    endpoints = [NodeEndpoint(node_id=2, host="h", port=9092)]
    return write_fetch_response(
        7, version, FetchResponse(topics=[topic], session_id=8, throttle_time_ms=9, node_endpoints=endpoints)
    )


class TestWriting:
    SERVED = FetchResponsePartition(
        index=5, high_watermark=50, last_stable_offset=49, log_start_offset=3, records=[b"abc", bytearray(b"de")]
    )
    NUMBERS = b"\0\0\0\5\0\0" + (50).to_bytes(8, "big") + (49).to_bytes(8, "big")
    LOG_START = (3).to_bytes(8, "big")
    NULL = b"\xff\xff\xff\xff"
    NO_REPLICA = b"\xff\xff\xff\xff"
    SESSION = b"\0\0\0\x09\0\0\0\0\0\x08"
    TOPIC = b"\0\0\0\1\0\1t\0\0\0\1"

    @pytest.mark.parametrize(
        ("versions", "expected"),
        [
            (range(4, 5), b"\0\0\0\7\0\0\0\x09" + TOPIC + NUMBERS + NULL + b"\0\0\0\5abcde"),
            (range(5, 7), b"\0\0\0\7\0\0\0\x09" + TOPIC + NUMBERS + LOG_START + NULL + b"\0\0\0\5abcde"),
            (range(7, 11), b"\0\0\0\7" + SESSION + TOPIC + NUMBERS + LOG_START + NULL + b"\0\0\0\5abcde"),
            (range(11, 12), b"\0\0\0\7" + SESSION + TOPIC + NUMBERS + LOG_START + NULL + NO_REPLICA + b"\0\0\0\5abcde"),
            (
                range(12, 13),
                b"\0\0\0\7\0" + SESSION + b"\2\2t\2" + NUMBERS + LOG_START + b"\0" + NO_REPLICA + b"\6abcde\0\0\0",
            ),
            (
                range(13, 16),
                b"\0\0\0\7\0" + SESSION + b"\2" + ID + b"\2" + NUMBERS + LOG_START + b"\0" + NO_REPLICA
                + b"\6abcde\0\0\0",
            ),
            (
                range(16, 19),
                b"\0\0\0\7\0" + SESSION + b"\2" + ID + b"\2" + NUMBERS + LOG_START + b"\0" + NO_REPLICA
                + b"\6abcde\0\0" + b"\1\0\x0d\2\0\0\0\2\2h\0\0\x23\x84\0\0",
            ),
        ],
    )  # fmt: skip
    def test_records_between_their_offsets_and_their_tags(self, versions: range, expected: bytes) -> None:
        for version in versions:
            assert b"".join(answered(version, self.SERVED)) == expected

    def test_records_are_passed_on_and_not_copied(self) -> None:
        records: list[Buffer] = [bytearray(b"abc"), memoryview(b"de")]
        buffers = answered(12, FetchResponsePartition(index=5, records=records))
        assert buffers[1] is records[0]
        assert buffers[2] is records[1]
        assert len(buffers) == 4
        assert len(answered(4, FetchResponsePartition(index=5, records=records))) == 3

    def test_no_records_are_empty_or_null(self) -> None:
        assert b"".join(answered(4, FetchResponsePartition(index=5))).endswith(b"\xff\xff\xff\xff" + b"\0\0\0\0")
        assert b"".join(answered(4, FetchResponsePartition(index=5, records=None))).endswith(b"\xff" * 8)
        (data,) = answered(12, FetchResponsePartition(index=5, records=None))
        assert bytes(data).endswith(b"\xff\xff\xff\xff" + b"\0" + b"\0\0\0")

    def test_aborted_transactions_may_be_null_or_empty_or_some(self) -> None:
        def aborted(version: int, transactions: list[AbortedTransaction] | None) -> bytes:
            partition = FetchResponsePartition(index=5, aborted_transactions=transactions)
            return b"".join(answered(version, partition))

        some = [AbortedTransaction(producer_id=2, offset_first=3)]
        pair = (2).to_bytes(8, "big") + (3).to_bytes(8, "big")
        assert aborted(4, None).endswith(b"\xff\xff\xff\xff" + b"\0\0\0\0")
        assert aborted(4, []).endswith(b"\0\0\0\0" + b"\0\0\0\0")
        assert aborted(4, some).endswith(b"\0\0\0\1" + pair + b"\0\0\0\0")
        assert aborted(12, []).endswith(b"\1" + self.NO_REPLICA + b"\1" + b"\0\0\0")
        assert aborted(12, some).endswith(b"\2" + pair + b"\0" + self.NO_REPLICA + b"\1" + b"\0\0\0")

    def test_a_diverging_epoch_and_the_leader_go_into_tagged_fields(self) -> None:
        diverging = FetchResponsePartition(index=5, diverging_epoch=DivergingEpoch(epoch=1, end_offset=2))
        moved = FetchResponsePartition(
            index=5,
            error_code=ErrorCode.not_leader_or_follower,
            current_leader=LeaderAndEpoch(leader_id=2, leader_epoch=3),
        )
        epoch_bytes = b"\1\0\x0d\0\0\0\1" + (2).to_bytes(8, "big") + b"\0"
        assert b"".join(answered(12, diverging)).endswith(b"\1" + epoch_bytes + b"\0\0")
        assert b"".join(answered(12, moved)).endswith(b"\1" + b"\1\1\x09\0\0\0\2\0\0\0\3\0" + b"\0\0")
        assert b"".join(answered(11, moved)) == b"".join(answered(11, FetchResponsePartition(
            index=5, error_code=ErrorCode.not_leader_or_follower)))  # fmt: skip
