"""What clients logged while they ran: sent, acknowledged, given up, read.

Rule: a log is read as it grows, whole lines alone, so a client that was killed leaves no torn record behind. Lines:
`tests.torture.confluent_client`. Times are wall milliseconds of this machine.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

UNKNOWN_OFFSET = -1001
"""librdkafka acknowledges a batch whose answer was lost once a later one is acknowledged; it cannot say where it is."""


class Value(NamedTuple):
    """One record's value, unique in a run."""

    producer: str
    partition: int
    counter: int

    @classmethod
    def read(cls, text: str) -> "Value":
        producer, partition, counter = text.split(":")
        return cls(producer, int(partition), int(counter))

    def __str__(self) -> str:
        return f"{self.producer}:{self.partition}:{self.counter}"


class Read(NamedTuple):
    """A record as a reader saw it."""

    partition: int
    offset: int
    value: Value


class Event(NamedTuple):
    """Something that shows service: an acknowledgement or a read, by whom and when."""

    client: str
    value: Value
    moment_ms: int


@dataclass(slots=True, kw_only=True)
class Produced:
    """What all producers did."""

    sent: dict[Value, int] = field(default_factory=dict[Value, int])
    """When each was handed to its client."""
    acknowledged: dict[Value, int] = field(default_factory=dict[Value, int])
    """Offsets, or `UNKNOWN_OFFSET`."""
    given_up: dict[Value, str] = field(default_factory=dict[Value, str])
    errors: Counter[str] = field(default_factory=Counter[str])


@dataclass(slots=True, kw_only=True)
class Consumed:
    """What one reader saw, in its order."""

    reads: list[Read] = field(default_factory=list[Read])
    errors: Counter[str] = field(default_factory=Counter[str])


class GrowingLog:
    """The lines of a file that a process writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def new_lines(self) -> list[str]:
        """The whole lines that came since the last call."""
        with self._path.open("rb") as file:
            file.seek(self._position)
            whole, separator, _torn = file.read().rpartition(b"\n")
        self._position += len(whole) + len(separator)
        return whole.decode().split("\n") if separator else []


def add_produced(produced: Produced, name: str, lines: list[str]) -> list[Event]:
    """Take in what one producer logged; returns its acknowledgements."""
    events: list[Event] = []
    for line in lines:
        kind, moment, *words = line.split()
        match kind:
            case "S":
                produced.sent[Value(name, int(words[0]), int(words[1]))] = int(moment)
            case "A":
                value = Value(name, int(words[0]), int(words[2]))
                produced.acknowledged[value] = int(words[1])
                events.append(Event(name, value, int(moment)))
            case "E":
                produced.given_up[Value(name, int(words[0]), int(words[1]))] = words[2]
                produced.errors[f"{name} {words[2]}"] += 1
            case _:
                produced.errors[f"{name} {words[0]}"] += 1
    return events


def add_consumed(consumed: Consumed, name: str, lines: list[str]) -> list[Event]:
    """Take in what one reader logged; returns its reads."""
    events: list[Event] = []
    for line in lines:
        kind, moment, *words = line.split()
        if kind == "R":
            read = Read(int(words[0]), int(words[1]), Value.read(words[2]))
            consumed.reads.append(read)
            events.append(Event(name, read.value, int(moment)))
        else:
            consumed.errors[f"{name} {words[0]}"] += 1
    return events
