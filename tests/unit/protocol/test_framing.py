"""Frames come out whole, uncopied where they lie whole, and never change afterwards."""

import resource
from pathlib import Path

import pytest

from protocol.errors import MalformedRequest
from protocol.framing import FrameReceiver
from protocol.limits import MIB


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def fill(receiver: FrameReceiver, data: bytes) -> list[memoryview]:
    room = receiver.get_buffer()
    assert len(room) >= len(data)
    room[: len(data)] = data
    return receiver.buffer_updated(len(data))


class TestFramesInOneBuffer:
    def test_several_frames_of_one_read(self) -> None:
        receiver = FrameReceiver()
        assert fill(receiver, framed(b"abc", b"", b"de")) == [b"abc", b"", b"de"]
        assert receiver.partial_bytes == 0

    def test_a_frame_byte_by_byte(self) -> None:
        receiver = FrameReceiver()
        frames = [fill(receiver, bytes([byte])) for byte in framed(b"abc")]
        assert frames == [[], [], [], [], [], [], [b"abc"]]

    def test_a_frame_is_a_view_of_the_memory_that_was_received_into(self) -> None:
        receiver = FrameReceiver()
        room = receiver.get_buffer()
        (frame,) = fill(receiver, framed(b"abc"))
        assert frame.obj is room.obj

    def test_partial_bytes_tell_that_a_peer_closed_within_a_frame(self) -> None:
        receiver = FrameReceiver()
        fill(receiver, framed(b"abc") + b"\0\0")
        assert receiver.partial_bytes == 2
        fill(receiver, b"\0\2x")
        assert receiver.partial_bytes == 5


