"""Decodes Avro records with records, lists and maps in them: the same as `avro_shapes` and `arrays`, but faster.

A kernel reads twice: it counts the values of each type of the schema, and puts them into arrays. It leaves every row
that it is not sure of to the slow reader, so that only one reader reports errors. Values that become JSON have no form
in the kernel; a schema with one is left to the slow reader as a whole.
"""
# Without stubs, pyright takes a default value for a parameter's type, and does not see functions made at import.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from iceberg_export.typed.arrays import COLUMN_MOVED, Arrow, arrow_type
from iceberg_export.typed.avro_kernels import NodeColumn, NodeOp, read_nested
from iceberg_export.typed.columns import Column, ColumnType, ListType, MapType, ScalarType, StructType
from iceberg_export.typed.flat_avro import NO_NULL, PRIMITIVES, has_distinct_names, op_of
from iceberg_export.typed.kernel_arrays import INT64_MAX, Bytes, Int64s, greatest_number, scalar_array, validity_of
from iceberg_export.typed.shapes import Items, Pairs, PrimitiveKind, Scalar, Shape, Struct
from iceberg_export.typed.union import match_fields
from iceberg_export.typed.value_plans import ReadOp
from protocol.limits import TYPED_CELLS_MAX

_KEY = Scalar(kind=PrimitiveKind.STRING)
_OWN_NAMES = (*PRIMITIVES, "null", "record", "error", "enum", "fixed", "array", "map")
"""The names of Avro's types, which win over those of a schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedAvro:
    """A schema that the kernel can read. Implements `decode.FastReader`.

    `program`: a row for each node, in the order of a record's bytes, with the columns of `NodeColumn`. Nodes are the
    record, its fields, and what these hold; a map holds a key and a value.
    """

    shape: Struct
    program: NDArray[np.int64]
    symbols: dict[int, tuple[str, ...]]
    """The symbols of enums, by their nodes."""

    def read(self, data: Bytes, first: Int64s, end: Int64s, columns: Sequence[Column]) -> tuple[list[Arrow], Int64s]:
        """See `decode.FastReader.read`."""
        greatest = np.full(len(self.program), INT64_MAX, dtype=np.int64)
        for node, shape, kind in self._scalars(0, self.shape, StructType(columns=tuple(columns))):
            greatest[node] = greatest_number(shape, kind)
        bad = np.zeros(len(first), dtype=np.bool_)
        while True:
            values = self._values(data, first, end, greatest, bad)
            if values is not None:
                good = np.flatnonzero(~bad)
                return _field_arrays(self, values, 0, columns, self.shape, len(good)), good

    def _values(
        self, data: Bytes, first: Int64s, end: Int64s, greatest: Int64s, bad: NDArray[np.bool_]
    ) -> "_Values | None":
        """The values of all rows that are not `bad`; None where more were found to be while the arrays were filled."""
        nodes = len(self.program)
        bases, counts = np.zeros(nodes, dtype=np.int64), np.zeros(nodes, dtype=np.int64)
        made = _Values.empty(0)
        read_nested(data, first, end, self.program, greatest, bases, counts, *made.columns, bad, False)  # noqa: FBT003
        cells = int(counts.sum())
        if cells > TYPED_CELLS_MAX:
            raise ValueError(f"{len(first)} records have {cells} values")
        np.cumsum(counts[:-1], out=bases[1:])
        bad_count = np.count_nonzero(bad)
        made, filled = _Values.empty(cells), np.zeros(nodes, dtype=np.int64)
        read_nested(data, first, end, self.program, greatest, bases, filled, *made.columns, bad, True)  # noqa: FBT003
        if np.count_nonzero(bad) > bad_count:
            return None
        return _Values(data=data, columns=made.columns, bases=bases.tolist(), counts=counts.tolist())

    def children(self, node: int) -> Iterator[int]:
        """The nodes that a node holds, without those that these hold."""
        child, node_end = node + 1, int(self.program[node, NodeColumn.END])
        while child < node_end:
            yield child
            child = int(self.program[child, NodeColumn.END])

    def _scalars(self, node: int, shape: Shape, kind: ColumnType) -> Iterator[tuple[int, Scalar, ColumnType]]:
        """The values without nested values, with the types of their columns. Raises `ValueError` if one has none."""
        match kind, shape:
            case ScalarType(), Scalar():
                yield node, shape, kind
            case ListType(), Items():
                yield from self._scalars(node + 1, shape.element, kind.element)
            case MapType(), Pairs():
                yield from self._scalars(node + 2, shape.value, kind.value)
            case StructType(), Struct():
                matches = match_fields(kind.columns, shape.fields)
                for child, each, index in zip(self.children(node), shape.fields, matches, strict=True):
                    if index is None:
                        raise ValueError(COLUMN_MOVED)
                    yield from self._scalars(child, each.shape, kind.columns[index].type)
            case _:
                raise ValueError(COLUMN_MOVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Values:
    """The values that the kernel read, node by node: for each a number, a length, and whether it is null."""

    data: Bytes = field(default_factory=lambda: np.zeros(0, dtype=np.uint8))
    columns: tuple[Int64s, NDArray[np.int32], NDArray[np.bool_]]
    bases: Sequence[int] = ()
    counts: Sequence[int] = ()

    @classmethod
    def empty(cls, cells: int) -> "_Values":
        """Room for so many values."""
        return cls(columns=(np.zeros(cells, np.int64), np.zeros(cells, np.int32), np.zeros(cells, np.bool_)))

    def of(self, node: int) -> tuple[Int64s, NDArray[np.int32], NDArray[np.bool_]]:
        """Numbers, lengths and nulls of a node's values."""
        values = slice(self.bases[node], self.bases[node] + self.counts[node])
        numbers, lengths, nulls = self.columns
        return numbers[values], lengths[values], nulls[values]


