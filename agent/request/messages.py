"""Decodes requests and encodes responses: on the loop where that takes little time, in a thread where it takes more."""

from typing import Any, Final

from agent.runtime.yielding import inline_or_in_thread, rows_at_most
from protocol.connection import RequestFrame
from protocol.limits import INLINE_ROWS_MAX
from protocol.messages import Values, read_request, write_response
from storage.object_store import Buffer

__all__ = ["NUMBERS_PER_ROW", "Values", "decode", "encode", "encode_yielding", "row_count"]

NUMBERS_PER_ROW: Final = 8
"""So many numbers or strings of an array take about as long to write as one structure."""


async def decode(frame: RequestFrame) -> Any:
    """The request, with the fields of its version. Copies what it needs and releases the frame's bytes.

    Raises `MalformedRequest`: close the connection.
    """
    body = await inline_or_in_thread(rows_at_most(frame.body), read_request, frame)
    frame.leave_body()
    return body


def encode(frame: RequestFrame, values: Values) -> list[Buffer]:
    """The bytes of the response to `frame`, in its version."""
    return write_response(frame, values)


async def encode_yielding(frame: RequestFrame, values: Values) -> list[Buffer]:
    """The same bytes; a thread makes them where there are many rows. The caller does not change `values` meanwhile."""
    return await inline_or_in_thread(row_count(values), encode, frame, values)


def row_count(values: Values) -> int:
    """The number of structures in a response. Stops counting beyond `INLINE_ROWS_MAX`, so that it is cheap."""
    count = 0
    pending: list[Any] = [values]
    while pending:
        for value in pending.pop().values():
            kind = type(value)
            if kind is dict:
                pending.append(value)
            elif (kind is list or kind is tuple) and value:
                has_structures = type(value[0]) is dict
                count += len(value) if has_structures else len(value) // NUMBERS_PER_ROW
                if count > INLINE_ROWS_MAX:
                    return count
                if has_structures:
                    pending += value
    return count
