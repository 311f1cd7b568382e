"""ListOffsets on literal bytes: what is read, what is refused, what is answered."""

import pytest

from protocol.errors import ErrorCode, MalformedRequest
from protocol.limits import REQUEST_METADATA_BYTES_MAX
from protocol.list_offsets import (
    ListOffsetsRequest,
    OffsetQuery,
    PartitionOffset,
    TopicOffsetQueries,
    TopicOffsets,
    read_list_offsets_request,
    write_list_offsets_response,
)

CONSUMER = b"\xff\xff\xff\xff"
TIME = bytes(7) + b"\x2a"
REQUEST_1 = CONSUMER + b"\0\0\0\1\0\1t\0\0\0\1\0\0\0\5" + TIME
REQUEST_2 = CONSUMER + b"\1\0\0\0\1\0\1t\0\0\0\1\0\0\0\5" + TIME
REQUEST_4 = CONSUMER + b"\1\0\0\0\1\0\1t\0\0\0\1\0\0\0\5\0\0\0\3" + TIME
REQUEST_6 = CONSUMER + b"\1\2\2t\2\0\0\0\5\0\0\0\3" + TIME + b"\1\7\1x\0\0"
REQUEST_10 = CONSUMER + b"\1\2\2t\2\0\0\0\5\0\0\0\3" + TIME + b"\0\0\0\0\0\7\0"
REQUESTS = [(REQUEST_1, 1), (REQUEST_2, 2), (REQUEST_4, 4), (REQUEST_6, 6), (REQUEST_10, 10)]
TOLD = [TopicOffsets("t", [PartitionOffset(5, ErrorCode.offset_out_of_range, 42, 7, 3)])]


def wanted(isolation_level: int, leader_epoch: int) -> ListOffsetsRequest:
    return ListOffsetsRequest(isolation_level, [TopicOffsetQueries("t", [OffsetQuery(5, leader_epoch, 42)])])


class TestReading:
    @pytest.mark.parametrize(("data", "version"), REQUESTS)
    def test_every_version(self, data: bytes, version: int) -> None:
        expected = wanted(1 if version >= 2 else 0, 3 if version >= 4 else -1)
        assert read_list_offsets_request(memoryview(data), version) == expected

    @pytest.mark.parametrize(("data", "version"), REQUESTS)
    def test_a_request_that_is_cut_off_anywhere_is_malformed(self, data: bytes, version: int) -> None:
        for end in range(len(data)):
            with pytest.raises(MalformedRequest):
                read_list_offsets_request(memoryview(data[:end]), version)

    def test_a_request_that_is_too_large_is_not_read(self) -> None:
        with pytest.raises(MalformedRequest, match="at most"):
            read_list_offsets_request(memoryview(bytes(REQUEST_METADATA_BYTES_MAX + 1)), 1)

    def test_no_more_partitions_are_read_than_fit_into_a_request(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("protocol.list_offsets.ARRAY_LENGTH_MAX", 1)
        with pytest.raises(MalformedRequest, match="more than 1 elements"):
            read_list_offsets_request(memoryview(REQUEST_1), 1)


class TestWriting:
    def test_version_1(self) -> None:
        row = b"\0\0\0\5\0\1" + TIME + bytes(7) + b"\7"
        assert write_list_offsets_response(9, 1, TOLD) == [b"\0\0\0\x09\0\0\0\1\0\1t\0\0\0\1" + row]

    def test_version_4_has_a_throttle_time_and_leader_epochs(self) -> None:
        row = b"\0\0\0\5\0\1" + TIME + bytes(7) + b"\7\0\0\0\3"
        assert write_list_offsets_response(9, 4, TOLD) == [b"\0\0\0\x09\0\0\0\0\0\0\0\1\0\1t\0\0\0\1" + row]

    def test_version_6_is_compact_and_has_no_tagged_fields(self) -> None:
        row = b"\0\0\0\5\0\1" + TIME + bytes(7) + b"\7\0\0\0\3\0"
        assert write_list_offsets_response(9, 6, TOLD) == [b"\0\0\0\x09\0\0\0\0\0\2\2t\2" + row + b"\0\0"]
