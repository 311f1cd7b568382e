"""Decodes Protobuf messages whose fields are single scalars or timestamps: the same as `protobuf_shapes` and `arrays`.

A kernel reads numbers and positions. It leaves every row that it is not sure of to the slow reader, so that only one
reader reports errors.
"""
# Without stubs, pyright takes a default value for a parameter's type, and does not see functions made at import.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from iceberg_export.typed.arrays import COLUMN_MOVED, Arrow, arrow_type
from iceberg_export.typed.columns import Column
from iceberg_export.typed.kernel_arrays import Bytes, Int64s, greatest_number, scalar_array
from iceberg_export.typed.protobuf_kernel import Meaning, WireType, read_messages
from iceberg_export.typed.shapes import Form, PrimitiveKind, Scalar, Struct, Untyped
from iceberg_export.typed.union import match_fields

_READ: Mapping[int, tuple[WireType, Meaning]] = {
    1: (WireType.EIGHT, Meaning.BITS),
    2: (WireType.FOUR, Meaning.BITS),
    3: (WireType.VARINT, Meaning.INT64),
    4: (WireType.VARINT, Meaning.UINT64),
    5: (WireType.VARINT, Meaning.INT32),
    6: (WireType.EIGHT, Meaning.UINT64),
    7: (WireType.FOUR, Meaning.UINT32),
    8: (WireType.VARINT, Meaning.BOOLEAN),
    9: (WireType.BYTES, Meaning.BYTES),
    12: (WireType.BYTES, Meaning.BYTES),
    13: (WireType.VARINT, Meaning.UINT32),
    14: (WireType.VARINT, Meaning.INT32),
    15: (WireType.FOUR, Meaning.INT32),
    16: (WireType.EIGHT, Meaning.INT64),
    17: (WireType.VARINT, Meaning.SINT32),
    18: (WireType.VARINT, Meaning.SINT64),
}
"""How scalar fields are read, by `FieldDescriptorProto.Type`."""
_TYPE_MESSAGE = 11
"""A message that is not written as a group."""
_TIMESTAMP_PARTS = {("seconds", 1, 3), ("nanos", 2, 5)}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatProtobuf:
    """A message that the kernel can read. Implements `decode.FastReader`."""

    shape: Struct
    program: NDArray[np.int64]
    """A row for each field with the columns of `FieldColumn`, by numbers."""
    rows: Sequence[int]
    """The row of the program of each of the shape's fields."""
    has_presence: NDArray[np.bool_]
    """By rows of the program: whether the field is null where it is absent, and not its default."""
    names: Mapping[int, Mapping[int, str]]
    """The names of an enum's numbers, by the row of its field."""

    def read(self, data: Bytes, first: Int64s, end: Int64s, columns: Sequence[Column]) -> tuple[list[Arrow], Int64s]:
        """See `decode.FastReader.read`."""
        fields = len(self.program)
        numbers = np.zeros((fields, len(first)), dtype=np.int64)
        lengths = np.zeros((fields, len(first)), dtype=np.int32)
        absent = np.ones((fields, len(first)), dtype=np.bool_)
        bad = np.zeros(len(first), dtype=np.bool_)
        read_messages(data, first, end, self.program, numbers, lengths, absent, bad)
        nulls = absent & self.has_presence[:, np.newaxis]
        by_column: dict[int, int] = {}
        for place, index in enumerate(match_fields(columns, self.shape.fields)):
            if index is None:
                raise ValueError(COLUMN_MOVED)
            by_column[index] = place
            row = self.rows[place]
            greatest = greatest_number(self._scalar(place), columns[index].type)
            bad |= (numbers[row] > greatest) | (numbers[row] < -greatest)
        good = np.flatnonzero(~bad)
        if len(good) < len(first):
            numbers, lengths = numbers.take(good, axis=1), lengths.take(good, axis=1)
            nulls = nulls.take(good, axis=1)
        arrays: list[Arrow] = []
        for index, column in enumerate(columns):
            if index not in by_column:
                arrays.append(pa.nulls(len(good), arrow_type(column.type)))
                continue
            place = by_column[index]
            row = self.rows[place]
            values, symbols = numbers[row], None
            if row in self.names:
                known, values = np.unique(values, return_inverse=True)
                symbols = [self.names[row].get(number) or str(number) for number in known.tolist()]
            read = (values.astype(np.int64), lengths[row], nulls[row])
            arrays.append(scalar_array(self._scalar(place), symbols, column.type, data, *read))
        return arrays, good

    def _scalar(self, place: int) -> Scalar:
        shape = self.shape.fields[place].shape
        assert isinstance(shape, Scalar)
        return shape


def flat_message(descriptor: Untyped, shape: object) -> FlatProtobuf | None:
    """The kernel's program for a message; None where the kernel cannot read it.

    A oneof with several members is left to the library: each member takes the place of the one before. So are fields
    that have to be there, extensions, which the library decodes too, and enums of proto2, whose unknown numbers are as
    good as absent.
    """
    if not isinstance(shape, Struct) or descriptor.is_extendable:
        return None
    if any(len(oneof.fields) > 1 for oneof in descriptor.oneofs):
        return None
    fields = sorted(descriptor.fields, key=lambda each: int(each.index))  # the order of the shape's
    read: list[tuple[int, int, int]] = []
    for field, each in zip(fields, shape.fields, strict=True):
        how = _how(field, each.shape)
        if how is None:
            return None
        read.append((int(field.number), *how))
    order = sorted(range(len(fields)), key=lambda place: read[place][0])
    return FlatProtobuf(
        shape=shape,
        program=np.array([read[place] for place in order], dtype=np.int64),
        rows=[order.index(place) for place in range(len(fields))],
        has_presence=np.array([bool(fields[place].has_presence) for place in order]),
        names={
            row: {number: value.name for number, value in fields[place].enum_type.values_by_number.items()}
            for row, place in enumerate(order)
            if fields[place].enum_type is not None
        },
    )


def _how(field: Untyped, shape: object) -> tuple[WireType, Meaning] | None:
    if field.is_repeated or field.is_required or not isinstance(shape, Scalar):
        return None
    if shape.form is Form.PROTOBUF_TIMESTAMP:
        parts = {(part.name, int(part.number), int(part.type)) for part in field.message_type.fields}
        is_usual = int(field.type) == _TYPE_MESSAGE and parts == _TIMESTAMP_PARTS
        return (WireType.BYTES, Meaning.TIMESTAMP) if is_usual else None
    if field.message_type is not None or shape.kind is PrimitiveKind.JSON:
        return None
    if field.enum_type is not None and field.enum_type.is_closed:
        return None
    return _READ.get(int(field.type))
