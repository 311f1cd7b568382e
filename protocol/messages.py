"""All messages but the hot ones: requests become structures with kio's fields, responses are made of plain mappings.

A codec is generated from kio's schema (`protocol.codecs`) when the first message of its API and version comes, and
kept. Property tests hold each codec to kio.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from kio.index import load_payload_module, load_request_schema
from kio.static.constants import EntityType
from kio.static.protocol import ResponsePayload

from protocol.api_versions import name_of
from protocol.codecs.reader import RequestReader, request_reader
from protocol.codecs.row_counter import RowCounter, row_counter
from protocol.codecs.schema import structure_schema
from protocol.codecs.writer import ResponseWriter, response_writer
from protocol.connection import RequestFrame
from protocol.errors import MalformedRequest
from protocol.limits import INLINE_ROWS_MAX, REQUEST_METADATA_BYTES_MAX
from protocol.wire import INT32, UNREADABLE, Buffer

Values = Mapping[str, Any]
"""The fields of a response by their names. Structures are mappings, arrays are lists or tuples."""
_NO_CORRELATION_ID: Final = 0


def read_request(frame: RequestFrame) -> object:
    """The request, with the fields of kio's entity of its API and version. Bytes behind it are ignored, as in Kafka.

    Args:
        frame: in a version that is served (an ApiVersions request in another one is answered without being read).

    Raises:
        MalformedRequest: close the connection.
    """
    if len(frame.body) > REQUEST_METADATA_BYTES_MAX:
        raise MalformedRequest(f"{len(frame.body)} bytes for API {frame.api_key}; at most {REQUEST_METADATA_BYTES_MAX}")
    read = _request_reader(frame.api_key, frame.api_version)
    try:
        # A copy: bytes are read faster than a view of them, and what is slices of them is copied only once more.
        return read(bytes(frame.body))
    except UNREADABLE as error:
        name = name_of(frame.api_key)
        raise MalformedRequest(f"{name} version {frame.api_version} cannot be read: {error}") from error


def write_response(frame: RequestFrame, values: Values) -> list[Buffer]:
    """Response header and body, ready for `ServerConnection.respond`, in the version of the request."""
    return [_response_writer(frame.api_key, frame.api_version)(frame.correlation_id, values)]


def count_rows(frame: RequestFrame, values: Values) -> int:
    """The number of structures in a response. Stops counting beyond `INLINE_ROWS_MAX`, so that it is cheap."""
    return _row_counter(frame.api_key, frame.api_version)(values)


def write_body(api_key: int, api_version: int, values: Values) -> bytes:
    """A response without its header, which must have no tagged fields: that of ApiVersions."""
    return bytes(_response_writer(api_key, api_version)(_NO_CORRELATION_ID, values)[INT32.size :])


@cache
def _request_reader(api_key: int, api_version: int) -> RequestReader:
    schema = load_request_schema(api_key, api_version)
    return request_reader(structure_schema(schema), f"{schema.__name__} version {api_version}")


@cache
def _response_writer(api_key: int, api_version: int) -> ResponseWriter:
    """The header's version is the one that the entity's version has: 0 for every ApiVersions answer (KIP-511)."""
    entity_type = response_type(api_key, api_version)
    return response_writer(
        structure_schema(entity_type),
        f"{entity_type.__name__} version {api_version}",
        has_tags_in_header=entity_type.__header_schema__.__flexible__,
    )


@cache
def _row_counter(api_key: int, api_version: int) -> RowCounter:
    entity_type = response_type(api_key, api_version)
    title = f"rows of {entity_type.__name__} version {api_version}"
    return row_counter(structure_schema(entity_type), title, rows_max=INLINE_ROWS_MAX)


def response_type(api_key: int, api_version: int) -> type[ResponsePayload]:
    """kio's entity of an API's response in a version."""
    module = load_payload_module(api_key, api_version, EntityType.response)
    (entity_type,) = (
        value
        for value in vars(module).values()
        if isinstance(value, type) and getattr(value, "__type__", None) is EntityType.response
    )
    return entity_type
