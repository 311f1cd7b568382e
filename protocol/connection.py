"""One client connection on the server's side, without I/O: bytes in, requests out; answers in, bytes out in order.

Rule: requests are numbered as they come; answers may be given in any order and leave in the order of the requests
(a client matches them by position). After `MalformedRequest` nothing more is read: close the connection.
Specification: https://kafka.apache.org/protocol#protocol_network; org.apache.kafka.common.requests.RequestHeader.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from protocol.api_versions import FLEXIBLE_REQUESTS, ApiKey
from protocol.errors import MalformedRequest
from protocol.framing import FrameReceiver
from protocol.limits import RECEIVE_BUFFER_BYTES, REQUEST_BYTES_MAX, REQUESTS_PIPELINED_MAX
from protocol.wire import INT32, UNREADABLE, Buffer, read_tagged_fields

NO_BODY: Final = memoryview(b"")
_HEADER_START: Final = struct.Struct(">hhih")
"""API key, API version, correlation id, length of the client id (in every version an int16, KIP-482)."""


@dataclass(slots=True, kw_only=True)
class RequestFrame:
    """One request: its header, and the body as it came."""

    number: int
    """0, 1, 2... on this connection."""
    api_key: int
    api_version: int
    """A served version. ApiVersions may come in any version, and its answer lists the served ones (KIP-511)."""
    correlation_id: int
    client_id: str
    """Empty where the client sent null, as in Kafka."""
    header_bytes: int
    body: memoryview
    """A view of the receive buffer, never written again; holding it keeps that buffer (128 KiB or more) in memory."""

    def leave_body(self) -> None:
        """The body was read and is not needed again."""
        self.body = NO_BODY


def read_request_frame(number: int, frame: memoryview) -> RequestFrame:
    """The request in a frame.

    Raises:
        MalformedRequest: the header is cut off, or the API or its version is not served. Close the connection.
    """
    try:
        api_key, api_version, correlation_id, client_id_bytes = _HEADER_START.unpack_from(frame)
        position = _HEADER_START.size + max(client_id_bytes, 0)
        if position > len(frame):
            raise MalformedRequest(f"a client id of {client_id_bytes} bytes in a frame of {len(frame)}")
        client_id = str(frame[_HEADER_START.size : position], "utf-8", "replace")
        is_flexible = FLEXIBLE_REQUESTS.get((api_key, api_version))
        if is_flexible is None and api_key != ApiKey.API_VERSIONS:
            raise MalformedRequest(f"API {api_key} version {api_version} is not served")
        # What follows in an unknown version of ApiVersions is unknown too, and is not read (KIP-511).
        if is_flexible:
            _, position = read_tagged_fields(frame, position)
    except UNREADABLE as error:
        raise MalformedRequest(f"a request header is cut off after {len(frame)} bytes") from error
    return RequestFrame(
        number=number,
        api_key=api_key,
        api_version=api_version,
        correlation_id=correlation_id,
        client_id=client_id,
        header_bytes=position,
        body=frame[position:],
    )


class ServerConnection:
    """Requests in, answers out.

    The shell asks `get_buffer`, fills it, calls `buffer_updated`, hands the requests on, and later calls `respond` (or
    `skip`) once for each number and sends what that returns. While `is_reading_paused` it does not read the socket.
    """

    __slots__ = (
        "_answers",
        "_received_count",
        "_receiver",
        "_requests_pipelined_max",
        "_sent_count",
        "large_frame_bytes",
    )

    def __init__(
        self,
        *,
        request_bytes_max: int = REQUEST_BYTES_MAX,
        requests_pipelined_max: int = REQUESTS_PIPELINED_MAX,
        receive_buffer_bytes: int = RECEIVE_BUFFER_BYTES,
        is_roomy: bool = True,
    ) -> None:
        self._receiver = FrameReceiver(
            frame_bytes_max=request_bytes_max, buffer_bytes=receive_buffer_bytes, is_roomy=is_roomy
        )
        self._requests_pipelined_max = requests_pipelined_max
        self._received_count = 0
        self._sent_count = 0
        self._answers: dict[int, list[Buffer]] = {}
        self.large_frame_bytes = 0
        """The bytes of the request that is arriving, where it needs a buffer of its own, else 0.

        `get_buffer` makes that buffer: until there is memory for it the socket is not read.
        """

    @property
    def is_roomy(self) -> bool:
        """Whether requests arrive in a buffer of `receive_buffer_bytes`; else in one of a few KiB (`grow`)."""
        return self._receiver.is_roomy

    @property
    def is_cramped(self) -> bool:
        """Whether the last bytes ask for such a buffer, and this connection has none."""
        return self._receiver.is_cramped

    @property
    def requests_received(self) -> int:
        """Requests that arrived whole: the number of the one that arrives next."""
        return self._received_count

    @property
    def requests_waiting(self) -> int:
        """Requests given out whose answers have not left."""
        return self._received_count - self._sent_count

    @property
    def is_reading_paused(self) -> bool:
        """Whether the socket must not be read for now. What one read brought is always given out whole."""
        return self._received_count - self._sent_count >= self._requests_pipelined_max

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Where to put what arrives next; at least one byte long. The hint is not needed."""
        del size_hint
        return self._receiver.get_buffer()

    def buffer_updated(self, count: int) -> list[RequestFrame]:
        """The requests that are complete now that `count` bytes stand in the buffer.

        Raises:
            MalformedRequest: the client does not speak the protocol. Close the connection; requests of the same call
                that stood before the fault are not given out.
        """
        return self._number(self._receiver.buffer_updated(count))

    def receive_data(self, data: Buffer) -> list[RequestFrame]:
        """Like `get_buffer` and `buffer_updated`, for bytes that stand elsewhere."""
        return self._number(self._receiver.receive_data(data))

    def receive_eof(self) -> int:
        """Bytes of a request that was cut off when the client closed; 0 where it closed between requests."""
        return self._receiver.partial_bytes

    def grow(self) -> None:
        """Receive into buffers of `receive_buffer_bytes` from now on."""
        self._receiver.grow()
        self.large_frame_bytes = self._receiver.large_frame_bytes

    def shrink(self) -> None:
        """Receive into small buffers again, and leave the large one. Nothing happens while a request is arriving."""
        self._receiver.shrink()

    def drop_partial(self) -> None:
        """Leave the memory of a request that is not going to arrive."""
        self._receiver.drop_partial()
        self.large_frame_bytes = 0

    def respond(self, number: int, buffers: Sequence[Buffer]) -> list[Buffer]:
        """The answers that may be sent now: this one and those behind it, or nothing while an earlier one is missing.

        Args:
            number: of the request.
            buffers: response header and body. They are passed on, not copied.
        """
        response_bytes = 0
        for buffer in buffers:
            response_bytes += len(buffer) if type(buffer) is bytes else memoryview(buffer).nbytes
        return self._answer(number, [INT32.pack(response_bytes), *buffers])

    def skip(self, number: int) -> list[Buffer]:
        """Like `respond`, for a request that has no answer (Produce with acks=0)."""
        return self._answer(number, [])

    def _number(self, frames: list[memoryview]) -> list[RequestFrame]:
        self.large_frame_bytes = self._receiver.large_frame_bytes
        if not frames:
            return []
        number = self._received_count
        requests = [read_request_frame(number + index, frame) for index, frame in enumerate(frames)]
        self._received_count += len(requests)
        return requests

    def _answer(self, number: int, answer: list[Buffer]) -> list[Buffer]:
        answers, next_number = self._answers, self._sent_count
        assert next_number <= number < self._received_count, f"request {number} does not wait for an answer"
        assert number not in answers, f"request {number} has been answered"
        if number != next_number:
            answers[number] = answer
            return []
        ready = answer
        next_number += 1
        while (behind := answers.pop(next_number, None)) is not None:
            ready += behind
            next_number += 1
        self._sent_count = next_number
        return ready