def _field_arrays(
    reader: NestedAvro, values: _Values, node: int, columns: Sequence[Column], shape: Struct, count: int
) -> list[Arrow]:
    """An array for each column of a struct; null where the schema has no such field."""
    by_column: dict[int, tuple[int, Shape]] = {}
    matches = match_fields(columns, shape.fields)
    for child, each, index in zip(reader.children(node), shape.fields, matches, strict=True):
        if index is None:
            raise ValueError(COLUMN_MOVED)
        by_column[index] = (child, each.shape)
    return [
        _array(reader, values, by_column[index][0], column.type, by_column[index][1])
        if index in by_column
        else pa.nulls(count, arrow_type(column.type))
        for index, column in enumerate(columns)
    ]


def _array(reader: NestedAvro, values: _Values, node: int, kind: ColumnType, shape: Shape) -> Arrow:
    numbers, lengths, nulls = values.of(node)
    match kind, shape:
        case ScalarType(), Scalar():
            return scalar_array(shape, reader.symbols.get(node), kind, values.data, numbers, lengths, nulls)
        case StructType(), Struct():
            arrays = _field_arrays(reader, values, node, kind.columns, shape, len(nulls))
            return pa.StructArray.from_arrays(arrays, fields=list(arrow_type(kind)), mask=pa.array(nulls))
        case ListType(), Items():
            element = _array(reader, values, node + 1, kind.element, shape.element)
            return _nested(arrow_type(kind), numbers, nulls, element)
        case MapType(), Pairs():
            whole = arrow_type(kind)
            key = _array(reader, values, node + 1, kind.key, shape.key)
            value = _array(reader, values, node + 2, kind.value, shape.value)
            pairs = pa.StructArray.from_arrays([key, value], fields=[whole.key_field, whole.item_field])
            return _nested(whole, numbers, nulls, pairs)
        case _:
            raise ValueError(COLUMN_MOVED)