class TestMemory:
    def test_a_given_frame_stays_as_it_was_when_more_arrives(self) -> None:
        receiver = FrameReceiver(buffer_bytes=16)
        kept: list[tuple[memoryview, bytes]] = []
        for number in range(100):
            body = bytes([number]) * (number % 9)
            frames = receiver.receive_data(framed(body))
            assert frames == [body]
            kept.append((frames[0], body))
        assert all(frame == body for frame, body in kept)

    def test_a_frame_that_does_not_fit_takes_only_its_start_along(self) -> None:
        receiver = FrameReceiver(buffer_bytes=16)
        first_room = receiver.get_buffer()
        (frame,) = fill(receiver, framed(b"12345678") + b"\0\0\0\x14")
        assert frame.obj is first_room.obj
        room = receiver.get_buffer()
        assert len(room) == 20
        assert room.obj is not first_room.obj
        (large,) = fill(receiver, b"x" * 20)
        assert large == b"x" * 20
        assert large.obj is room.obj

    def test_the_size_itself_may_be_cut_at_the_end_of_a_buffer(self) -> None:
        receiver = FrameReceiver(buffer_bytes=10)
        assert fill(receiver, framed(b"1234") + b"\0\0") == [b"1234"]
        assert fill(receiver, b"\0\3abc") == [b"abc"]

    def test_whoever_sends_little_gets_little_memory(self) -> None:
        receiver = FrameReceiver(buffer_bytes=64, buffer_bytes_first=16)
        for _ in range(10):
            assert fill(receiver, framed(b"beat")) == [b"beat"]
            assert len(receiver.get_buffer()) <= 16

    def test_whoever_sends_more_gets_more_until_it_sends_little_again(self) -> None:
        receiver = FrameReceiver(buffer_bytes=64, buffer_bytes_first=16)
        assert fill(receiver, framed(b"123456789012")) == [b"123456789012"]
        assert len(receiver.get_buffer()) == 64
        for _ in range(7):
            fill(receiver, framed(b"beat"))
        assert len(receiver.get_buffer()) == 8
        fill(receiver, framed(b"beat"))
        assert len(receiver.get_buffer()) == 16

    def test_a_frame_that_little_memory_does_not_hold_gets_a_whole_buffer(self) -> None:
        receiver = FrameReceiver(buffer_bytes=64, buffer_bytes_first=16)
        assert fill(receiver, b"\0\0\0\x20") == []
        assert (receiver.large_frame_bytes, len(receiver.get_buffer())) == (0, 60)
        assert fill(receiver, b"x" * 32) == [b"x" * 32]

    def test_an_announced_size_alone_takes_little_memory(self) -> None:
        receivers = [FrameReceiver() for _ in range(64)]
        before_bytes = resident_bytes()
        for receiver in receivers:
            fill(receiver, (100 * MIB).to_bytes(4, "big"))
            assert len(receiver.get_buffer()) == 100 * MIB
        assert resident_bytes() - before_bytes < 200 * MIB

    def test_a_large_frame_is_received_into_one_buffer(self) -> None:
        receiver = FrameReceiver()
        body = bytes(range(256)) * (12 * MIB // 256)
        fill(receiver, len(body).to_bytes(4, "big"))
        memory = receiver.get_buffer().obj
        source, frames = memoryview(body), list[memoryview]()
        while source:
            room = receiver.get_buffer()
            assert room.obj is memory
            count = min(len(room), len(source), MIB)
            room[:count] = source[:count]
            source = source[count:]
            frames += receiver.buffer_updated(count)
        assert frames == [body]
        assert len(receiver.get_buffer()) > 0

    def test_the_start_of_a_frame_can_be_left_with_its_memory(self) -> None:
        receiver = FrameReceiver(buffer_bytes=16)
        fill(receiver, (100).to_bytes(4, "big") + b"begun")
        assert len(receiver.get_buffer()) == 95
        receiver.drop_partial()
        assert (receiver.partial_bytes, receiver.large_frame_bytes, len(receiver.get_buffer())) == (0, 0, 16)


class TestLargeFrames:
    def test_a_frame_that_fits_into_the_first_buffer_is_not_large(self) -> None:
        receiver = FrameReceiver(buffer_bytes=16)
        fill(receiver, b"\0\0\0\x0cabc")
        assert receiver.large_frame_bytes == 0

    def test_a_larger_one_is_told_with_its_size_until_it_is_whole(self) -> None:
        receiver = FrameReceiver(buffer_bytes=16)
        fill(receiver, b"\0\0\0\x0dabc")
        assert receiver.large_frame_bytes == 17
        fill(receiver, b"defg")
        assert receiver.large_frame_bytes == 17
        assert fill(receiver, b"hijklm") == [b"abcdefghijklm"]
        assert receiver.large_frame_bytes == 0

    def test_its_buffer_is_made_when_it_is_asked_for(self) -> None:
        receiver = FrameReceiver(buffer_bytes=16)
        room = receiver.get_buffer()
        room[:] = framed(b"12345678") + b"\0\0\0\x14"
        (frame,) = receiver.buffer_updated(16)
        assert (frame, receiver.large_frame_bytes, receiver.partial_bytes) == (b"12345678", 24, 4)
        assert len(receiver.get_buffer()) == 20

    def test_a_whole_one_leaves_its_buffer_to_its_frame(self) -> None:
        receiver = FrameReceiver(buffer_bytes=16)
        (frame,) = receiver.receive_data(framed(b"x" * 40))
        room = receiver.get_buffer()
        assert frame == b"x" * 40
        assert len(room) == 16
        assert room.obj is not frame.obj


class TestPartialFrames:
    def test_what_has_arrived_of_a_frame_is_copied_with_its_size(self) -> None:
        receiver = FrameReceiver()
        receiver.receive_data(b"\0\0\0\1a\0\0\0\3bc")
        assert receiver.partial() == b"\0\0\0\3bc"

    def test_between_frames_it_is_empty(self) -> None:
        receiver = FrameReceiver()
        receiver.receive_data(b"\0\0\0\1a")
        assert receiver.partial() == b""


class TestLimits:
    def test_a_frame_as_large_as_the_limit_is_taken(self) -> None:
        assert FrameReceiver(frame_bytes_max=5).receive_data(framed(b"12345")) == [b"12345"]

    @pytest.mark.parametrize("size", [b"\0\0\0\6", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0"])
    def test_a_size_beyond_the_limit_or_negative_is_malformed(self, size: bytes) -> None:
        with pytest.raises(MalformedRequest, match="at most 5"):
            FrameReceiver(frame_bytes_max=5).receive_data(size)


class TestBuffersOfFewBytes:
    """A receiver that is not roomy: its caller decides when it may take more."""

    def test_what_does_not_fit_is_a_large_frame_that_asks_for_a_buffer(self) -> None:
        receiver = FrameReceiver(buffer_bytes=64, buffer_bytes_first=16, is_roomy=False)
        assert fill(receiver, b"\0\0\0\x14abc") == []
        assert (receiver.large_frame_bytes, receiver.is_cramped) == (24, True)
        assert len(receiver.get_buffer()) == 17
        assert fill(receiver, b"x" * 17) == [b"abc" + b"x" * 17]
        assert (receiver.large_frame_bytes, receiver.is_cramped, len(receiver.get_buffer())) == (0, True, 16)

    def test_one_that_grows_takes_the_start_of_its_frame_along(self) -> None:
        receiver = FrameReceiver(buffer_bytes=64, buffer_bytes_first=16, is_roomy=False)
        fill(receiver, b"\0\0\0\x14abc")
        receiver.grow()
        assert (receiver.large_frame_bytes, receiver.is_cramped, receiver.is_roomy) == (0, False, True)
        assert len(receiver.get_buffer()) == 64 - 7
        assert fill(receiver, b"x" * 17) == [b"abc" + b"x" * 17]

    def test_a_frame_that_needs_its_own_memory_asks_for_no_buffer(self) -> None:
        receiver = FrameReceiver(buffer_bytes=64, buffer_bytes_first=16, is_roomy=False)
        fill(receiver, b"\0\0\0\x64abc")
        assert (receiver.large_frame_bytes, receiver.is_cramped) == (104, False)
        receiver.grow()
        assert (receiver.large_frame_bytes, len(receiver.get_buffer())) == (104, 97)

    def test_little_bytes_ask_for_none(self) -> None:
        receiver = FrameReceiver(buffer_bytes=64, buffer_bytes_first=16, is_roomy=False)
        for _ in range(5):
            assert fill(receiver, framed(b"beat")) == [b"beat"]
            assert not receiver.is_cramped

    def test_one_that_shrinks_leaves_its_buffer_unless_a_frame_is_arriving(self) -> None:
        receiver = FrameReceiver(buffer_bytes=64, buffer_bytes_first=16)
        fill(receiver, framed(b"12345678901") + b"\0")
        receiver.shrink()
        assert receiver.is_roomy
        fill(receiver, b"\0\0\0")
        receiver.shrink()
        assert (receiver.is_roomy, len(receiver.get_buffer())) == (False, 16)


def test_a_client_that_speaks_tls_is_named() -> None:
    with pytest.raises(MalformedRequest, match="the client speaks TLS"):
        FrameReceiver().receive_data(bytes.fromhex("16030102000100"))
