"""Decodes requests and encodes responses: on the loop where that takes little time, in a thread where it takes more."""

from typing import Any

from agent.runtime.threads import run_in_thread
from agent.runtime.yielding import rows_at_most
from protocol.connection import RequestFrame
from protocol.limits import INLINE_ROWS_MAX
from protocol.messages import Values, count_rows, read_request, write_response
from storage.object_store import Buffer

__all__ = ["Values", "decode", "encode", "encode_yielding"]


async def decode(frame: RequestFrame) -> Any:
    """The request, with the fields of its version. Copies what it needs and releases the frame's bytes.

    Raises `MalformedRequest`: close the connection.
    """
    is_small = rows_at_most(frame.body) <= INLINE_ROWS_MAX
    body = read_request(frame) if is_small else await run_in_thread(read_request, frame)
    frame.leave_body()
    return body


def encode(frame: RequestFrame, values: Values) -> list[Buffer]:
    """The bytes of the response to `frame`, in its version."""
    return write_response(frame, values)


async def encode_yielding(frame: RequestFrame, values: Values) -> list[Buffer]:
    """The same bytes; a thread makes them where there are many rows. The caller does not change `values` meanwhile."""
    is_small = count_rows(frame, values) <= INLINE_ROWS_MAX
    return encode(frame, values) if is_small else await run_in_thread(encode, frame, values)
