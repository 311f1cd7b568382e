"""Kinds of stored objects in a data folder, and what is done to them: a flipped bit, a cut, a removal, a swap, another
name.

Rule: files are changed from outside, by what is known of their layout alone; nothing of the program is imported that
reads or writes them. A damage is drawn from a seed, and named so that it can be repeated.
"""

import random
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from pyarrow import fs

from tests.support.journal.journal_records import OBJECT, stored_records
from tests.support.packs.pack_files import live_objects

FOOTER_TAIL_BYTES = 8


class Kind(StrEnum):
    """What is damaged."""

    JOURNALED = "intake object in a journal"
    JOURNAL_HEADER = "header of an intake object in a journal"
    INTAKE = "intake object in a pack"
    PACK_HEADER = "header of an intake object in a pack"
    PARQUET = "Parquet data"
    FOOTER = "Parquet footer"
    METADATA = "table metadata"
    MANIFEST_LIST = "manifest list"
    MANIFEST = "manifest"
    COPY = "copy of table metadata"
    HINT = "version hint"
    JOURNAL = "journal file"
    PACK = "pack file"
    SNAPSHOT = "snapshot"
    TAIL = "tail manifest"
    IDENTITY = "cluster.json"
    LEDGER = "SQLite ledger"
    LOG = "write-ahead log of a killed agent"
    OBJECT = "intake object in a bucket"
    ETCD = "key or value in etcd"


OF_TOPICS = (
    Kind.JOURNALED,
    Kind.JOURNAL_HEADER,
    Kind.INTAKE,
    Kind.PACK_HEADER,
    Kind.PARQUET,
    Kind.FOOTER,
    Kind.METADATA,
    Kind.MANIFEST_LIST,
    Kind.MANIFEST,
    Kind.COPY,
    Kind.HINT,
)
"""Each topic has one of its own: many are damaged in one life of an agent."""
OF_CLUSTERS = (Kind.JOURNAL, Kind.PACK, Kind.SNAPSHOT, Kind.TAIL, Kind.IDENTITY, Kind.LEDGER, Kind.LOG)
"""There is one: each damage takes a life."""
WITHOUT_JOURNAL = frozenset({Kind.INTAKE, Kind.PACK_HEADER, Kind.PACK, Kind.LEDGER, Kind.LOG})
"""Kinds that a data folder without a journal has. Those of all folders are damaged in one with a journal."""


class Mode(StrEnum):
    """What happens to it."""

    FLIP = "flip"
    CUT = "truncation"
    REMOVAL = "removal"
    SWAP = "swap"
    RENAME = "renaming"
    """Of a pack, or a file of a journal, which say in the file whose name it should have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Bytes `[first, end)` of a file below the data folder; `topic` is the one whose they are."""

    kind: Kind
    path: Path
    first: int
    end: int
    topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """What was done. `place`: the bit of a flip, or the bytes that a cut left; `others`: more topics."""

    mode: Mode
    target: Target
    place: int = -1
    others: frozenset[str] = frozenset()

    def __str__(self) -> str:
        where = {Mode.FLIP: f" of bit {self.place}", Mode.CUT: f" to {self.place} bytes"}.get(self.mode, "")
        return f"{self.target.kind}, {self.mode}{where}: {self.target.path}"

    @property
    def victims(self) -> frozenset[str]:
        """Topics that may lose records by it."""
        return self.others if self.target.topic is None else self.others | {self.target.topic}


def targets_of_topic(data: Path, kind: Kind, topic: str, marker: bytes) -> Target:
    """The one object of a kind that a topic has, the newest where there are several. `marker`: in all its records."""
    if kind in (Kind.INTAKE, Kind.PACK_HEADER):
        return _packed(data, kind, topic, marker)
    if kind in (Kind.JOURNALED, Kind.JOURNAL_HEADER):
        return _journaled(data, kind, topic, marker)
    (folder,) = (data / "store" / "lake").glob(f"{topic}-*")
    pattern = {
        Kind.PARQUET: r"data/.*\.parquet",
        Kind.FOOTER: r"data/.*\.parquet",
        Kind.METADATA: r"metadata/[0-9a-f-]+\.metadata\.json",
        Kind.MANIFEST_LIST: r"metadata/.*\.snap\.avro",
        Kind.MANIFEST: r"metadata/.*\.manifest\.avro",
        Kind.COPY: r"metadata/v\d+\.metadata\.json",
        Kind.HINT: r"metadata/version-hint\.text",
    }[kind]
    found = [path for path in sorted(folder.rglob("*")) if re.fullmatch(pattern, path.relative_to(folder).as_posix())]
    path = found[-1]
    size = path.stat().st_size
    first, end = 0, size
    if kind in (Kind.PARQUET, Kind.FOOTER):
        data_bytes = path.read_bytes()
        footer_first = size - FOOTER_TAIL_BYTES - struct.unpack_from("<I", data_bytes, size - FOOTER_TAIL_BYTES)[0]
        first, end = (4, footer_first) if kind is Kind.PARQUET else (footer_first, size)
    return Target(kind=kind, path=path.relative_to(data), first=first, end=end, topic=topic)


