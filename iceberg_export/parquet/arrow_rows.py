"""The Arrow schema of data files, and rows of records as Arrow arrays and back, over the same memory where possible.

In: `RecordRows`, or columns that pyarrow read. Out: a record batch of the table's raw columns, or the arrays of
`iceberg_export.rows.columns`. pyarrow 26 has no type annotations, so its objects stay in the modules `arrow_*` of this
room, except those for Spark. The import of pyarrow takes a fifth of a second: modules that the agent needs at its start
import these modules where they use them.
"""
# Without stubs, pyright takes a default value for a parameter's type, and does not see functions made at import.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from iceberg_export.rows import schema
from iceberg_export.rows.columns import BinaryColumn, RecordRows
from iceberg_export.rows.header_keys import keys_field, text_of
from iceberg_export.rows.schema import FieldId

Arrow: TypeAlias = Any
"""A pyarrow object."""


def _field(name: str, kind: Arrow, field_id: FieldId, *, nullable: bool = False) -> Arrow:
    return pa.field(name, kind, nullable=nullable, metadata={b"PARQUET:field_id": str(int(field_id)).encode()})


@cache
def arrow_schema() -> Arrow:
    """The schema of every file, with Iceberg's field ids."""
    header = pa.struct(
        [
            _field("key", pa.string(), FieldId.HEADER_KEY),
            _field("value", pa.binary(), FieldId.HEADER_VALUE, nullable=True),
        ]
    )
    return pa.schema(
        [
            _field(schema.PARTITION, pa.int32(), FieldId.PARTITION),
            _field(schema.OFFSET, pa.int64(), FieldId.OFFSET),
            _field(schema.TIMESTAMP, pa.timestamp("us", tz="UTC"), FieldId.TIMESTAMP),
            _field(schema.TIMESTAMP_TYPE, pa.int32(), FieldId.TIMESTAMP_TYPE),
            _field(schema.KEY, pa.binary(), FieldId.KEY, nullable=True),
            _field(schema.VALUE, pa.binary(), FieldId.VALUE, nullable=True),
            _field(schema.HEADERS, pa.list_(_field("element", header, FieldId.HEADERS_ELEMENT)), FieldId.HEADERS),
        ]
    )


def header_keys_field() -> Arrow:
    """The field of the column that keeps header keys as bytes."""
    return keys_field(schema.HEADER_KEYS, schema.HEADER_KEYS_FIELD_ID, schema.HEADER_KEYS_ELEMENT_FIELD_ID)


def to_arrow(rows: RecordRows) -> Arrow:
    """The rows as an Arrow record batch with the table's raw columns, over the same memory where possible."""
    table = arrow_schema()
    header_fields = table.field(schema.HEADERS).type.value_type
    headers = pa.StructArray.from_arrays(
        [text_of(rows.header_key), to_binary(rows.header_value, pa.binary())],
        fields=list(header_fields),
    )
    micros = rows.timestamp_ms * schema.MICROSECONDS_PER_MILLISECOND
    count = len(rows)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(rows.partition),
            pa.array(rows.offset),
            pa.array(micros).view(table.field(schema.TIMESTAMP).type),
            pa.array(rows.timestamp_type),
            to_binary(rows.key, pa.binary()),
            to_binary(rows.value, pa.binary()),
            pa.Array.from_buffers(
                table.field(schema.HEADERS).type, count, [None, pa.py_buffer(rows.header_ends)], children=[headers]
            ),
        ],
        schema=table,
    )


def to_binary(column: BinaryColumn, kind: Arrow) -> Arrow:
    """The column as an Arrow array of `kind`, over the same memory."""
    validity = None
    if column.is_null is not None:
        validity = pa.py_buffer(np.packbits(~column.is_null, bitorder="little"))
    return pa.Array.from_buffers(kind, len(column), [validity, pa.py_buffer(column.ends), pa.py_buffer(column.data)])


def one_array(chunked: Arrow) -> Arrow:
    """The chunks of a column as one array; it copies where there are several."""
    if chunked.num_chunks == 1:
        return chunked.chunk(0)
    return pa.concat_arrays(chunked.chunks) if chunked.num_chunks else pa.array([], type=chunked.type)


def numbers_of(array: Arrow) -> NDArray[Arrow]:
    """The numbers of an array without nulls, over the same memory."""
    numbers: NDArray[Arrow] = array.to_numpy(zero_copy_only=True)
    return numbers


def ends_of(array: Arrow) -> NDArray[np.int32]:
    """The offsets of a list or binary array: one more than it has elements."""
    buffer = array.buffers()[1]
    if buffer is None or buffer.size == 0:
        return np.zeros(1, dtype=np.int32)
    return np.frombuffer(buffer, dtype=np.int32)[array.offset : array.offset + len(array) + 1]


def from_binary(array: Arrow) -> BinaryColumn:
    """The column of a binary array, over the same memory."""
    validity, _, data = array.buffers()
    is_null = None
    if validity is not None and array.null_count:
        bits = np.unpackbits(np.frombuffer(validity, dtype=np.uint8), bitorder="little")
        is_null = ~bits[array.offset : array.offset + len(array)].view(np.bool_)
    empty = np.zeros(0, dtype=np.uint8)
    return BinaryColumn(
        ends=ends_of(array),
        data=empty if data is None else np.frombuffer(data, dtype=np.uint8),
        is_null=is_null,
    )
