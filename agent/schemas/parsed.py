"""Common parts of the schema formats.

Rule: parsing raises `InvalidSchema` with a sentence for the schema's author. `Parsed.faults_reading` compares two
parsed schemas and never raises.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from coordinator.commands.registry import SchemaType
from protocol.limits import SCHEMA_COMPARISONS_MAX


class InvalidSchema(Exception):
    """A text that is not a valid schema of its format."""


class Incomparable(Exception):
    """Two schemas that cannot be compared: it takes too long, or there is no rule for a part of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedText:
    """A schema that others refer to, with the name in their references."""

    name: str
    text: str


class Parsed(Protocol):
    """A parsed schema."""

    @property
    def schema_type(self) -> SchemaType: ...

    @property
    def text(self) -> str:
        """The text to register: the original without parts that have no meaning in the format."""
        ...

    @property
    def normalized(self) -> str:
        """The normal form: equal for schemas that differ only in insignificant details."""
        ...

    def faults_reading(self, writer: "Parsed") -> list[str]:
        """The reasons why records of `writer`, of the same format, cannot be read with this; empty if they can."""
        ...

    def is_same(self, other: "Parsed") -> bool:
        """Whether both have the same meaning, although their texts may differ."""
        ...

    def formatted(self, text_format: str) -> str:
        """The text in a format of the API's parameter `format`; `text` for an unknown one."""
        ...


NOTED_ELSEWHERE = ""
"""A placeholder fault of a recursive, incompatible pair: its faults are reported where it was compared first."""


def distinct_faults(faults: Sequence[str]) -> list[str]:
    """The faults to report, each once."""
    return [each for each in dict.fromkeys(faults) if each != NOTED_ELSEWHERE]


class Budget:
    """Bounds the number of pairs that a comparison visits: for some schemas it would never end."""

    __slots__ = ("_pairs_left",)

    def __init__(self) -> None:
        self._pairs_left = SCHEMA_COMPARISONS_MAX

    def take(self) -> None:
        """Count one pair. Raises `Incomparable` above the limit."""
        self._pairs_left -= 1
        if self._pairs_left < 0:
            raise Incomparable(f"the schemas differ in too many ways: {SCHEMA_COMPARISONS_MAX} pairs were compared")


Pair = tuple[int, int]
"""The identities of a reader's and a writer's type or schema."""


def faults_of_recursive(
    compare: Callable[[set[Pair], Budget], tuple[Sequence[str], set[Pair]]], parts: str
) -> list[str]:
    """The faults of two schemas that may contain themselves; empty where the reader's can read all of the writer's.

    Args:
        compare: compares the schemas once, with the pairs that are known as unreadable. Returns the faults, and those
            pairs with further ones. A pair that is reached again inside its own comparison counts as compatible,
            unless it is known as unreadable. So the comparison is repeated until it finds no further pairs.
        parts: a word for what refers to each other in the schemas, for an error.
    """
    unreadable: set[Pair] = set()
    budget = Budget()
    try:
        while True:
            faults, unreadable_now = compare(unreadable, budget)
            if unreadable_now == unreadable:
                return distinct_faults(faults)
            unreadable = unreadable_now
    except Incomparable as error:
        return [f"TOO_COMPLEX: {error}"]
    except RecursionError:
        return [f"TOO_COMPLEX: the schemas refer to each other through too many {parts}"]
