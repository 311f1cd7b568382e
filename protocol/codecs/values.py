"""Functions that generated codecs call: for values whose form in Python is not that on the wire, and bad lengths."""

import struct
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, NoReturn, Protocol

from kio.static.constants import uuid_zero

from protocol.errors import MalformedRequest
from protocol.limits import ARRAY_LENGTH_MAX, NUMBER_PACKERS_MAX
from protocol.wire import NO_UUID

_MILLISECOND: Final = timedelta(milliseconds=1)
_TIMEDELTA_FIRST_MS: Final = timedelta.min // _MILLISECOND
_TIMEDELTA_LAST_MS: Final = timedelta.max // _MILLISECOND
_UUID: Final = type(uuid_zero)


class Uuid(Protocol):
    """An id as kio has it: no module of the core makes ids, so none imports `uuid`."""

    @property
    def bytes(self) -> bytes:
        """The id's 16 bytes."""
        ...


def uuid_of(data: bytes) -> Uuid | None:
    """The id in 16 bytes; None for Kafka's ZERO_UUID."""
    return None if data == NO_UUID else _UUID(bytes=data)


def uuid_bytes(uuid: Uuid | None) -> bytes:
    """The 16 bytes of an id; Kafka's ZERO_UUID for None."""
    return NO_UUID if uuid is None else uuid.bytes


def long_time(value_ms: int) -> timedelta:
    """The time of an int64 in milliseconds, at most what a timedelta holds, 2.7 million years either way."""
    return timedelta(milliseconds=min(max(value_ms, _TIMEDELTA_FIRST_MS), _TIMEDELTA_LAST_MS))


def time_ms(time: timedelta) -> int:
    """The milliseconds of a time."""
    return round(time.total_seconds() * 1000)


def datetime_ms(instant: datetime | None) -> int:
    """The milliseconds since 1970; -1 for None."""
    return -1 if instant is None else round(instant.timestamp() * 1000)


def reject_text(length: int, remaining_bytes: int) -> NoReturn:
    """Raises `MalformedRequest` for the length of a text or of bytes that is null, or beyond the end."""
    if length < 0:
        raise MalformedRequest("a text is null, or bytes are, that must not be")
    raise MalformedRequest(f"a text, or bytes, of {length} bytes, but {remaining_bytes} remain")


def reject_array(length: int, remaining_bytes: int) -> NoReturn:
    """Raises `MalformedRequest` for the length of an array that is null, or beyond the end."""
    if length < 0:
        raise MalformedRequest("an array is null that must not be")
    raise MalformedRequest(f"an array of {length} elements, but {remaining_bytes} bytes remain")


def reject_elements() -> NoReturn:
    """Raises `MalformedRequest` for a message with too many elements."""
    raise MalformedRequest(f"more than {ARRAY_LENGTH_MAX} elements in one request")


class NumberPackers(dict[int, Callable[..., bytes]]):
    """The packer for each number of numbers in an array: it takes the length as it is on the wire, and the numbers."""

    def __init__(self, length_format: str, number_format: str) -> None:
        self._length_format = length_format
        self._number_format = number_format

    def __missing__(self, count: int) -> Callable[..., bytes]:
        pack = struct.Struct(f">{self._length_format}{count}{self._number_format}").pack
        if count <= NUMBER_PACKERS_MAX:
            self[count] = pack
        return pack