def _nested(whole: Arrow, item_counts: Int64s, nulls: NDArray[np.bool_], items: Arrow) -> Arrow:
    """A list or map array of these items."""
    ends = np.zeros(len(item_counts) + 1, dtype=np.int32)
    np.cumsum(item_counts, out=ends[1:])
    buffers = [validity_of(nulls), pa.py_buffer(ends)]
    return pa.Array.from_buffers(whole, len(item_counts), buffers, children=[items])


def nested_program(schema: Any, named: Mapping[str, Any], shape: Shape) -> NestedAvro | None:  # noqa: ANN401 - JSON
    """The kernel's program for a parsed schema without logical types; None where the kernel cannot read it.

    `named`: the types that are defined elsewhere in the schema. A type that contains itself has a shape that is JSON.
    """
    # fastavro finds no named type at the top.
    if not isinstance(shape, Struct) or not _is(schema, "record", "error"):
        return None
    nodes = _Nodes(named)
    if not nodes.add(schema, shape):
        return None
    return NestedAvro(shape=shape, program=np.array(nodes.rows, dtype=np.int64), symbols=nodes.symbols)


class _Nodes:
    """The nodes of a program, and the symbols of their enums."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self.rows: list[tuple[int, int, int, int]] = []
        self.symbols: dict[int, tuple[str, ...]] = {}

    def add(self, kind: Any, shape: Shape) -> bool:  # noqa: ANN401 - JSON of any shape
        """Add a value of a type, and all that it holds; False where the kernel cannot read it."""
        null = NO_NULL
        if isinstance(kind, list):
            if len(kind) != 2 or "null" not in kind:
                return False
            null = kind.index("null")
            kind = kind[1 - null]
        kind = self._resolved(kind)
        node, size = len(self.rows), 0
        op: int
        match shape:
            case Scalar():
                field_op = _uuid_op(shape, kind) or op_of(shape, kind)
                if field_op is None:
                    return False
                op, size, names = field_op
                if op is ReadOp.ENUM:
                    self.symbols[node] = names
                self.rows.append((op, null, size, node + 1))
                return True
            case Struct() if _is(kind, "record", "error") and has_distinct_names(kind):
                op = NodeOp.STRUCT
                held = [(each["type"], inner.shape) for each, inner in zip(kind["fields"], shape.fields, strict=True)]
            case Items() if _is(kind, "array"):
                op = NodeOp.LIST
                held = [(kind["items"], shape.element)]
            case Pairs() if _is(kind, "map"):
                op = NodeOp.MAP
                held = [("string", _KEY), (kind["values"], shape.value)]
            case _:
                return False
        self.rows.append((op, null, size, 0))
        if not all(self.add(each, inner) for each, inner in held):
            return False
        self.rows[node] = (op, null, size, len(self.rows))
        return True

    def _resolved(self, kind: Any) -> Any:  # noqa: ANN401 - JSON of any shape
        """The type itself where this is its name, or an object around it."""
        while True:
            if isinstance(kind, str) and kind not in _OWN_NAMES and kind in self._named:
                kind = self._named[kind]
            elif isinstance(kind, dict) and not isinstance(kind["type"], list) and kind["type"] not in _OWN_NAMES:
                kind = kind["type"]
            else:
                return kind


def _uuid_op(shape: Scalar, kind: Any) -> tuple[ReadOp, int, tuple[str, ...]] | None:  # noqa: ANN401 - JSON
    """The operation of a UUID. Flat records have none: what a file leaves out has no UUIDs (`elision`)."""
    if shape.kind is not PrimitiveKind.UUID:
        return None
    return (ReadOp.FIXED, kind["size"], ()) if _is(kind, "fixed") else (ReadOp.BYTES, 0, ())


def _is(kind: Any, *names: str) -> bool:  # noqa: ANN401 - JSON of any shape
    return isinstance(kind, dict) and kind["type"] in names
