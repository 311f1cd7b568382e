"""Common parts of the formats of schemas.

Rule: a schema that cannot be read raises `InvalidSchema` with a sentence for whoever wrote it; two that can be read are
compared by `Parsed.faults_reading`, which never raises.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from coordinator.commands.registry import SchemaType
from protocol.limits import SCHEMA_COMPARISONS_MAX


class InvalidSchema(Exception):
    """A text that is no schema of its format."""


class Incomparable(Exception):
    """Two schemas that cannot be compared: it would take too long, or a part of them is beyond the rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedText:
    """A schema that others refer to, under the name by which they do."""

    name: str
    text: str


class Parsed(Protocol):
    """A schema that was read."""

    @property
    def schema_type(self) -> SchemaType: ...

    @property
    def text(self) -> str:
        """The text that is registered: the given one without parts that mean nothing in the format."""
        ...

    @property
    def normalized(self) -> str:
        """The text that all schemas have in common which differ in nothing that matters."""
        ...

    def faults_reading(self, writer: "Parsed") -> list[str]:
        """Why records of `writer`, of the same format, cannot all be read with this; empty where they can."""
        ...

    def is_same(self, other: "Parsed") -> bool:
        """Whether both say the same, though their texts may differ."""
        ...

    def formatted(self, wanted: str) -> str:
        """The text in the form of this name (the API's parameter `format`); one that is not known is `text`."""
        ...


NOTED_ELSEWHERE = ""
"""Stands for a pair of parts that leads back to itself and is known not to go together: what is wrong with it is told
where it was met first."""


def distinct_faults(faults: Sequence[str]) -> list[str]:
    """The faults to report, each once."""
    return [each for each in dict.fromkeys(faults) if each != NOTED_ELSEWHERE]


class Budget:
    """How many pairs of parts a comparison may still look at: with some schemas it would never end."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = SCHEMA_COMPARISONS_MAX

    def take(self) -> None:
        """Raises `Incomparable` when there is none left."""
        self._left -= 1
        if self._left < 0:
            raise Incomparable(f"the schemas differ in too many ways: {SCHEMA_COMPARISONS_MAX} pairs were compared")
