"""Writes the source of a response's row counter: how many structures its mappings hold, in all arrays together.

It decides whether a thread writes the response, so it has to take far less time than the writer: it looks at arrays
alone.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from protocol.codecs.schema import FieldSchema, StructureSchema
from protocol.codecs.source import FunctionSource

RowCounter = Callable[[Mapping[str, Any]], int]
"""Takes the fields of a response."""
NUMBERS_PER_ROW: Final = 8
"""So many numbers or texts of an array take about as long to write as one structure."""


def row_counter(schema: StructureSchema, title: str, *, rows_max: int) -> RowCounter:
    """The counter of a response's rows. It stops beyond `rows_max`.

    Args:
        schema: the response's.
        title: what tracebacks call the source.
        rows_max: how many rows are few.
    """
    source = FunctionSource(title)
    with source.block("def count(values):"):
        source.line("rows = 0")
        _count(source, schema, "values", rows_max)
        source.line("return rows")
    return cast("RowCounter", source.compiled("count"))


def _count(source: FunctionSource, schema: StructureSchema, values: str, rows_max: int) -> None:
    """Append the lines that count what a mapping holds. A null array, or one that is left out, holds nothing."""
    for field in schema.fields:
        if not _has_rows(field):
            continue
        value = source.fresh(field.name)
        source.line(f'{value} = {values}.get("{field.name}")')
        with source.block(f"if {value}:"):
            _count_value(source, field, value, rows_max)


def _count_value(source: FunctionSource, field: FieldSchema, value: str, rows_max: int) -> None:
    if field.structure is None:
        source.line(f"rows += len({value}) // {NUMBERS_PER_ROW}")
        return
    if not field.is_array:
        _count(source, field.structure, value, rows_max)
        return
    source.line(f"rows += len({value})")
    with source.block(f"if rows > {rows_max}:"):
        source.line("return rows")
    if any(_has_rows(nested) for nested in field.structure.fields):
        row = source.fresh(f"{field.name}_row")
        with source.block(f"for {row} in {value}:"):
            _count(source, field.structure, row, rows_max)


def _has_rows(field: FieldSchema) -> bool:
    is_structure_with_rows = field.structure is not None and any(_has_rows(nested) for nested in field.structure.fields)
    return field.is_array or is_structure_with_rows
