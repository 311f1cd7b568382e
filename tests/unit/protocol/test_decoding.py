"""Whatever bytes come, a decoder returns a value or raises `Undecodable` (safety rule S20)."""

import msgspec
import pytest

from protocol.decoding import (
    JsonDecoder,
    MsgpackDecoder,
    Undecodable,
    decode_json,
    decode_json_object,
    decode_number,
    decode_text,
    words,
)


class Pointer(msgspec.Struct):
    """What a damaged store may hold in the place of."""

    position: int
    key: str


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b'{"position": 7, "key": "a\xff"}',
        b'{"position": 7, "k\xffy": "a"}',
        b'{"position": 7.5, "key": "a"}',
        b'{"position": 1e999, "key": "a"}',
        b'{"position": 7, "key": "\\ud800"}',
        b'{"position": 7}',
        b'{"position": 7, "key": "a"} {}',
        b'{"position": 7, "key": ' + b"[" * 100_000,
        b'{"position": ' + b"9" * 100_000,
        b'{"more": ' + b'{"a":' * 100_000,
    ],
)
def test_json_that_is_not_the_value_is_undecodable(text: bytes) -> None:
    with pytest.raises(Undecodable):
        JsonDecoder(Pointer).decode(text)


def test_json_that_is_the_value_is_decoded() -> None:
    assert JsonDecoder(Pointer).decode(b'{"position": 7, "key": "a"}') == Pointer(position=7, key="a")
    assert JsonDecoder(Pointer).decode(msgspec.Raw(b'{"position": 7, "key": "a"}')) == Pointer(position=7, key="a")


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", b"\xa1\xff", b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff", b"\xd7\xff" + b"\xff" * 8, b"\x81\x80\x01"],
)
def test_messagepack_that_is_not_a_value_is_undecodable(data: bytes) -> None:
    with pytest.raises(Undecodable):
        MsgpackDecoder(object).decode(data)


def test_messagepack_is_decoded() -> None:
    assert MsgpackDecoder(list[int]).decode(b"\x92\x01\x02") == [1, 2]


def test_json_without_a_type() -> None:
    assert decode_json(b'[1, null, {"a": true}]') == [1, None, {"a": True}]
    assert decode_json_object('{"a": [1.5]}') == {"a": [1.5]}
    for text in (b"[]", b"null", b'{"a": NaN}', b'"\xff"', b"[" * 100_000):
        with pytest.raises(Undecodable):
            decode_json_object(text)


def test_text_is_utf_8() -> None:
    assert decode_text(b"a-\xc3\xa9") == "a-\xe9"
    with pytest.raises(Undecodable):
        decode_text(b"agent-\xff")


@pytest.mark.parametrize("data", [b"", b"-1", b"+1", b" 1", b"1_0", b"0x1", b"1" * 21, b"abc", "\u0663".encode()])
def test_what_is_no_number_in_digits_is_undecodable(data: bytes) -> None:
    with pytest.raises(Undecodable):
        decode_number(data)


def test_a_number_is_decoded_in_its_base() -> None:
    assert decode_number(b"0042") == 42
    assert decode_number(b"00ff", base=16) == 255


def test_an_error_that_says_little_is_told_with_its_kind() -> None:
    assert words(KeyError("topic")) == "KeyError('topic')"
    assert words(msgspec.ValidationError("Expected `int`")) == "Expected `int`"
