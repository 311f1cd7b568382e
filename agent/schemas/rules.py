"""The compatibility levels: the earlier versions with which a new schema has to be compatible, and the direction.

Rule: BACKWARD: the new schema reads records of the earlier one; FORWARD: the reverse; FULL: both. TRANSITIVE levels
compare with all earlier versions, the others with the last one. Schemas of different formats are incompatible.
Source: Confluent's documentation, "Schema Evolution and Compatibility", table of compatibility types.
"""

from collections.abc import Sequence
from typing import TypeVar

from agent.schemas.parsed import Parsed
from coordinator.commands.registry import Compatibility

READS_EARLIER = frozenset(
    {
        Compatibility.BACKWARD,
        Compatibility.BACKWARD_TRANSITIVE,
        Compatibility.FULL,
        Compatibility.FULL_TRANSITIVE,
    }
)
IS_READ_BY_EARLIER = frozenset(
    {
        Compatibility.FORWARD,
        Compatibility.FORWARD_TRANSITIVE,
        Compatibility.FULL,
        Compatibility.FULL_TRANSITIVE,
    }
)
TRANSITIVE = frozenset(
    {Compatibility.BACKWARD_TRANSITIVE, Compatibility.FORWARD_TRANSITIVE, Compatibility.FULL_TRANSITIVE}
)


T = TypeVar("T")


def versions_that_count(compatibility: Compatibility, versions: Sequence[T]) -> Sequence[T]:
    """The versions of a subject, in their order, that a new one is compared with."""
    if compatibility is Compatibility.NONE:
        return ()
    return versions if compatibility in TRANSITIVE else versions[-1:]


def faults_between(new: Parsed, earlier: Parsed, version: int, compatibility: Compatibility) -> list[str]:
    """The reasons why `new` is incompatible with a version of its subject, as sentences; empty if it is compatible."""
    if new.schema_type is not earlier.schema_type:
        fault = f"Version {version} is a schema of the type {earlier.schema_type.name}, not {new.schema_type.name}"
        return [] if compatibility is Compatibility.NONE else [fault]
    faults: list[str] = []
    if compatibility in READS_EARLIER:
        faults += [f"The new schema cannot read version {version}: {fault}" for fault in new.faults_reading(earlier)]
    if compatibility in IS_READ_BY_EARLIER:
        faults += [f"Version {version} cannot read the new schema: {fault}" for fault in earlier.faults_reading(new)]
    return faults
