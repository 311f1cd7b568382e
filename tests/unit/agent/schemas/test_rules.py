"""Who has to read whose records, and which versions count."""

import pytest

from agent.schemas.parse import parse
from agent.schemas.rules import faults_between, versions_that_count
from coordinator.commands.registry import Compatibility, SchemaType

NARROW, WIDE = parse(SchemaType.AVRO, '"int"'), parse(SchemaType.AVRO, '"long"')
NEW, EARLIER = "The new schema cannot read version 3", "Version 3 cannot read the new schema"


@pytest.mark.parametrize(
    ("compatibility", "widened", "narrowed"),
    [
        (Compatibility.NONE, "", ""),
        (Compatibility.BACKWARD, "", NEW),
        (Compatibility.BACKWARD_TRANSITIVE, "", NEW),
        (Compatibility.FORWARD, EARLIER, ""),
        (Compatibility.FORWARD_TRANSITIVE, EARLIER, ""),
        (Compatibility.FULL, EARLIER, NEW),
        (Compatibility.FULL_TRANSITIVE, EARLIER, NEW),
    ],
)
def test_each_says_in_which_direction_records_are_read(
    compatibility: Compatibility, widened: str, narrowed: str
) -> None:
    for new, earlier, told in ((WIDE, NARROW, widened), (NARROW, WIDE, narrowed)):
        faults = faults_between(new, earlier, 3, compatibility)
        assert bool(faults) == bool(told)
        assert all(fault.startswith(told) for fault in faults)


@pytest.mark.parametrize("compatibility", Compatibility)
def test_each_says_which_versions_count(compatibility: Compatibility) -> None:
    counted = [] if compatibility is Compatibility.NONE else [1, 2, 5] if "TRANSITIVE" in compatibility.name else [5]
    assert list(versions_that_count(compatibility, [1, 2, 5])) == counted
    assert list(versions_that_count(compatibility, [])) == []


def test_formats_never_go_together() -> None:
    other = parse(SchemaType.JSON, "true")
    assert faults_between(other, WIDE, 3, Compatibility.BACKWARD) == [
        "Version 3 is a schema of the type AVRO, not JSON"
    ]
    assert faults_between(other, WIDE, 3, Compatibility.NONE) == []
