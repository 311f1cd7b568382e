"""Values whose bytes a file leaves out come back as they were sent, whatever was sent."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from iceberg_export.rows.schema import FieldId
from tests.support.lake.typed_records import avro_bytes, framed
from tests.support.lake.value_elision import made_file
from tests.support.strategies.avro_schemas import PIECES, SCALARS, flat_schemas, schemas

MOST = {
    "timestamp-millis": st.integers(-(2**53), 2**53),
    "timestamp-micros": st.integers(-(2**63) + 1, 2**63 - 1),
    "date": st.integers(-(2**31), 2**31 - 1),
}


def numbers_of(kind: Any) -> st.SearchStrategy[Any]:  # noqa: ANN401
    """Values of a type of `flat_schemas`, as the shortest encoding has them."""
    match kind:
        case str():
            return SCALARS[kind]
        case list():
            (other,) = (each for each in kind if each != "null")
            return st.none() | numbers_of(other)
        case {"type": "enum", "symbols": symbols}:
            return st.sampled_from(symbols)
        case {"type": "fixed", "size": size}:
            return st.binary(min_size=size, max_size=size)
        case {"logicalType": "decimal", "precision": precision}:
            most = min(10**precision - 1, 2**63 - 1)
            return st.integers(-most, most).map(shortest)
        case _:
            return MOST[kind["logicalType"]]


def shortest(number: int) -> bytes:
    size = 1
    while not -(1 << (8 * size - 1)) <= number < 1 << (8 * size - 1):
        size += 1
    return number.to_bytes(size, "big", signed=True)


def bare(kind: Any) -> Any:  # noqa: ANN401
    """The type without logical ones: fastavro writes numbers and bytes then."""
    match kind:
        case list():
            return [bare(each) for each in kind]
        case {"logicalType": _}:
            return kind["type"]
        case _:
            return kind


@given(data=st.data(), schema=flat_schemas(), wider=flat_schemas())
def test_values_of_the_shortest_encoding_are_left_out_and_come_back(
    data: st.DataObject, schema: dict[str, Any], wider: dict[str, Any]
) -> None:
    """Whatever another schema makes of their columns: wider ones, or others. A float that is NaN may be kept then."""
    plain = {**schema, "fields": [{**each, "type": bare(each["type"])} for each in schema["fields"]]}
    rows = st.fixed_dictionaries({each["name"]: numbers_of(each["type"]) for each in schema["fields"]})
    values = [framed(1, avro_bytes(plain, row)) for row in data.draw(st.lists(rows, min_size=1, max_size=5))]
    other = made_file([framed(2, b"")], {2: wider}).planned.columns
    file = made_file(values, {1: schema, 2: wider}, before=other)
    assert file.values() == values
    assert file.schema_ids() == [1] * len(values)
    assert file.kept() == [None] * len(values)
    assert file.file.counts.nulls_of(FieldId.VALUE) == len(values)


VALUES = (
    st.none() | st.binary(max_size=8) | st.lists(PIECES, max_size=6).map(b"".join).map(lambda each: framed(1, each))
)


@given(schema=flat_schemas(), wider=flat_schemas(), values=st.lists(VALUES, min_size=1, max_size=10))
def test_any_bytes_come_back_left_out_or_kept(
    schema: dict[str, Any], wider: dict[str, Any], values: list[bytes | None]
) -> None:
    file = made_file(values, {1: schema}, before=made_file([framed(2, b"")], {2: wider}).planned.columns)
    assert file.values() == values
    if file.planned.plans is None:  # no value has the schema's frame
        assert file.table()["value"].to_pylist() == values
        return
    ids = file.schema_ids()
    assert file.kept() == [None if left_out else value for left_out, value in zip(ids, values, strict=True)]
    errors = file.table()["error"].to_pylist()
    assert all(schema_id is None for schema_id, error in zip(ids, errors, strict=True) if error)


@given(data=st.data(), made=st.lists(schemas() | flat_schemas(), min_size=1, max_size=3))
def test_values_of_many_schemas_come_back(data: st.DataObject, made: list[dict[str, Any]]) -> None:
    """Flat ones and others, whose columns are one union."""
    rows = st.tuples(st.integers(0, len(made) - 1), st.lists(PIECES, max_size=5).map(b"".join))
    sent = [framed(number, body) for number, body in data.draw(st.lists(rows, min_size=1, max_size=8))]
    file = made_file(sent, dict(enumerate(made)))
    assert file.values() == sent