def _packed(data: Path, kind: Kind, topic: str, marker: bytes) -> Target:
    intake = data / "store"
    bucket = fs.SubTreeFileSystem(str(intake), fs.LocalFileSystem())
    files = {path.relative_to(intake).as_posix() for path in intake.rglob("*.pack")}
    for stored in live_objects(bucket, files).values():
        path = intake / stored.file
        payload = path.read_bytes()[stored.payload_first : stored.payload_first + stored.payload_bytes]
        if marker in payload:
            first, end = stored.payload_first, stored.payload_first + stored.payload_bytes
            if kind is Kind.PACK_HEADER:
                first, end = stored.record_first, stored.payload_first
            return Target(kind=kind, path=path.relative_to(data), first=first, end=end, topic=topic)
    raise AssertionError(f"no pack has records of {topic}")


def _journaled(data: Path, kind: Kind, topic: str, marker: bytes) -> Target:
    for path in sorted((data / "journal").iterdir()):
        content = path.read_bytes()
        for record in stored_records(content):
            if record.kind == OBJECT and marker in content[record.payload_first : record.payload_end]:
                first, end = record.payload_first, record.payload_end
                if kind is Kind.JOURNAL_HEADER:
                    first, end = record.record_first, record.payload_first
                return Target(kind=kind, path=path.relative_to(data), first=first, end=end, topic=topic)
    raise AssertionError(f"no file of the journal has records of {topic}")


def targets_of_cluster(data: Path, kind: Kind) -> Target:
    """The one object of a kind, the newest where there are several."""
    pattern = {
        Kind.JOURNAL: "journal/*.journal",
        Kind.PACK: "store/**/*.pack",
        Kind.SNAPSHOT: "store/ledger/snapshots/*",
        Kind.TAIL: "store/ledger/tail/current",
        Kind.IDENTITY: "store/cluster.json",
        Kind.LEDGER: "ledger.sqlite",
        Kind.LOG: "ledger.sqlite-wal",
    }[kind]
    path = max(path for path in data.glob(pattern) if path.is_file() and path.stat().st_size)
    end = path.stat().st_size
    if kind is Kind.JOURNAL:
        end = len(path.read_bytes().rstrip(b"\0"))  # behind it are blocks for later writes
    return Target(kind=kind, path=path.relative_to(data), first=0, end=end)


def flip(data: Path, target: Target, random_: random.Random) -> Damage:
    """Turn over one bit of the target."""
    bit = random_.randrange(target.first * 8, target.end * 8)
    with (data / target.path).open("r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))
    return Damage(mode=Mode.FLIP, target=target, place=bit)


def cut(data: Path, target: Target, random_: random.Random) -> Damage:
    """End the target's file somewhere in the target."""
    place = random_.randrange(target.first, target.end)
    with (data / target.path).open("r+b") as file:
        file.truncate(place)
    return Damage(mode=Mode.CUT, target=target, place=place)


def remove(data: Path, target: Target) -> Damage:
    """Remove the target's file."""
    (data / target.path).unlink()
    return Damage(mode=Mode.REMOVAL, target=target)


def rename(data: Path, target: Target, random_: random.Random) -> Damage:
    """Call a pack, or a file of a journal, by another number, from below to far above its own."""
    path = target.path.with_stem(f"{random_.randrange(1 << random_.randint(1, 64)):016x}")
    (data / target.path).rename(data / path)
    return Damage(mode=Mode.RENAME, target=replace(target, path=path))


def swap(data: Path, target: Target, other: Target) -> Damage:
    """Give each of two files the other's contents."""
    one, two = data / target.path, data / other.path
    contents = one.read_bytes(), two.read_bytes()
    one.write_bytes(contents[1])
    two.write_bytes(contents[0])
    return _swapped(target, other)


def swap_parts(data: Path, target: Target, other: Target) -> Damage:
    """Give each of two targets of one size, which are parts of files, the other's bytes."""
    assert target.end - target.first == other.end - other.first, "one does not fit in the place of the other"
    places = [(data / each.path, each.first, each.end) for each in (target, other)]
    contents = [path.read_bytes()[first:end] for path, first, end in places]
    for (path, first, _), content in zip(places, reversed(contents), strict=True):
        with path.open("r+b") as file:
            file.seek(first)
            file.write(content)
    return _swapped(target, other)


def _swapped(target: Target, other: Target) -> Damage:
    return Damage(mode=Mode.SWAP, target=target, others=frozenset({other.topic} if other.topic else ()))


def in_order(damages: Sequence[Damage]) -> list[Damage]:
    """As they are reported."""
    return sorted(damages, key=lambda damage: (damage.target.kind, damage.mode, str(damage.target.path)))
