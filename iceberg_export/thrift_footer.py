"""Checks the footer of a Parquet file that has no checksums, before pyarrow sees it.

Rule: pure, and every length is checked (safety rule S20). pyarrow 26 ends the process where what a footer says of a
column contradicts its schema, for example the sizes of its level histograms: the C++ exception passes through code that
cannot raise. So whatever it reads of a column is compared with the schema here. A footer that holds is not right for
that: files of before have nothing by which one could know.

Specification: Apache Parquet's parquet.thrift; Apache Thrift's compact protocol. `SizeStatistics::Validate` (Arrow 26).
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, cast

from protocol.limits import THRIFT_DEPTH_MAX, THRIFT_VARINT_BYTES_MAX

Value: TypeAlias = "int | bytes | Sequence[Value] | Mapping[int, Value]"
Struct: TypeAlias = Mapping[int, Value]

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_BYTE_ARRAY: Final = 6
_FIXED: Final = 7
_WIDTHS: Final = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
"""Bytes of a physical type's value in statistics."""
_ENCODINGS: Final = frozenset({0, 2, 3, 4, 5, 6, 7, 8, 9})
_CODECS: Final = range(8)
_REPEATED: Final = 2


class FooterWrong(ValueError):
    """The message says what contradicts itself."""


class _Leaf(NamedTuple):
    type: int
    path: tuple[bytes, ...]
    definition_max: int
    repetition_max: int


