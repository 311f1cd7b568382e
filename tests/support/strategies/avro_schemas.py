"""Arbitrary Avro schemas of records, and pieces of their binary form."""

from typing import Any

from hypothesis import strategies as st

from tests.support.lake.typed_records import record

INTS = st.integers(-(2**31), 2**31 - 1)
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": INTS,
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "float": st.floats(allow_nan=False, width=32),
    "string": st.text(max_size=5),
    "bytes": st.binary(max_size=5),
}
NAMES = st.sampled_from(["a", "b", "c", "A"])


def types(depth: int) -> st.SearchStrategy[Any]:
    """Types of fields that need no name: scalars, arrays, maps and unions with null."""
    flat = st.sampled_from(sorted(SCALARS))
    if depth == 0:
        return flat
    inner = types(depth - 1)
    return st.one_of(
        flat,
        st.builds(lambda each: {"type": "array", "items": each}, inner),
        st.builds(lambda each: {"type": "map", "values": each}, inner),
        flat.map(lambda each: ["null", each]),
    )


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    """Records of a few fields, some with aliases."""
    fields = draw(st.dictionaries(NAMES, types(1), min_size=1, max_size=3))
    made = record("R", *fields.items())
    for each in made["fields"]:
        if draw(st.booleans()):
            each["aliases"] = [draw(NAMES)]
    return made


@st.composite
def flat_schemas(draw: st.DrawFn) -> dict[str, Any]:
    """Records without arrays and maps, which the typed kernel reads."""
    fields: list[tuple[str, Any]] = []
    for number in range(draw(st.integers(1, 4))):
        kind = draw(
            st.sampled_from(
                [
                    *sorted(SCALARS),
                    {"type": "enum", "name": f"E{number}", "symbols": ["A", "B", "C"]},
                    {"type": "fixed", "name": f"F{number}", "size": draw(st.integers(0, 3))},
                    {"type": "long", "logicalType": "timestamp-millis"},
                    {"type": "long", "logicalType": "timestamp-micros"},
                    {"type": "int", "logicalType": "date"},
                    {"type": "bytes", "logicalType": "decimal", "precision": draw(st.integers(1, 38)), "scale": 1},
                ]
            )
        )
        fields.append((f"f{number}", draw(st.sampled_from([kind, ["null", kind], [kind, "null"]]))))
    return record("R", *fields)


LOGICAL = st.one_of(
    st.sampled_from([{"type": "long", "logicalType": "timestamp-millis"}, {"type": "string", "logicalType": "uuid"}]),
    st.integers(1, 38).map(lambda digits: {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": 1}),
)


@st.composite
def nested_schemas(draw: st.DrawFn) -> dict[str, Any]:
    """Records with records, arrays and maps in them, which the kernel for nested ones reads; types are used again."""
    defined: list[str] = []

    def named(**kind: Any) -> dict[str, Any]:  # noqa: ANN401
        defined.append(f"N{len(defined)}")
        return {**kind, "name": defined[-1]}

    def drawn(depth: int) -> Any:  # noqa: ANN401
        inner = ("array", "map", "record", "again") if depth else ("again",)
        match draw(st.sampled_from((*sorted(SCALARS), "enum", "fixed", "logical", *inner, *inner))):
            case "enum":
                kind: Any = named(type="enum", symbols=["A", "B", "C"])
            case "fixed":
                kind = named(type="fixed", size=draw(st.integers(1, 3)))
            case "logical":
                kind = draw(LOGICAL)
            case "array":
                kind = {"type": "array", "items": drawn(depth - 1)}
            case "map":
                kind = {"type": "map", "values": drawn(depth - 1)}
            case "record":
                kind = a_record(depth - 1)
            case "again":
                kind = draw(st.sampled_from(defined)) if defined else "long"
            case scalar:
                kind = scalar
        return draw(st.sampled_from([kind, ["null", kind], [kind, "null"]]))

    def a_record(depth: int) -> dict[str, Any]:
        fields = [{"name": f"f{place}", "type": drawn(depth)} for place in range(draw(st.integers(1, 3)))]
        # Named once its fields are: a type that contains itself becomes JSON.
        return named(type="record", fields=fields)

    return a_record(2)


def nested_values(kind: Any, defined: dict[str, Any]) -> st.SearchStrategy[Any]:  # noqa: ANN401
    """Values of a type of `nested_schemas`. `defined`: collects the named types, in the order of the schema."""
    match kind:
        case str() if kind in SCALARS:
            return SCALARS[kind]
        case str():
            return nested_values(defined[kind], defined)
        case list():
            (other,) = (each for each in kind if each != "null")
            return st.none() | nested_values(other, defined)
        case {"type": "array", "items": items}:
            return st.lists(nested_values(items, defined), max_size=3)
        case {"type": "map", "values": inner}:
            return st.dictionaries(st.text(max_size=2), nested_values(inner, defined), max_size=3)
        case {"type": "record", "fields": fields, "name": name}:
            made: st.SearchStrategy[Any] = st.fixed_dictionaries(
                {each["name"]: nested_values(each["type"], defined) for each in fields}
            )
        case {"type": "enum", "symbols": symbols, "name": name}:
            made = st.sampled_from(symbols)
        case {"type": "fixed", "size": size, "name": name}:
            made = st.binary(min_size=size, max_size=size)
        case {"logicalType": "decimal"}:
            return st.binary(max_size=17)
        case {"logicalType": "uuid"}:
            return st.uuids().map(str) | SCALARS["string"]
        case _:
            return SCALARS[kind["type"]]
    defined[name] = kind
    return made


PIECES = st.one_of(
    st.sampled_from(
        [b"\0", b"\1", b"\2", b"\4", b"\x02a", b"\x04\xc3\xb6", b"\x02\xff", b"\xff" * 9 + b"\1", b"\x80" * 10]
    ),
    st.binary(max_size=9),
)
"""Pieces of values in Avro's binary form, right and wrong."""
