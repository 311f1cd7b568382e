"""Decodes bytes that come from outside this process: from a store, from the ledger, from an HTTP body.

Safety rule S20: stored bytes are checked before they are believed. One flipped bit makes a decoder raise more than its
own errors: msgspec raises `UnicodeDecodeError` for a string that is not UTF-8 and `RecursionError` for values that are
nested too deeply. Here all of them become `Undecodable`, and the adapter maps it to the error that names the object and
the remedy: `LedgerCorrupt`, `TableUnreadable`, an HTTP status. No other module creates a decoder
(tests/architecture/test_tidy.py).

Specification: RFC 8259 (JSON), the MessagePack specification; msgspec's documentation, "Errors".
"""

import struct
from typing import Final, Generic, TypeVar

import msgspec

T = TypeVar("T")

_U64_DIGITS: Final = 20
"""Digits of a number of 64 bits in decimal."""

DAMAGE: Final = (
    ValueError,  # msgspec.MsgspecError and UnicodeError are such, and an enum's unknown number
    RecursionError,
    ArithmeticError,  # OverflowError: a number that no array of 64 bits holds
    LookupError,
    TypeError,
    AttributeError,
    EOFError,
    struct.error,
)
"""Whatever building a value out of damaged bytes may raise, of the decoder and of the constructors behind it."""


class Undecodable(ValueError):
    """Bytes that do not hold the value that they should. The caller names the object, and what people can do."""


class JsonDecoder(Generic[T]):
    """Decodes JSON to values of one type. Make one for each type, once."""

    def __init__(self, kind: type[T]) -> None:
        self._decoder = msgspec.json.Decoder(kind)

    def decode(self, data: bytes | memoryview | str | msgspec.Raw) -> T:
        """The value of a JSON text in UTF-8. Raises `Undecodable`."""
        try:
            return self._decoder.decode(data)
        except DAMAGE as error:
            raise Undecodable(words(error)) from error


class MsgpackDecoder(Generic[T]):
    """Decodes MessagePack to values of one type. Make one for each type, once."""

    def __init__(self, kind: type[T]) -> None:
        self._decoder = msgspec.msgpack.Decoder(kind)

    def decode(self, data: bytes | memoryview) -> T:
        """The value. Raises `Undecodable`."""
        try:
            return self._decoder.decode(data)
        except DAMAGE as error:
            raise Undecodable(words(error)) from error


_any_decoder = JsonDecoder(object)
_object_decoder = JsonDecoder(dict[str, object])


def decode_json(data: bytes | str | msgspec.Raw) -> object:
    """Any JSON value, as dicts, lists, strings, numbers, booleans and None. Raises `Undecodable`."""
    return _any_decoder.decode(data)


def decode_json_object(data: bytes | str | msgspec.Raw) -> dict[str, object]:
    """A JSON object. Raises `Undecodable`."""
    return _object_decoder.decode(data)


def decode_text(data: bytes) -> str:
    """Text in UTF-8. Raises `Undecodable`."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Undecodable(words(error)) from error


def decode_number(data: bytes, *, base: int = 10) -> int:
    """A number that is not negative, in ASCII digits, at most 20 of them. Raises `Undecodable`."""
    # int() by itself would take signs, spaces, underscores and digits of other scripts.
    if not 0 < len(data) <= _U64_DIGITS or not data.isalnum():
        raise Undecodable(f"{data[:_U64_DIGITS]!r} is not a number of {_U64_DIGITS} digits at most")
    try:
        return int(data, base)
    except ValueError as error:
        raise Undecodable(words(error)) from error


def words(error: Exception) -> str:
    """The text of an error, with its kind where it says little: `KeyError('topic')` says 'topic' alone."""
    return str(error) if isinstance(error, msgspec.MsgspecError) else repr(error)
