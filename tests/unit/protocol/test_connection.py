"""A connection: headers, pipelining, the order of answers, and what closes it."""

import pytest

from protocol.connection import ServerConnection, read_request_frame
from protocol.errors import MalformedRequest
from protocol.limits import REQUESTS_PIPELINED_MAX

METADATA_1 = b"\0\3\0\1\0\0\0\7\0\2me" + b"\xff\xff\xff\xff"
METADATA_9 = b"\0\3\0\x09\0\0\0\7\0\2me\0" + b"\0\1\0\0\0"


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def connected(requests_count: int, *, requests_pipelined_max: int = REQUESTS_PIPELINED_MAX) -> ServerConnection:
    connection = ServerConnection(requests_pipelined_max=requests_pipelined_max)
    frames = connection.receive_data(framed(*[METADATA_1] * requests_count))
    assert [frame.number for frame in frames] == list(range(requests_count))
    return connection


class TestHeaders:
    def test_version_1(self) -> None:
        (frame,) = ServerConnection().receive_data(framed(METADATA_1))
        assert (frame.number, frame.api_key, frame.api_version, frame.correlation_id) == (0, 3, 1, 7)
        assert (frame.client_id, frame.header_bytes, frame.body) == ("me", 12, b"\xff\xff\xff\xff")

    def test_version_2_ends_with_tagged_fields(self) -> None:
        frame = read_request_frame(4, memoryview(METADATA_9))
        assert (frame.number, frame.client_id, frame.header_bytes, frame.body) == (4, "me", 13, b"\0\1\0\0\0")

    def test_tagged_fields_that_nobody_knows_are_stepped_over(self) -> None:
        frame = read_request_frame(0, memoryview(b"\0\3\0\x09\0\0\0\7\0\0" + b"\1\x63\2ab" + b"body"))
        assert frame.body == b"body"

    def test_no_client_id_is_an_empty_one(self) -> None:
        assert read_request_frame(0, memoryview(b"\0\3\0\1\0\0\0\7\xff\xff" + b"body")).client_id == ""

    def test_a_client_id_that_is_not_utf_8_is_a_label_still(self) -> None:
        assert read_request_frame(0, memoryview(b"\0\3\0\1\0\0\0\7\0\1\xff")).client_id == "\ufffd"

    @pytest.mark.parametrize("version", [b"\0\x63", b"\0\5", b"\xff\xff", b"\x7f\xff"])
    def test_api_versions_in_any_version_is_given_out(self, version: bytes) -> None:
        frame = read_request_frame(0, memoryview(b"\0\x12" + version + b"\0\0\0\7\0\2me" + b"\xff\xff"))
        assert (frame.api_key, frame.api_version, frame.client_id) == (
            18,
            int.from_bytes(version, "big", signed=True),
            "me",
        )

    @pytest.mark.parametrize(
        "header",
        [
            b"\x03\xe7\0\0\0\0\0\7\0\0",  # API 999
            b"\xff\xff\0\0\0\0\0\7\0\0",  # API -1
            b"\0\3\0\x63\0\0\0\7\0\0",  # Metadata 99
            b"\0\3\xff\xff\0\0\0\7\0\0",  # Metadata -1
            b"\0\0\0\2\0\0\0\7\0\0",  # Produce 2
        ],
    )
    def test_what_is_not_served_is_malformed(self, header: bytes) -> None:
        with pytest.raises(MalformedRequest, match="is not served"):
            read_request_frame(0, memoryview(header))

    @pytest.mark.parametrize("header", [b"", b"\0\3\0\1\0\0\0\7\0", b"\0\3\0\1\0\0\0\7\0\3me", METADATA_9[:12]])
    def test_a_header_that_is_cut_off_is_malformed(self, header: bytes) -> None:
        with pytest.raises(MalformedRequest):
            read_request_frame(0, memoryview(header))


