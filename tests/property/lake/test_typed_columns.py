"""Columns of any Avro schemas, in any order: what was written comes out, and nothing is ever raised."""

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from iceberg_export.typed.columns import decode, encode, every_column
from iceberg_export.typed.framing import WriterSchema
from iceberg_export.typed.union import merge_value
from tests.support.lake.typed_records import NOTHING, avro_bytes, avro_reader, decoded, decoded_rows, framed
from tests.support.strategies.avro_schemas import (
    PIECES,
    SCALARS,
    flat_schemas,
    nested_schemas,
    nested_values,
    schemas,
)


def values(kind: Any) -> st.SearchStrategy[Any]:  # noqa: ANN401
    match kind:
        case str():
            return SCALARS[kind]
        case list():
            return st.none() | SCALARS[kind[1]]
        case {"items": items}:
            return st.lists(values(items), max_size=3)
        case _:
            return st.dictionaries(st.text(max_size=2), values(kind["values"]), max_size=3)


def plain(value: Any) -> Any:  # noqa: ANN401
    """As Arrow gives it: maps are lists of pairs."""
    match value:
        case dict():
            return [(key, plain(each)) for key, each in value.items()]
        case list():
            return [plain(each) for each in value]
        case _:
            return value


@given(data=st.data(), made=st.lists(schemas(), min_size=1, max_size=3))
def test_records_of_many_schemas_come_out_as_they_were_written(data: st.DataObject, made: list[dict[str, Any]]) -> None:
    columns = NOTHING
    readers = {WriterSchema(schema_id=number): avro_reader(schema) for number, schema in enumerate(made)}
    for reader in readers.values():
        before = columns
        columns = merge_value(columns, reader.shape)
        assert {each.field_id for each in every_column(before.value)} <= {
            each.field_id for each in every_column(columns.value)
        }
        assert len({each.name.lower() for each in columns.value}) == len(columns.value)
    for reader in readers.values():
        assert merge_value(columns, reader.shape) is columns
    assert decode(encode(columns)) == columns
    numbers = data.draw(st.lists(st.integers(0, len(made) - 1), max_size=4))
    written = [
        data.draw(st.fixed_dictionaries({each["name"]: values(each["type"]) for each in made[number]["fields"]}))
        for number in numbers
    ]
    sent = [framed(number, avro_bytes(made[number], each)) for number, each in zip(numbers, written, strict=True)]
    rows = decoded_rows(columns.value, dict(readers), sent)
    for row, value in zip(rows, written, strict=True):
        expected = [plain(each) for each in value.values() if each is not None]
        assert sorted(map(repr, row.values())) == sorted(map(repr, expected))


@given(schema=schemas(), rows=st.lists(st.none() | st.binary(max_size=12), max_size=8), is_framed=st.booleans())
def test_any_bytes_are_values_or_an_error(schema: dict[str, Any], rows: list[bytes | None], *, is_framed: bool) -> None:
    reader = avro_reader(schema)
    columns = merge_value(NOTHING, reader.shape).value
    sent = [framed(1, each) if is_framed and each is not None else each for each in rows]
    made = decoded(columns, {WriterSchema(schema_id=1): reader}, sent)
    for array in made.arrays:
        array.validate(full=True)
        assert len(array) == len(rows)
    for each, error in zip(sent, made.errors, strict=True):
        if each is None:
            assert error is None


def shown(array: Any) -> list[str]:  # noqa: ANN401
    """The values as texts, by which one NaN is like another; times as numbers, for Python has no years beyond 9999."""
    if pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    elif pa.types.is_date(array.type):
        array = array.view(pa.int32())
    return [repr(each) for each in array.to_pylist()]


@given(
    schema=flat_schemas(), wider=flat_schemas(), rows=st.lists(st.lists(PIECES, max_size=6).map(b"".join), max_size=8)
)
def test_the_fast_way_gives_what_the_slow_one_does(
    schema: dict[str, Any], wider: dict[str, Any], rows: list[bytes]
) -> None:
    assert avro_reader(schema).flat is not None
    compare_ways(schema, wider, rows)


@st.composite
def nested_rows(draw: st.DrawFn) -> tuple[dict[str, Any], list[bytes]]:
    """A schema, and records of it, of which some are damaged."""
    schema = draw(nested_schemas())
    whole = st.builds(lambda value: avro_bytes(schema, value), nested_values(schema, {}))
    rows: list[bytes] = []
    for row in draw(st.lists(whole, max_size=6)):
        match draw(st.sampled_from(("whole", "whole", "cut", "longer", "changed"))):
            case "cut":
                rows.append(row[: draw(st.integers(0, len(row)))])
            case "longer":
                rows.append(row + draw(PIECES))
            case "changed" if row:
                place = draw(st.integers(0, len(row) - 1))
                rows.append(row[:place] + draw(st.binary(min_size=1, max_size=1)) + row[place + 1 :])
            case _:
                rows.append(row)
    return schema, rows


@given(made=nested_rows(), wider=nested_schemas())
def test_the_fast_way_gives_what_the_slow_one_does_of_nested_records(
    made: tuple[dict[str, Any], list[bytes]], wider: dict[str, Any]
) -> None:
    schema, rows = made
    assert avro_reader(schema).fast is not None
    compare_ways(schema, wider, rows)


def compare_ways(schema: dict[str, Any], wider: dict[str, Any], rows: list[bytes]) -> None:
    """Read records, in columns that another schema has made before, with the kernel and without it."""
    fast, slow = avro_reader(schema), avro_reader(schema)
    slow.fast = None
    columns = merge_value(merge_value(NOTHING, avro_reader(wider).shape), fast.shape).value
    sent = [framed(1, each) for each in rows]
    by_kernel = decoded(columns, {WriterSchema(schema_id=1): fast}, sent)
    by_library = decoded(columns, {WriterSchema(schema_id=1): slow}, sent)
    assert by_kernel.errors == by_library.errors
    for one, other in zip(by_kernel.arrays, by_library.arrays, strict=True):
        one.validate(full=True)
        assert one.type == other.type
        assert shown(one) == shown(other)
