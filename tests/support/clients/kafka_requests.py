"""Asks an agent anything that Kafka's protocol has, field by field, and gives its answer as it was told.

Rule: nothing is repeated, remembered or looked up, so what one agent says is what a test sees. Requests are nested
mappings in the names of kio's entities; what is not named has the schema's default.
"""

import dataclasses
import io
import socket
import struct
import typing
from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from protocol.api_versions import range_of

Entity = Any
"""A message of kio's, a part of one, or its type."""
ANSWER_SECONDS_MAX = 60.0
CORRELATION_ID = 7


class Broken(Exception):
    """The agent closed the connection instead of answering."""


def ask(bootstrap: str, api_key: int, version: int, values: Mapping[str, Any]) -> Entity:
    """The answer, as kio's entity. Raises `Broken`."""
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS_MAX) as connection:
        connection.sendall(framed(api_key, version, values))
        return read_answer(read_frame(connection), api_key, version)


def framed(api_key: int, version: int, values: Mapping[str, Any], client_id: str | None = None) -> bytes:
    """The request's bytes, with its length in front."""
    row = range_of(api_key)
    assert row is not None, f"API {api_key} is not served"
    out = io.BytesIO()
    name = (client_id or "").encode()
    out.write(struct.pack(">hhih", api_key, version, CORRELATION_ID, -1 if client_id is None else len(name)) + name)
    if row.is_flexible(version):
        out.write(b"\0")
    entity = made(load_request_schema(api_key, version), values)
    entity_writer(type(entity))(out, entity)
    request = out.getvalue()
    return struct.pack(">i", len(request)) + request


def read_answer(answer: bytes, api_key: int, version: int) -> Entity:
    """An answer behind its length, as kio's entity."""
    schema = load_response_schema(api_key, version)
    assert answer[:4] == struct.pack(">i", CORRELATION_ID), "an answer to another request"
    header_bytes = 5 if schema.__header_schema__.__flexible__ else 4
    entity, _ = entity_reader(schema)(answer, header_bytes)
    return entity


def made(schema: Entity, values: Mapping[str, Any]) -> Entity:
    """An entity out of nested mappings and sequences; names that its version lacks are left out."""
    hints = typing.get_type_hints(schema)
    known = {field.name for field in dataclasses.fields(schema)}
    return schema(**{name: _made(hints[name], value) for name, value in values.items() if name in known})


def _made(hint: Entity, value: Entity) -> Entity:
    if typing.get_origin(hint) in (UnionType, typing.Union):
        (hint,) = (each for each in typing.get_args(hint) if each is not NoneType)
    if typing.get_origin(hint) is tuple and isinstance(value, Sequence):
        return tuple(_made(typing.get_args(hint)[0], each) for each in value)
    return made(hint, value) if isinstance(value, Mapping) else value


def read_frame(connection: socket.socket) -> bytes:
    """An answer behind its length. Raises `Broken`."""
    (byte_count,) = struct.unpack(">i", _exactly(connection, 4))
    return _exactly(connection, byte_count)


def _exactly(connection: socket.socket, byte_count: int) -> bytes:
    received = bytearray()
    while len(received) < byte_count:
        try:
            some = connection.recv(byte_count - len(received))
        except ConnectionResetError as error:
            raise Broken("the connection was reset") from error
        if not some:
            raise Broken(f"the connection ended after {len(received)} of {byte_count} bytes")
        received += some
    return bytes(received)
