"""Fetch responses on literal bytes."""

import pytest

from protocol.errors import ErrorCode
from protocol.fetch import (
    AbortedTransaction,
    DivergingEpoch,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
    write_fetch_response,
)
from protocol.leaders import LeaderAndEpoch, NodeEndpoint
from protocol.wire import Buffer

ID = bytes(range(16))


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
