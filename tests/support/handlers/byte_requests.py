"""Requests made from the bytes of their bodies, and answers as bytes or read by kio."""

from collections.abc import Sequence
from typing import TypeVar

from kio.serial import entity_reader
from kio.static.protocol import Entity

from agent.request.services import Request
from protocol.connection import RequestFrame
from storage.object_store import Buffer

E = TypeVar("E", bound=Entity)


def request(api_key: int, version: int, body: bytes) -> Request:
    """A request whose body, behind the header, has these bytes."""
    frame = RequestFrame(
        number=0,
        api_key=api_key,
        api_version=version,
        correlation_id=5,
        client_id="",
        header_bytes=10,
        body=memoryview(body),
    )
    return Request(frame=frame, listener="PLAINTEXT", peer="p")


def joined(answer: Sequence[Buffer]) -> bytes:
    """The bytes of an answer, its correlation id first."""
    return b"".join(bytes(part) for part in answer)


def read(entity_type: type[E], answer: Sequence[Buffer] | None, header_bytes: int = 4) -> E:
    """The answer as kio reads it behind its header."""
    assert answer is not None
    entity, _ = entity_reader(entity_type)(memoryview(joined(answer)), header_bytes)
    return entity