class _Reader:
    """Takes values of the compact protocol. Raises `FooterWrong` and `IndexError`."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    @property
    def is_at_end(self) -> bool:
        return self._position == len(self._data)

    def _take(self, count: int) -> bytes:
        if not 0 <= count <= len(self._data) - self._position:
            raise FooterWrong(f"{count} bytes are not there")
        self._position += count
        return bytes(self._data[self._position - count : self._position])

    def _varint(self) -> int:
        value = 0
        for number in range(THRIFT_VARINT_BYTES_MAX):
            (byte,) = self._take(1)
            value |= (byte & 0x7F) << 7 * number
            if byte < 0x80:
                return value
        raise FooterWrong("a number does not end")

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def struct(self, depth: int = 0) -> Struct:
        """Fields by their ids."""
        if depth > THRIFT_DEPTH_MAX:
            raise FooterWrong("it is nested too deep")
        fields: dict[int, Value] = {}
        field_id = 0
        while (head := self._take(1)[0]) != 0:
            field_id = field_id + (head >> 4) if head >> 4 else self._integer()
            kind = head & 0x0F
            fields[field_id] = int(kind == _TRUE) if kind in {_TRUE, _FALSE} else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Value:
        if kind in {_I16, _I32, _I64}:
            return self._integer()
        if kind in {_BYTE, _TRUE, _FALSE}:
            return self._take(1)[0]
        if kind == _DOUBLE:
            return self._take(8)
        if kind == _BINARY:
            return self._take(self._varint())
        if kind in {_LIST, _SET}:
            head = self._take(1)[0]
            count = self._varint() if head >> 4 == 0x0F else head >> 4
            if count > len(self._data) - self._position:
                raise FooterWrong(f"a list of {count} is not there")
            return [self._value(head & 0x0F, depth + 1) for _ in range(count)]
        if kind == _STRUCT:
            return self.struct(depth + 1)
        raise FooterWrong(f"a value of type {kind}")  # a map is nowhere in a footer


def check_footer(footer: memoryview, file_bytes: int | None) -> None:
    """Raises `FooterWrong`, another `ValueError`, `KeyError` or `IndexError` where a footer cannot be right.

    `footer`: without length and magic. `file_bytes`: of the file, where they are known.
    """
    reader = _Reader(footer)
    file = reader.struct()
    if not reader.is_at_end:
        raise FooterWrong("it ends before its length")
    if {8, 9} & file.keys():
        raise FooterWrong("it is encrypted")
    elements = _structs(file[2])
    leaves: list[_Leaf] = []
    if _walk(elements, 0, (), 0, 0, leaves) != len(elements):
        raise FooterWrong("its schema is no tree")
    groups = _structs(file[4])
    for group in groups:
        columns = _structs(group[1])
        if len(columns) != len(leaves):
            raise FooterWrong(f"a row group has {len(columns)} columns, the schema {len(leaves)}")
        for column, leaf in zip(columns, leaves, strict=True):
            _check_column(column, leaf, len(footer) if file_bytes is None else file_bytes, is_open=file_bytes is None)
    if sum(_number(group[3]) for group in groups) != _number(file[3]):
        raise FooterWrong("its row groups have not as many rows as the file")


def _walk(
    elements: Sequence[Struct],
    number: int,
    path: tuple[bytes, ...],
    definition: int,
    repetition: int,
    leaves: list[_Leaf],
) -> int:
    """Take an element of the schema and what is below it; returns the number of the one behind."""
    if len(path) > THRIFT_DEPTH_MAX:
        raise FooterWrong("its schema is nested too deep")
    element = elements[number]
    if number:
        kind = _number(element[3])
        if kind not in range(3):
            raise FooterWrong(f"a column is of repetition {kind}")
        name = _bytes(element[4])
        name.decode()
        path = (*path, name)
        definition += kind > 0
        repetition += kind == _REPEATED
    if 1 in element:
        physical = _number(element[1])
        width = _WIDTHS.get(physical, _number(element.get(2, 0)) if physical == _FIXED else 0)
        if physical not in range(8) or (physical == _FIXED and width <= 0) or _number(element.get(5, 0)):
            raise FooterWrong(f"a column is of type {physical}")
        leaves.append(_Leaf(physical, path, definition, repetition))
        return number + 1
    behind = number + 1
    for _ in range(_number(element[5])):
        behind = _walk(elements, behind, path, definition, repetition, leaves)
    return behind


def _check_column(column: Struct, leaf: _Leaf, byte_end_max: int, *, is_open: bool) -> None:
    if {8, 9} & column.keys():
        raise FooterWrong("a column is encrypted")
    data = _struct(column[3])
    if _number(data[1]) != leaf.type or tuple(map(_bytes, _list(data[3]))) != leaf.path:
        raise FooterWrong(f"a column is not {leaf.path} of the schema")
    if not _ENCODINGS.issuperset(map(_number, _list(data[2]))) or _number(data[4]) not in _CODECS:
        raise FooterWrong(f"{leaf.path} has an unknown encoding or codec")
    first = min(_number(data[9]), _number(data.get(11, data[9])))
    sizes = (first, _number(data[5]), _number(data[6]), _number(data[7]))
    if min(sizes) < 0 or (not is_open and first + sizes[3] > byte_end_max):
        raise FooterWrong(f"{leaf.path} lies outside the file")
    statistics = _struct(data.get(12, {}))
    width = _WIDTHS.get(leaf.type)
    for field in (1, 2, 5, 6):
        if width is not None and field in statistics and len(_bytes(statistics[field])) != width:
            raise FooterWrong(f"{leaf.path} has a bound of another type")
    _check_sizes(_struct(data.get(16, {})), leaf)


def _check_sizes(sizes: Struct, leaf: _Leaf) -> None:
    if 1 in sizes and leaf.type != _BYTE_ARRAY:
        raise FooterWrong(f"{leaf.path} has sizes of strings, and no strings")
    for field, level_max in ((2, leaf.repetition_max), (3, leaf.definition_max)):
        histogram = _list(sizes.get(field, []))
        if histogram and len(histogram) != level_max + 1:
            raise FooterWrong(f"{leaf.path} has {len(histogram)} counts of levels")


def _number(value: Value) -> int:
    if not isinstance(value, int):
        raise FooterWrong("a number is none")
    return value


def _bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise FooterWrong("a text is none")
    return value


def _list(value: Value) -> Sequence[Value]:
    if not isinstance(value, list):
        raise FooterWrong("a list is none")
    return cast("Sequence[Value]", value)


def _struct(value: Value) -> Struct:
    if not isinstance(value, dict):
        raise FooterWrong("a structure is none")
    return cast("Struct", value)


def _structs(value: Value) -> list[Struct]:
    return [_struct(each) for each in _list(value)]
