"""What tests ask of a Kafka client, whichever it is.

Rule: a client is told partitions and offsets and uses `assign`; it is never asked for a group. Times are milliseconds.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SHOWN_BYTES_MAX = 4_096
REQUEST_BYTES_MAX = 4 * 1024 * 1024
"""What producers may send at once; the topic's own limit is what counts."""
SECONDS_MAX = 60.0

Place = tuple[str, int]
"""A topic's name and a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A record as its producer means it. A large value stands as `shown` has it."""

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 0
    is_append_time: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """A row to be sent to one partition with one codec."""

    codec: str
    place: Place
    row: Row


Rows = dict[Place, list[tuple[int, Row]]]
"""Offsets and rows of each partition, in the order in which the client gave them."""


class Client(Protocol):
    """One client library."""

    def can_send(self, row: Row) -> bool:
        """Whether its API has words for this row."""
        ...

    def produce(self, bootstrap: str, sends: Sequence[Send]) -> None:
        """Send everything, each partition's rows in order; returns when all are acknowledged."""
        ...

    def consume(
        self,
        bootstrap: str,
        ranges: Mapping[Place, tuple[int, int]],
        *,
        assigned: Callable[[], None] = lambda: None,
        wait_ms: int = 500,
    ) -> Rows:
        """Read each partition from the first offset until the record before the second has come.

        `assigned` is called once the client has asked for records and got its first answer, perhaps an empty one.
        `wait_ms` is how long a fetch may wait in the broker. Raises `AssertionError` if not all comes in time.
        """
        ...

    def offsets_at(self, bootstrap: str, times: Mapping[Place, int]) -> dict[Place, int | None]:
        """The first offset at or after a time; None where there is none."""
        ...

    def ends(self, bootstrap: str, places: Sequence[Place]) -> dict[Place, tuple[int, int]]:
        """The first offset and the end of each partition."""
        ...


def shown(value: bytes | None) -> bytes | None:
    """The value, or its digest where it is long."""
    if value is None or len(value) <= SHOWN_BYTES_MAX:
        return value
    return b"#" + hashlib.sha256(value).hexdigest().encode()


def as_consumed(row: Row) -> Row:
    """A sent row as `Client.consume` gives it back."""
    return Row(key=row.key, value=shown(row.value), headers=row.headers, timestamp_ms=row.timestamp_ms)


class Waiting:
    """Which partitions have not reached their ends, and what came so far."""

    def __init__(self, ranges: Mapping[Place, tuple[int, int]]) -> None:
        self.rows: Rows = {place: [] for place in ranges}
        self._ends = {place: end for place, (first, end) in ranges.items() if first < end}

    def __bool__(self) -> bool:
        return bool(self._ends)

    def add(self, place: Place, offset: int, row: Row) -> None:
        self.rows[place].append((offset, row))
        if offset + 1 >= self._ends.get(place, offset + 2):
            del self._ends[place]

    @property
    def failure(self) -> str:
        came = {place: len(self.rows[place]) for place in list(self._ends)[:5]}
        return f"{len(self._ends)} partitions did not reach their ends; records that came, of some of them: {came}"
