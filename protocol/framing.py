"""Frames: an int32 size, then that many bytes; and the memory they are received into.

Rule: memory that a frame was given out of is never written again. Frames are views of the receive buffers and live as
long as someone holds them (produced records: until they are durable), so a buffer is only ever filled from front to
back, and left to its frames when it is full.
Specification: https://kafka.apache.org/protocol#protocol_common
"""

from typing import Final

import numpy as np

from protocol.errors import MalformedRequest
from protocol.limits import RECEIVE_BUFFER_BYTES, RECEIVE_BUFFER_FIRST_BYTES, REQUEST_BYTES_MAX
from protocol.wire import INT32, Buffer

SIZE_BYTES: Final = 4
TLS_RECORD_START: Final = 0x160301
"""The first bytes of a TLS connection: a handshake record (RFC 8446, 5.1)."""
"""The size prefix of a frame."""


class FrameReceiver:
    """Turns received bytes into frames.

    Invariant between calls: `_first <= _end <= len(_view)`, and `[_first, _end)` holds less than one whole frame; at
    the end of the view stands only a frame that is larger than a buffer.
    """

    __slots__ = (
        "_buffer_bytes",
        "_buffer_bytes_first",
        "_end",
        "_first",
        "_frame_bytes_max",
        "_view",
        "is_cramped",
        "is_roomy",
        "large_frame_bytes",
    )

    def __init__(
        self,
        *,
        frame_bytes_max: int = REQUEST_BYTES_MAX,
        buffer_bytes: int = RECEIVE_BUFFER_BYTES,
        buffer_bytes_first: int = RECEIVE_BUFFER_FIRST_BYTES,
        is_roomy: bool = True,
    ) -> None:
        """Buffers have `buffer_bytes`, but `buffer_bytes_first` where that is less and little arrives at once.

        One that is not roomy has buffers of `buffer_bytes_first` alone, until `grow`: a frame that does not fit into
        such a buffer is a large one. The caller decides by the memory that all receivers take.
        """
        self._frame_bytes_max = frame_bytes_max
        self._buffer_bytes = buffer_bytes
        self._buffer_bytes_first = min(buffer_bytes, buffer_bytes_first)
        self._view = memoryview(bytearray(self._buffer_bytes_first))
        self._first = 0
        self._end = 0
        self.is_roomy = is_roomy
        """Whether buffers of `buffer_bytes` may be taken."""
        self.is_cramped = False
        """Whether the last bytes would have brought such a buffer, if this receiver were roomy."""
        self.large_frame_bytes = 0
        """The bytes of the frame that is arriving, with its size, where it needs a buffer of its own; 0 where it needs
        none.

        `get_buffer` allocates that buffer: a caller that has no memory for it yet does not call it.
        """

    @property
    def partial_bytes(self) -> int:
        """Bytes of a frame that has not arrived whole. Not 0 when the peer closes: it was cut off."""
        return self._end - self._first

    def partial(self) -> bytes:
        """A copy of what has arrived of a frame, with its size."""
        return bytes(self._view[self._first : self._end])

    def get_buffer(self) -> memoryview:
        """Where to put what arrives next; at least one byte long."""
        large = self.large_frame_bytes
        if large and self._first + large > len(self._view):
            # Not filled with zeros: the machine gives the memory as bytes arrive, and a stalled frame takes little.
            self._move(np.empty(large, np.uint8).data)
        return self._view[self._end :]

    def buffer_updated(self, count: int) -> list[memoryview]:
        """The frames that are complete now that `count` bytes stand in the buffer, without their size.

        Raises:
            MalformedRequest: a size is negative or above the limit. Close the connection.
        """
        view, first = self._view, self._first
        self._end = end = self._end + count
        frames: list[memoryview] = []
        needed_bytes = SIZE_BYTES
        while end - first >= SIZE_BYTES:
            (frame_bytes,) = INT32.unpack_from(view, first)
            if not 0 <= frame_bytes <= self._frame_bytes_max:
                if frame_bytes >> 8 == TLS_RECORD_START:
                    raise MalformedRequest("the client speaks TLS, and this listener does not")
                raise MalformedRequest(f"a frame of {frame_bytes} bytes; at most {self._frame_bytes_max} are accepted")
            needed_bytes = SIZE_BYTES + frame_bytes
            if end - first < needed_bytes:
                break
            frames.append(view[first + SIZE_BYTES : first + needed_bytes])
            first += needed_bytes
            needed_bytes = SIZE_BYTES
        self._first = first
        is_full = first + needed_bytes > len(view)
        is_little = max(needed_bytes, 2 * count) <= self._buffer_bytes_first
        self.is_cramped = is_full and not is_little and not self.is_roomy and needed_bytes <= self._buffer_bytes
        self.large_frame_bytes = needed_bytes if needed_bytes > self._whole_frame_bytes else 0
        if is_full and not self.large_frame_bytes:
            self._move(memoryview(bytearray(self._buffer_bytes_first if is_little else self._whole_frame_bytes)))
        return frames

    def grow(self) -> None:
        """Take buffers of `buffer_bytes` from now on, the first of them at once."""
        self.is_roomy, self.is_cramped = True, False
        if self.large_frame_bytes <= self._buffer_bytes:
            self.large_frame_bytes = 0
            self._move(memoryview(bytearray(self._buffer_bytes)))

    def shrink(self) -> None:
        """Leave the buffer, and take small ones from now on. Nothing happens while a frame is arriving."""
        if self._first == self._end:
            self.is_roomy = False
            self.drop_partial()

    def receive_data(self, data: Buffer) -> list[memoryview]:
        """Like `get_buffer` and `buffer_updated`, for bytes that stand elsewhere. They are copied."""
        source = memoryview(data)
        frames: list[memoryview] = []
        while source:
            room = self.get_buffer()
            count = min(len(room), len(source))
            room[:count] = source[:count]
            source = source[count:]
            frames += self.buffer_updated(count)
        return frames

    def drop_partial(self) -> None:
        """Leaves the start of a frame whose rest is not going to be received, and its memory."""
        self._view = memoryview(bytearray(self._buffer_bytes_first))
        self._first = self._end = self.large_frame_bytes = 0

    @property
    def _whole_frame_bytes(self) -> int:
        """The bytes that a frame may take, with its size, in a buffer that is not its own."""
        return self._buffer_bytes if self.is_roomy else self._buffer_bytes_first

    def _move(self, view: memoryview) -> None:
        """Goes on in new memory, taking along the start of the frame that did not fit."""
        start = self._view[self._first : self._end]
        view[: len(start)] = start
        self._view = view
        self._first, self._end = 0, len(start)
