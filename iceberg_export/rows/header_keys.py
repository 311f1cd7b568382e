"""Header keys in Parquet: text for the table, and the producer's bytes beside it where they are not UTF-8.

A Parquet column of strings holds UTF-8 only, because other engines reject a whole file for one invalid value. Kafka's
clients still get the exact bytes: a row with such a key keeps all its header keys as bytes in a column of the file that
is in no table. The two are compared when they are read (safety rule S20).

Specification: Apache Parquet's format, "LogicalTypes", STRING; KIP-82 (header keys are UTF-8 strings, as Java's client
writes them; librdkafka and others send any bytes).
"""
# Without stubs, pyright does not see functions made at import.
# pyright: reportAttributeAccessIssue=false

from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from iceberg_export.rows.columns import BinaryColumn, RecordRows
from iceberg_export.rows.footer import FileUnreadable

Arrow: TypeAlias = Any
"""A pyarrow object."""
_ASCII_END = 0x80


def is_text(keys: BinaryColumn) -> bool:
    """True where all keys are UTF-8."""
    data = keys.data[int(keys.ends[0]) : int(keys.ends[-1])]
    # Nearly all keys are ASCII, which one pass over the bytes shows without Arrow.
    if not len(data) or int(data.max()) < _ASCII_END:
        return True
    try:
        _array(keys, pa.string()).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def text_of(keys: BinaryColumn) -> Arrow:
    """The keys as an Arrow array of strings, with replacement characters for invalid UTF-8, as in Java's client."""
    if is_text(keys):
        return _array(keys, pa.string())
    return _text_of_array(_array(keys, pa.binary()))


def with_text(headers: Arrow) -> Arrow:
    """An Arrow array of headers whose keys are UTF-8. Those of files of formats 1 and 2 may be any bytes."""
    elements = headers.values
    keys = elements.field(0)
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid:
        kind = headers.type
        structs = pa.StructArray.from_arrays([_text_of_array(keys), elements.field(1)], fields=list(kind.value_type))
        return pa.ListArray.from_arrays(headers.offsets, structs, type=kind)
    return headers


def exact_keys(rows: RecordRows, kind: Arrow) -> Arrow:
    """The bytes of all header keys of each row, null for a row whose keys are UTF-8. `kind`: the list's Arrow type."""
    low, high = int(rows.header_ends[0]), int(rows.header_ends[-1])
    keys = rows.header_key.part(low, high)
    is_invalid = np.zeros(high - low, dtype=np.bool_)
    if not is_text(keys):
        is_invalid[:] = [not _is_utf8(keys.row(index) or b"") for index in range(len(keys))]
    counts = np.diff(rows.header_ends)
    row_of_key = np.repeat(np.arange(len(rows)), counts)
    has_bytes = np.zeros(len(rows), dtype=np.bool_)
    has_bytes[row_of_key[is_invalid]] = True
    ends = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum(np.where(has_bytes, counts, 0), out=ends[1:])
    elements = _array(keys, pa.binary()).filter(pa.array(has_bytes[row_of_key]))
    validity = pa.py_buffer(np.packbits(has_bytes, bitorder="little"))
    return pa.Array.from_buffers(kind, len(rows), [validity, pa.py_buffer(ends)], children=[elements])


def restored_keys(texts: Arrow, header_ends: NDArray[np.int32], exact: Arrow) -> Arrow:
    """The producer's header keys: the bytes of `exact` in rows that have them, else those of `texts`.

    `texts`: an Arrow array of strings; `exact`: one list for each row, or null. Raises `FileUnreadable` where the two
    are not the same keys.
    """
    has_bytes = np.asarray(exact.is_valid())
    counts = np.diff(header_ends)
    row_of_key = np.repeat(np.arange(len(exact)), counts)
    is_replaced = pa.array(has_bytes[row_of_key])
    elements = exact.flatten()
    lengths = np.asarray(pc.list_value_length(exact).fill_null(0))
    if not np.array_equal(lengths, np.where(has_bytes, counts, 0)):
        raise FileUnreadable("a row has different counts of header keys as text and as bytes")
    # Bytes whose text differs from the text beside them are not the producer's (safety rule S20).
    if not _text_of_array(elements).equals(texts.filter(is_replaced)):
        raise FileUnreadable("header keys as text differ from those as bytes")
    return pc.replace_with_mask(_binary(texts), is_replaced, elements)


@cache
def keys_field(name: str, list_id: int, element_id: int) -> Arrow:
    """The field of the column that keeps the bytes."""
    element = pa.field("element", pa.binary(), nullable=False, metadata=_with_id(element_id))
    return pa.field(name, pa.list_(element), nullable=True, metadata=_with_id(list_id))


def _with_id(field_id: int) -> dict[bytes, bytes]:
    return {b"PARQUET:field_id": str(field_id).encode()}


def _text_of_array(keys: Arrow) -> Arrow:
    distinct = _binary(keys).dictionary_encode()
    texts = [each.decode("utf-8", errors="replace") for each in distinct.dictionary.to_pylist()]
    return pa.array(texts, type=pa.string()).take(distinct.indices)


def _binary(strings: Arrow) -> Arrow:
    """The same bytes as binary values: a view, because a cast would validate them."""
    return strings.view(pa.binary())


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _array(keys: BinaryColumn, kind: Arrow) -> Arrow:
    """The keys as an Arrow array over the same memory; a key is never null."""
    return pa.Array.from_buffers(kind, len(keys), [None, pa.py_buffer(keys.ends), pa.py_buffer(keys.data)])
