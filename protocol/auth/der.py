"""A reader of DER, as far as certificates are read here. Pure.

Lengths are definite, and tags have one byte, as in every certificate (RFC 5280).
Specification: ITU-T X.690.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

SEQUENCE: Final = 0x30
SET: Final = 0x31
OBJECT_IDENTIFIER: Final = 0x06
CONTEXT_0: Final = 0xA0


class InvalidDer(ValueError):
    """The bytes are not DER, or not of the expected form."""


class Element(NamedTuple):
    """One element: its tag, its contents, and the whole encoding."""

    tag: int
    contents: bytes
    encoding: bytes


def elements(data: bytes) -> Iterator[Element]:
    """The elements that follow each other in `data`. Raises `InvalidDer`."""
    position = 0
    while position < len(data):
        element = _element(data, position)
        yield element
        position += len(element.encoding)


def only_element(data: bytes, tag: int) -> Element:
    """The one element that `data` is. Raises `InvalidDer` for another tag, or for more bytes."""
    children = list(elements(data))
    if len(children) != 1 or children[0].tag != tag:
        raise InvalidDer(f"expected one element of tag {tag:#04x}")
    return children[0]


def object_identifier(contents: bytes) -> str:
    """The dotted form of an OBJECT IDENTIFIER. Raises `InvalidDer`."""
    if not contents or contents[-1] & 0x80:
        raise InvalidDer("an object identifier is cut off")
    numbers: list[int] = []
    number = 0
    for byte in contents:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(str(each) for each in (first, numbers[0] - 40 * first, *numbers[1:]))


def _element(data: bytes, position: int) -> Element:
    try:
        tag, length = data[position], data[position + 1]
        start = position + 2
        if length & 0x80:
            size = length & 0x7F
            if not 1 <= size <= 4:
                raise InvalidDer(f"a length of {size} bytes")
            length = int.from_bytes(data[start : start + size], "big")
            start += size
    except IndexError as error:
        raise InvalidDer("an element is cut off") from error
    end = start + length
    if end > len(data):
        raise InvalidDer("an element is cut off")
    return Element(tag, data[start:end], data[position:end])
