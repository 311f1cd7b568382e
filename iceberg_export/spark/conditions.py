"""What of a topic's rows is wanted, as Spark pushes it down: intervals of partition, offset and timestamp, and topics.

Rule: pure, and exact: a filter is taken only where every row that comes out satisfies it, so that Spark need not look
again. What is not taken stays Spark's. None of these columns is ever null.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

INT64_MIN, INT64_END = -(1 << 63), 1 << 63
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Comparison(NamedTuple):
    """A filter without Spark's classes: `operator` is the name of `pyspark.sql.datasource`'s class."""

    operator: str
    column: str
    value: object = None


class Intervals:
    """Integers in half-open intervals that neither overlap nor touch, in order."""

    __slots__ = ("_bounds",)

    def __init__(self, bounds: Iterable[tuple[int, int]] = ((INT64_MIN, INT64_END),)) -> None:
        """`bounds` in any order; empty ones and overlaps are allowed."""
        merged: list[tuple[int, int]] = []
        for first, end in sorted(bounds):
            if first >= end:
                continue
            if merged and first <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], end))
            else:
                merged.append((first, end))
        self._bounds = tuple(merged)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Intervals) and self._bounds == other._bounds

    def __hash__(self) -> int:
        return hash(self._bounds)

    @property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        return self._bounds

    @property
    def is_all(self) -> bool:
        return self._bounds == ((INT64_MIN, INT64_END),)

    def __and__(self, other: "Intervals") -> "Intervals":
        return Intervals(
            (max(first, other_first), min(end, other_end))
            for first, end in self._bounds
            for other_first, other_end in other.meeting(first, end)
        )

    def meeting(self, first: int, end: int) -> Sequence[tuple[int, int]]:
        """The intervals that share a number with `[first, end)`, none where that is empty."""
        if first >= end:
            return []
        row = bisect_right(self._bounds, first, key=lambda bound: bound[1])
        found: list[tuple[int, int]] = []
        while row < len(self._bounds) and self._bounds[row][0] < end:
            found.append(self._bounds[row])
            row += 1
        return found

    def hull(self, first: int, end: int) -> tuple[int, int]:
        """The least part of `[first, end)` that holds all of it that is wanted; an empty one where nothing is."""
        found = self.meeting(first, end)
        if not found:
            return first, first
        return max(first, found[0][0]), min(end, found[-1][1])

    def holds(self, number: int) -> bool:
        return bool(self.meeting(number, number + 1))

    def covers(self, first: int, last: int) -> bool:
        """Whether all of `[first, last]` is wanted."""
        return any(low <= first and last < high for low, high in self.meeting(first, last + 1))

    def mask(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the numbers are wanted."""
        if not self._bounds:
            return np.zeros(len(numbers), dtype=np.bool_)
        firsts = np.array([first for first, _ in self._bounds], dtype=np.int64)
        lasts = np.array([end - 1 for _, end in self._bounds], dtype=np.int64)
        row = np.searchsorted(firsts, numbers, side="right") - 1
        wanted: NDArray[np.bool_] = (row >= 0) & (numbers <= lasts[np.maximum(row, 0)])
        return wanted


ALL: Final = Intervals()
_INTERVAL_COLUMNS: Final = {"partition": "partitions", "offset": "offsets", "timestamp": "times_us"}
_ALWAYS_SET: Final = frozenset({"topic", "timestampType", *_INTERVAL_COLUMNS})
Topics: TypeAlias = frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """All of them hold for every row that is wanted. Times in microseconds since 1970."""

    topics: Topics | None = None
    """None: any."""
    partitions: Intervals = ALL
    offsets: Intervals = ALL
    times_us: Intervals = ALL

    def wants_topic(self, topic: str) -> bool:
        return self.topics is None or topic in self.topics

    def taken(self, filters: Sequence[Comparison]) -> "tuple[Conditions, tuple[int, ...]]":
        """These conditions and those of `filters` that can be kept here; and which of them are left to Spark."""
        conditions, left = self, list[int]()
        for index, comparison in enumerate(filters):
            narrower = conditions._with(comparison)
            if narrower is None:
                left.append(index)
            else:
                conditions = narrower
        return conditions, tuple(left)

    def _with(self, comparison: Comparison) -> "Conditions | None":
        if comparison.operator == "IsNotNull" and comparison.column in _ALWAYS_SET:
            return self
        if comparison.column == "topic":
            names = _topics(comparison)
            if names is None:
                return None
            return replace(self, topics=names if self.topics is None else self.topics & names)
        name = _INTERVAL_COLUMNS.get(comparison.column)
        found = None if name is None else _intervals(comparison)
        if name is None or found is None:
            return None
        match name:
            case "partitions":
                return replace(self, partitions=self.partitions & found)
            case "offsets":
                return replace(self, offsets=self.offsets & found)
            case _:
                return replace(self, times_us=self.times_us & found)


def _topics(comparison: Comparison) -> Topics | None:
    match comparison.operator, comparison.value:
        case (("EqualTo" | "EqualNullSafe"), str(name)):
            return frozenset({name})
        case "In", (list() | tuple()) as names if all(isinstance(name, str) for name in names):
            return frozenset(names)
        case _:
            return None


def _intervals(comparison: Comparison) -> Intervals | None:
    operator, value = comparison.operator, comparison.value
    if operator == "In":
        if not isinstance(value, list | tuple):
            return None
        numbers = [_number(each, comparison.column) for each in value]
        known = [number for number in numbers if number is not None]
        return Intervals((number, number + 1) for number in known) if len(known) == len(numbers) else None
    number = _number(value, comparison.column)
    if number is None:
        return None
    bound = {
        "EqualTo": (number, number + 1),
        "EqualNullSafe": (number, number + 1),
        "GreaterThan": (number + 1, INT64_END),
        "GreaterThanOrEqual": (number, INT64_END),
        "LessThan": (INT64_MIN, number),
        "LessThanOrEqual": (INT64_MIN, number + 1),
    }.get(operator)
    return None if bound is None else Intervals([bound])


def _number(value: object, column: str) -> int | None:
    """The value as the integers of the column count; None where it is none of its kind."""
    if column == "timestamp":
        if not isinstance(value, datetime) or value.tzinfo is None:
            return None
        return (value - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, bool) or not isinstance(value, int) or not INT64_MIN < value < INT64_END - 1:
        return None
    return value
