"""Whose records an Avro schema can read: the verdicts of Avro's own library, and what is said of them."""

import json

import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.schema import parse as parse_by_avro
from hypothesis import given
from hypothesis import strategies as st

from agent.schemas.avro import parse_avro


def record(*fields: object, name: str = "R", **others: object) -> object:
    return {"type": "record", "name": name, "fields": list(fields), **others}


def field(name: str, of: object = "int", **others: object) -> object:
    return {"name": name, "type": of, **others}


def enum(*symbols: str, **others: object) -> object:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **others}


def fixed(size: int, name: str = "F") -> object:
    return {"type": "fixed", "name": name, "size": size}


def array(items: object) -> object:
    return {"type": "array", "items": items}


def faults(reader: object, writer: object) -> list[str]:
    return parse_avro(json.dumps(reader)).faults_reading(parse_avro(json.dumps(writer)))


READABLE: list[tuple[object, object]] = [
    *((each, each) for each in ("null", "boolean", "int", "long", "float", "double", "bytes", "string")),
    *((reader, "int") for reader in ("long", "float", "double")),
    *((reader, "long") for reader in ("float", "double")),
    ("double", "float"),
    ("bytes", "string"),
    ("string", "bytes"),
    (array("long"), array("int")),
    ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}),
    (["null", "string"], "string"),
    (["null", "long"], ["null", "int"]),
    ("long", ["int", "long"]),
    ("int", ["int"]),
    (record(field("a")), record(field("a"), field("b"))),
    (record(field("a"), field("b", default=1)), record(field("a"))),
    (record(field("b", aliases=["z", "a"])), record(field("a"))),
    (record(field("a"), namespace="x"), record(field("a"), namespace="y")),
    (record(field("a"), name="New", aliases=["R"]), record(field("a"))),
    (enum("A", "B"), enum("A")),
    (enum("B", default="B"), enum("A", "B")),
    (fixed(4), fixed(4)),
    (record(field("n", ["null", "R"])), record(field("n", ["null", "R"]))),
]
UNREADABLE: list[tuple[object, object, str]] = [
    ("int", "long", "TYPE_MISMATCH at /: long cannot be read as int"),
    ("boolean", "int", "TYPE_MISMATCH"),
    ("int", "string", "TYPE_MISMATCH"),
    (array("int"), array("long"), "TYPE_MISMATCH at /items"),
    ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}, "TYPE_MISMATCH at /values"),
    (array("int"), {"type": "map", "values": "int"}, "TYPE_MISMATCH"),
    (["null", "int"], "string", "MISSING_UNION_BRANCH at /: no branch of the union can read string"),
    (["null", "int"], ["null", "string"], "MISSING_UNION_BRANCH"),
    ("int", ["null", "int"], "TYPE_MISMATCH"),
    (
        record(field("a"), field("b")),
        record(field("a")),
        "READER_FIELD_MISSING_DEFAULT_VALUE at /fields/1: the writer lacks the field 'b'",
    ),
    (record(field("a", "int")), record(field("a", "string")), "TYPE_MISMATCH at /fields/0/type"),
    (record(field("a"), name="S"), record(field("a")), "NAME_MISMATCH at /name: expected R"),
    (enum("A"), enum("A", "B"), "MISSING_ENUM_SYMBOLS at /symbols: B"),
    (fixed(4), fixed(5), "FIXED_SIZE_MISMATCH at /size: 5 bytes cannot be read as 4"),
    (fixed(4, "G"), fixed(4), "NAME_MISMATCH"),
    (record(field("n", ["null", "R"]), field("b")), record(field("n", ["null", "R"])), "READER_FIELD_MISSING"),
]


@pytest.mark.parametrize(("reader", "writer"), READABLE)
def test_what_can_be_resolved_can_be_read(reader: object, writer: object) -> None:
    assert faults(reader, writer) == []


@pytest.mark.parametrize(("reader", "writer", "told"), UNREADABLE)
def test_what_cannot_is_reported_with_its_place(reader: object, writer: object, told: str) -> None:
    assert any(fault.startswith(told) for fault in faults(reader, writer))


def test_a_pair_that_only_its_own_assumption_kept_is_found_out() -> None:
    """`R` reads `R` if `S` reads `S`, for which `R` has to read `R`: and it does not, for want of `b`."""
    reader = record(field("s", ["null", record(field("r", ["null", "R"]), name="S")]), field("b"))
    writer = record(field("s", ["null", record(field("r", ["null", "R"]), name="S")]))
    told = faults(reader, writer)
    assert any("MISSING_UNION_BRANCH" in fault for fault in told)
    assert any("the field 'b'" in fault for fault in told)
    assert "" not in told


@pytest.mark.parametrize("count", [500, 900])
def test_schemas_beyond_any_use_are_not_compared_indefinitely(count: int) -> None:
    chain = [record(field("next", f"R{number - 1}" if number else "int"), name=f"R{number}") for number in range(count)]
    (told,) = faults(chain, chain)
    assert told.startswith("TOO_COMPLEX: the schemas")


PRIMITIVES = st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])


def unions(types: st.SearchStrategy[object]) -> st.SearchStrategy[list[object]]:
    return st.lists(types, max_size=3, unique_by=lambda each: each["type"] if isinstance(each, dict) else each)


TYPES: st.SearchStrategy[object] = st.recursive(
    PRIMITIVES,
    lambda inner: st.one_of(
        inner.map(array),
        inner.map(lambda each: {"type": "map", "values": each}),
    ),
    max_leaves=4,
)
SCHEMAS = st.one_of(
    TYPES,
    unions(st.one_of(PRIMITIVES, PRIMITIVES.map(array))),
    st.dictionaries(st.sampled_from("abc"), st.tuples(TYPES, st.booleans()), max_size=3).map(
        lambda fields: record(
            *(
                field(name, of, **({"default": None} if has_default else {}))
                for name, (of, has_default) in fields.items()
            )
        )
    ),
    st.lists(st.sampled_from("ABC"), min_size=1, max_size=3, unique=True).map(lambda symbols: enum(*symbols)),
    st.integers(0, 2).map(fixed),
)


@given(SCHEMAS, SCHEMAS)
def test_the_verdict_is_that_of_avros_library(reader: object, writer: object) -> None:
    checked = ReaderWriterCompatibilityChecker().get_compatibility(  # type: ignore[no-untyped-call]
        parse_by_avro(json.dumps(reader), validate_names=True), parse_by_avro(json.dumps(writer))
    )
    assert (faults(reader, writer) == []) == (checked.compatibility is SchemaCompatibilityType.compatible)
