"""The codec of all messages but the hot ones: requests as kio's entities, responses from plain mappings.

A handler names the fields of every version. A field that the request's version lacks is left out. One that the handler
does not name takes the schema's default, and the throttle time is 0.
"""

import datetime
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, Final

from kio.index import load_payload_module
from kio.static.constants import EntityType
from kio.static.primitive import i32Timedelta

from agent.runtime.yielding import inline_or_in_thread, rows_at_most
from protocol.connection import RequestFrame
from protocol.errors import ErrorCode
from protocol.limits import INLINE_ROWS_MAX
from protocol.messages import read_request, write_response
from storage.object_store import Buffer

Values = Mapping[str, Any]
"""The fields of a response by their names. Structures are dictionaries, arrays are lists or tuples."""
NO_TIME = i32Timedelta.parse(datetime.timedelta(0))
NUMBERS_PER_ROW: Final = 8
"""So many numbers or strings of an array take about as long to write as one structure."""


async def decode(frame: RequestFrame) -> Any:
    """The request as kio's entity of its version. Copies what it needs and releases the frame's bytes.

    Raises `MalformedRequest`: close the connection.
    """
    body = await inline_or_in_thread(rows_at_most(frame.body), read_request, frame)
    frame.leave_body()
    return body


def encode(frame: RequestFrame, values: Values) -> list[Buffer]:
    """The bytes of the response to `frame`, in its version."""
    return write_response(frame, entity(frame.api_key, frame.api_version, values))


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


def entity(api_key: int, version: int, values: Values) -> Any:
    """The response entity of an API in a version. Nested mappings become nested entities, sequences tuples."""
    return _builder(_response_type(api_key, version))(values)


@cache
def _response_type(api_key: int, version: int) -> type:
    module = load_payload_module(api_key, version, EntityType.response)
    response_types = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and getattr(value, "__type__", None) is EntityType.response
    ]
    assert len(response_types) == 1, f"{module.__name__} has {len(response_types)} response types"
    return response_types[0]


@cache
def _builder(entity_type: type) -> Callable[[Values], Any]:
    hints = typing.get_type_hints(entity_type)
    converters = {f.name: _converter(hints[f.name]) for f in fields(entity_type)}
    required = {f.name for f in fields(entity_type) if f.default is MISSING and f.default_factory is MISSING}
    needs_throttle_time = "throttle_time" in required

    def build(values: Values) -> Any:
        arguments = {name: converters[name](value) for name, value in values.items() if name in converters}
        if needs_throttle_time and "throttle_time" not in arguments:
            arguments["throttle_time"] = NO_TIME
        return entity_type(**arguments)

    return build


def _converter(hint: Any) -> Callable[[Any], Any]:
    origin = typing.get_origin(hint)
    if origin is tuple:
        element = _converter(typing.get_args(hint)[0])
        return lambda value: tuple(element(item) for item in value)
    if origin in (typing.Union, types.UnionType):
        inner = [_converter(h) for h in typing.get_args(hint) if h is not type(None)]
        return lambda value: None if value is None else inner[0](value)
    if hasattr(hint, "__type__"):
        return _builder(hint)
    if hint is ErrorCode:
        return ErrorCode
    return lambda value: value