class TestReceiving:
    def test_the_shell_fills_the_buffer_it_is_given(self) -> None:
        connection = ServerConnection()
        data = framed(METADATA_1, METADATA_9)
        room = connection.get_buffer(65536)
        room[: len(data)] = data
        frames = connection.buffer_updated(len(data))
        assert [(frame.number, frame.api_version) for frame in frames] == [(0, 1), (1, 9)]
        assert all(frame.body.obj is room.obj for frame in frames)

    def test_numbers_go_on_from_read_to_read(self) -> None:
        connection = connected(2)
        assert [frame.number for frame in connection.receive_data(framed(METADATA_1))] == [2]

    def test_a_close_between_requests_is_clean_and_one_within_is_told(self) -> None:
        connection = connected(1)
        assert connection.receive_eof() == 0
        connection.receive_data(framed(METADATA_1)[:-1])
        assert connection.receive_eof() == len(framed(METADATA_1)) - 1

    def test_a_request_that_needs_a_buffer_of_its_own_is_told_while_it_arrives(self) -> None:
        connection = ServerConnection(receive_buffer_bytes=16)
        connection.receive_data(framed(METADATA_1)[:8])
        assert connection.large_frame_bytes == len(framed(METADATA_1)) == 20
        assert len(connection.receive_data(framed(METADATA_1)[8:])) == 1
        assert connection.large_frame_bytes == 0

    def test_one_that_is_not_going_to_arrive_can_be_left(self) -> None:
        connection = ServerConnection(receive_buffer_bytes=16)
        connection.receive_data((100).to_bytes(4, "big") + b"begun")
        connection.drop_partial()
        assert (connection.large_frame_bytes, connection.receive_eof(), len(connection.get_buffer())) == (0, 0, 16)

    def test_a_body_that_was_read_can_be_left(self) -> None:
        frame = read_request_frame(0, memoryview(b"\0\3\0\1\0\0\0\7\0\2me" + b"body"))
        frame.leave_body()
        assert (frame.body, frame.correlation_id) == (b"", 7)

    def test_a_request_above_the_limit_is_malformed(self) -> None:
        with pytest.raises(MalformedRequest, match="at most 15"):
            ServerConnection(request_bytes_max=15, receive_buffer_bytes=64).receive_data(framed(METADATA_1))


class TestAnswering:
    def test_an_answer_goes_out_behind_its_size_and_uncopied(self) -> None:
        records = bytearray(b"records")
        size, *parts = connected(1).respond(0, [b"\0\0\0\7", records, memoryview(records)])
        assert size == b"\0\0\0\x12"
        assert parts[1] is records

    def test_the_size_counts_bytes_and_not_elements(self) -> None:
        size, _ = connected(1).respond(0, [memoryview(bytes(16)).cast("q")])
        assert size == b"\0\0\0\x10"

    def test_answers_leave_in_the_order_of_the_requests(self) -> None:
        connection = connected(4)
        assert connection.respond(2, [b"2"]) == []
        assert connection.respond(1, [b"1"]) == []
        assert b"".join(connection.respond(0, [b"0"])) == framed(b"0", b"1", b"2")
        assert connection.requests_waiting == 1
        assert b"".join(connection.respond(3, [b"3"])) == framed(b"3")
        assert connection.requests_waiting == 0

    def test_a_request_without_an_answer_holds_nobody_up(self) -> None:
        connection = connected(3)
        assert connection.respond(2, [b"2"]) == []
        assert connection.skip(1) == []
        assert b"".join(connection.respond(0, [b"0"])) == framed(b"0", b"2")

    def test_skipping_the_first_releases_those_behind(self) -> None:
        connection = connected(2)
        connection.respond(1, [b"1"])
        assert b"".join(connection.skip(0)) == framed(b"1")

    def test_answering_twice_or_unasked_is_a_bug(self) -> None:
        connection = connected(2)
        connection.respond(1, [b"1"])
        with pytest.raises(AssertionError, match="has been answered"):
            connection.respond(1, [b"1"])
        with pytest.raises(AssertionError, match="does not wait"):
            connection.skip(2)
        connection.skip(0)
        with pytest.raises(AssertionError, match="does not wait"):
            connection.respond(1, [b"1"])


class TestPausing:
    def test_reading_pauses_while_as_many_requests_wait_as_may(self) -> None:
        connection = connected(2, requests_pipelined_max=2)
        assert connection.is_reading_paused
        connection.respond(1, [b"1"])
        assert connection.is_reading_paused
        connection.respond(0, [b"0"])
        assert not connection.is_reading_paused

    def test_what_one_read_brought_is_given_out_whole(self) -> None:
        assert connected(5, requests_pipelined_max=2).is_reading_paused


class TestReceiveBuffers:
    """A connection that is not roomy asks for a large buffer, which its shell may give it."""

    FRAME = framed(METADATA_1 + bytes(8_000))

    def fill(self, connection: ServerConnection, data: bytes) -> int:
        room = connection.get_buffer()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        assert connection.buffer_updated(count) == []
        return count

    def test_one_that_has_none_makes_a_claim_for_what_does_not_fit(self) -> None:
        connection = ServerConnection(is_roomy=False)
        self.fill(connection, self.FRAME)
        assert (connection.is_roomy, connection.is_cramped) == (False, True)
        assert connection.large_frame_bytes == len(self.FRAME)

    def test_one_that_grows_goes_on_with_its_request_and_leaves_the_buffer_behind_it(self) -> None:
        connection = ServerConnection(is_roomy=False)
        count = self.fill(connection, self.FRAME)
        connection.grow()
        assert (connection.is_roomy, connection.is_cramped, connection.large_frame_bytes) == (True, False, 0)
        connection.shrink()
        assert connection.is_roomy
        (frame,) = connection.receive_data(self.FRAME[count:])
        assert (frame.number, connection.requests_received) == (0, 1)
        connection.shrink()
        assert not connection.is_roomy
