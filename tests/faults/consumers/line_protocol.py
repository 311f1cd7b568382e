"""What a consumer program is asked, and the lines that it tells; Java's (`GroupClient.java`) has the same.

    PROGRAM BOOTSTRAP TOPIC PAUSE_MS HURRY_FILE STOP_FILE NAME:GROUP:PROTOCOL:COMMITS ...

Each NAME is a consumer of its own, and PROTOCOL one of `Protocol`. A consumer reads some records, which is their
processing, waits PAUSE_MS (not while HURRY_FILE exists), commits how far it came, and waits for the answer, until
STOP_FILE exists; then it leaves. A commit that fails is repeated with the next one, while the partition is in hand.
After COMMITS commits a consumer leaves, too, and comes back at once as a new member (0: it stays). Every record's value
is `PARTITION:OFFSET`, padded.

Lines on stdout: the consumer's name, a letter, and microseconds of this machine's clock, then

    G generation                    of the member, its epoch in a group of KIP-848; where it is another one
    A generation partition...       these were given to the member
    V generation partition...       these were taken away, after what it had committed
    L generation partition...       these were lost: the member had been thrown out
    R partition first end           these records were processed, `end` not included
    C number partition offset       a commit begins
    K number partition              it is acknowledged
    F number partition error        it failed, or nobody knows
    X error                         anything else that a user would be told
    D                               the consumer left the group
"""

import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

BATCH = 250
"""Records between two commits, at most."""
POLL_SECONDS = 0.3
SESSION_MS = 20_000
"""Longer than a coordinator's lease and the moving of its groups: members that answer stay."""
HEARTBEAT_MS = 1_500
REQUEST_MS = 6_000
"""After which a client gives up a coordinator that stands still."""
POLL_INTERVAL_MS = 60_000
PADDING = "." * 60
_LOCK = threading.Lock()


class Protocol(Enum):
    RANGE = "range"
    """Eager: all partitions are given back before a rebalance."""
    COOPERATIVE = "cooperative"
    """Only what another member gets is given back (KIP-429)."""
    STATIC = "static"
    """Range, with group.instance.id (KIP-345)."""
    NEXT = "next"
    """The broker assigns (KIP-848)."""


@dataclass(frozen=True, slots=True)
class Member:
    """One consumer of a program."""

    name: str
    group: str
    protocol: Protocol
    commits_max: int
    """After which it leaves and comes back; 0: it stays."""

    @classmethod
    def read(cls, text: str) -> "Member":
        name, group, protocol, commits_max = text.split(":")
        return cls(name, group, Protocol(protocol), int(commits_max))

    def __str__(self) -> str:
        return f"{self.name}:{self.group}:{self.protocol.value}:{self.commits_max}"


@dataclass(frozen=True, slots=True)
class Job:
    """What all consumers of a program are to do."""

    bootstrap: str
    topic: str
    pause_s: float
    hurry_file: Path
    stop_file: Path
    members: tuple[Member, ...]

    @classmethod
    def of(cls, words: list[str]) -> "Job":
        bootstrap, topic, pause_ms, hurry_file, stop_file, *members = words
        return cls(
            bootstrap, topic, int(pause_ms) / 1000, Path(hurry_file), Path(stop_file), tuple(map(Member.read, members))
        )

    @property
    def is_over(self) -> bool:
        return self.stop_file.exists()

    def is_at_an_end(self, member: Member, commits_count: int) -> bool:
        """Whether a member that has committed so often leaves now."""
        return self.is_over or 0 < member.commits_max <= commits_count

    @property
    def pause_now_s(self) -> float:
        return 0.0 if self.hurry_file.exists() else self.pause_s


def value_of(partition: int, offset: int) -> bytes:
    return f"{partition}:{offset}:{PADDING}".encode()


@dataclass(slots=True)
class Diary:
    """Writes one consumer's lines, whole ones whatever the others of its program do."""

    name: str
    _generation: int = -1
    _commits_count: int = 0
    uncommitted: dict[int, int] = field(default_factory=dict[int, int])
    """How far partitions in hand were processed, where that is not known to be committed."""

    def say(self, kind: str, *words: object) -> None:
        text = " ".join(map(str, (self.name, kind, time.time_ns() // 1000, *words)))
        with _LOCK:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()

    def generation(self, generation: int) -> None:
        """Tell it where it is another one; negative: the member is in no generation now."""
        if generation not in (self._generation, -1):
            self.say("G", generation)
        self._generation = generation

    def given(self, generation: int, partitions: Iterable[int]) -> None:
        self.generation(generation)
        self.say("A", generation, *sorted(partitions))

    def gone(self, kind: str, generation: int, partitions: Iterable[int]) -> None:
        """Taken away (`V`) or lost (`L`)."""
        rows = sorted(partitions)
        for partition in rows:
            self.uncommitted.pop(partition, None)
        self.generation(generation)
        self.say(kind, generation, *rows)

    def left(self) -> None:
        self.uncommitted.clear()
        self.say("D")

    def processed(self, ranges: Mapping[int, tuple[int, int]]) -> None:
        for partition, (first, end) in ranges.items():
            self.say("R", partition, first, end)
            self.uncommitted[partition] = end

    def committing(self) -> tuple[int, dict[int, int]]:
        """Tell that a commit of what is uncommitted begins; returns its number and offsets by partition."""
        self._commits_count += 1
        for partition, end in self.uncommitted.items():
            self.say("C", self._commits_count, partition, end)
        return self._commits_count, dict(self.uncommitted)

    def committed(self, number: int, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self.say("K", number, partition)
            self.uncommitted.pop(partition, None)

    def failed(self, number: int, partitions: Iterable[int], error: str) -> None:
        for partition in partitions:
            self.say("F", number, partition, error)

    def check_value(self, partition: int, offset: int, value: bytes | None) -> None:
        if value != value_of(partition, offset):
            self.say("X", f"wrong-value-at-{partition}-{offset}")


def ranges_of(records: Iterable[tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """(partition, offset) of records, as they came, to (first, end) by partition. They must follow each other."""
    found: dict[int, tuple[int, int]] = {}
    for partition, offset in records:
        first, end = found.get(partition, (offset, offset))
        assert offset == end, f"offset {offset} of partition {partition} came after {end - 1}"
        found[partition] = first, offset + 1
    return found
