"""Follows the clients' logs, and says when service is back.

Rule: service is back when every producer had a record acknowledged in every partition, and every reader read one of
every partition, that was sent after the fault ended: what was under way before does not count.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.torture.history import Consumed, Event, GrowingLog, Produced, add_consumed, add_produced

ERROR_NOTED = re.compile(r"Error: ([A-Z_]+)|^%\d\|[\d.]+\|([A-Z_]+)\||^\[(?:WARN|ERROR)\] ([^;]{1,60})")
"""In the logs of Java, librdkafka and franz-go."""


@dataclass(slots=True, kw_only=True)
class Recovery:
    """Who still waits for service since `began_ms`, and when the last one had it."""

    began_ms: int
    waiting: set[tuple[str, int]]
    last_ms: int = 0

    @property
    def seconds(self) -> float | None:
        """How long it took; None while somebody waits."""
        return None if self.waiting else max(0, self.last_ms - self.began_ms) / 1000


@dataclass(slots=True)
class Monitor:
    """Logs of producers and readers by the clients' names."""

    producers: Mapping[str, Path]
    readers: Mapping[str, Path]
    partitions: int
    notes: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """What each process wrote to stderr: errors that its library dealt with by itself."""
    produced: Produced = field(default_factory=Produced)
    consumed: dict[str, Consumed] = field(default_factory=dict[str, Consumed])
    noted: Counter[str] = field(default_factory=Counter[str])
    _notes: dict[str, GrowingLog] = field(default_factory=dict[str, GrowingLog])
    _written: dict[str, GrowingLog] = field(default_factory=dict[str, GrowingLog])
    _read: dict[str, GrowingLog] = field(default_factory=dict[str, GrowingLog])
    _recovery: Recovery | None = None

    def __post_init__(self) -> None:
        self.consumed = {name: Consumed() for name in self.readers}
        self._written = {name: GrowingLog(path) for name, path in self.producers.items()}
        self._notes = {name: GrowingLog(path) for name, path in self.notes.items()}
        self._read = {name: GrowingLog(path) for name, path in self.readers.items()}

    def await_service(self, began_ms: int) -> Recovery:
        """Begin to look for service that began after this moment."""
        clients = [("writer", name) for name in self.producers] + [("reader", name) for name in self.readers]
        waiting = {(f"{role} {name}", partition) for role, name in clients for partition in range(self.partitions)}
        self._recovery = Recovery(began_ms=began_ms, waiting=waiting)
        return self._recovery

    def follow(self) -> None:
        """Take in what the clients logged since the last call."""
        for name in self.producers:
            self._see("writer", add_produced(self.produced, name, self._written[name].new_lines()))
        for name in self.readers:
            self._see("reader", add_consumed(self.consumed[name], name, self._read[name].new_lines()))
        for name, log in self._notes.items():
            found = (ERROR_NOTED.search(line) for line in log.new_lines())
            self.noted.update(f"{name} {match[match.lastindex or 0].strip()}" for match in found if match)

    def errors(self) -> Counter[str]:
        """How often each client was told each error, so far, those included that its library dealt with."""
        return sum((consumed.errors for consumed in self.consumed.values()), self.produced.errors + self.noted)

    def _see(self, role: str, events: list[Event]) -> None:
        recovery = self._recovery
        if recovery is None or not recovery.waiting:
            return
        for client, value, moment_ms in events:
            place = (f"{role} {client}", value.partition)
            if place in recovery.waiting and self.produced.sent.get(value, 0) > recovery.began_ms:
                recovery.waiting.discard(place)
                recovery.last_ms = max(recovery.last_ms, moment_ms)
