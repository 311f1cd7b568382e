"""Adds counts of columns that the table got after a file was written: the column is null in every row of the file.

Only files whose own columns were all counted get them. An older file does not say which columns of the table it has.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from iceberg_export.rows.schema import ERROR_FIELD_ID, SCHEMA_ID_FIELD_ID, FieldId
from iceberg_export.tables.column_counts import NOT_COUNTED, ColumnCount, ColumnCounts
from iceberg_export.tables.manifests import ManifestEntry
from iceberg_export.typed.columns import Column, ColumnType, ListType, MapType, ScalarType, StructType, TypedColumns
from iceberg_export.typed.shapes import PrimitiveKind

_FLOATING = frozenset({PrimitiveKind.FLOAT, PrimitiveKind.DOUBLE})


def filled(entries: Sequence[ManifestEntry], columns: TypedColumns | None) -> tuple[ManifestEntry, ...]:
    """The entries with counts of all the table's `columns`."""
    if columns is None:
        return tuple(entries)
    return tuple(_filled(entry, columns) for entry in entries)


def _filled(entry: ManifestEntry, columns: TypedColumns) -> ManifestEntry:
    file = entry.file
    known = {each.field_id: each for each in file.counts}
    # Files from before all columns were counted have no count of `headers`.
    if FieldId.HEADERS not in known:
        return entry
    more = [
        each
        for each in _counts(_top_level(columns), columns.columns, file.record_count, known)
        if each.field_id not in known
    ]
    if not more:
        return entry
    return replace(entry, file=replace(file, counts=ColumnCounts.of([*known.values(), *more])))


def _top_level(columns: TypedColumns) -> list[int]:
    """The ids of typed columns that belong to no schema of records."""
    return [ERROR_FIELD_ID, SCHEMA_ID_FIELD_ID] if columns.has_schema_id else [ERROR_FIELD_ID]


def _counts(
    ids: Sequence[int], columns: Sequence[Column], row_count: int, known: dict[int, ColumnCount]
) -> Iterator[ColumnCount]:
    for field_id in ids:
        yield ColumnCount(field_id, row_count, row_count)
    for column in columns:
        yield from _of_type(column.field_id, column.type, row_count, known)


def _of_type(field_id: int, kind: ColumnType, row_count: int, known: dict[int, ColumnCount]) -> Iterator[ColumnCount]:
    """The counts of a column and its nested columns; `row_count` nulls where the file does not have it."""
    nans = 0 if isinstance(kind, ScalarType) and kind.kind in _FLOATING else NOT_COUNTED
    yield known.get(field_id) or ColumnCount(field_id, row_count, row_count, nans)
    match kind:
        case ScalarType():
            pass
        case StructType():
            yield from _counts((), kind.columns, row_count, known)
        case ListType():
            inside = _elements(kind.element_id, known)
            yield from _of_type(kind.element_id, kind.element, inside, known)
        case MapType():
            inside = _elements(kind.key_id, known)
            yield from _of_type(kind.key_id, kind.key, inside, known)
            yield from _of_type(kind.value_id, kind.value, inside, known)


def _elements(element_id: int, known: dict[int, ColumnCount]) -> int:
    """The count of elements of a list or a map; 0 where the file does not have it."""
    return known[element_id].values if element_id in known else 0
