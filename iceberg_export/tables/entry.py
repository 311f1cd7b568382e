"""What a ledger entry says of a table's commit."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NewObject:
    """A durable object that an entry makes part of a table."""

    key: str
    object_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCommit:
    """The next version of a topic's Iceberg table. Any difference from the state refuses the whole command (S6)."""

    replaces: str
    metadata: NewObject
    added: tuple[NewObject, ...]
    data_files: tuple[str, ...]
    released: tuple[str, ...]
