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


PIECES = st.one_of(
    st.sampled_from(
        [b"\0", b"\1", b"\2", b"\4", b"\x02a", b"\x04\xc3\xb6", b"\x02\xff", b"\xff" * 9 + b"\1", b"\x80" * 10]
    ),
    st.binary(max_size=9),
)
"""Pieces of values in Avro's binary form, right and wrong."""
