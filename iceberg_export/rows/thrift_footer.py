"""Checks the footer of a Parquet file without checksums, before pyarrow sees it. Pure.

Every length is checked (safety rule S20). pyarrow 26 ends the process where a column's metadata contradicts the schema,
for example in the sizes of its level histograms: a C++ exception passes through code that must not throw. So all column
metadata that pyarrow reads is compared with the schema here. A footer that passes may be damaged all the same: files
from before checksums have nothing to compare with.

Specification: Apache Parquet's parquet.thrift. `SizeStatistics::Validate` (Arrow 26).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, cast

from iceberg_export.rows.thrift import Struct, ThriftWrong, Value, read_struct, select
from protocol.limits import THRIFT_DEPTH_MAX

_BYTE_ARRAY: Final = 6
_FIXED: Final = 7
_WIDTHS: Final = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
"""The bytes of a value in statistics, by physical type."""
_ENCODINGS: Final = frozenset({0, 2, 3, 4, 5, 6, 7, 8, 9})
_CODECS: Final = range(8)
_REPEATED: Final = 2


class FooterWrong(ThriftWrong):
    """A footer contradicts itself or its length; the message says where."""


class _Leaf(NamedTuple):
    type: int
    path: tuple[bytes, ...]
    definition_max: int
    repetition_max: int


_COLUMN_METADATA: Final = select(1, 2, 3, 4, 5, 6, 7, 9, 11, structs={12: select(1, 2, 5, 6), 16: select(1, 2, 3)})
_ROW_GROUP: Final = select(3, structs={1: select(8, 9, structs={3: _COLUMN_METADATA})})
_FILE: Final = select(3, 8, 9, structs={2: select(1, 2, 3, 4, 5), 4: _ROW_GROUP})
"""The fields of FileMetaData. A wide file has a hundred values for each column of each row group, and most of them are
not checked here."""


def check_footer(footer: memoryview, file_bytes: int | None) -> None:
    """Raises `FooterWrong`, another `ValueError`, `KeyError` or `IndexError` where the footer is invalid.

    `footer`: without length and magic. `file_bytes`: the size of the file; None: unknown.
    """
    file, end = read_struct(bytes(footer), 0, _FILE)
    if end != len(footer):
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
        raise FooterWrong("its row groups have another count of rows than the file")


def _walk(
    elements: Sequence[Struct],
    number: int,
    path: tuple[bytes, ...],
    definition: int,
    repetition: int,
    leaves: list[_Leaf],
) -> int:
    """Add the leaves of an element of the schema to `leaves`; returns the index of the element after its subtree."""
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
        raise FooterWrong("a field is not a number")
    return value


def _bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise FooterWrong("a field is not a string")
    return value


def _list(value: Value) -> Sequence[Value]:
    if not isinstance(value, list):
        raise FooterWrong("a field is not a list")
    return cast("Sequence[Value]", value)


def _struct(value: Value) -> Struct:
    if not isinstance(value, dict):
        raise FooterWrong("a field is not a structure")
    return cast("Struct", value)


def _structs(value: Value) -> list[Struct]:
    return [_struct(each) for each in _list(value)]
