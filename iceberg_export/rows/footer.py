"""What is known of a Parquet file without reading its rows.

Rule: imports nothing heavy, so that the agent can start with it.
Specification: Apache Parquet's format, "File format".
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from storage.object_store import Buffer, ObjectDamaged, StoreError

if TYPE_CHECKING:
    from iceberg_export.rows.columns import BinaryColumn  # numpy

Arrow: TypeAlias = Any
"""An object of pyarrow's."""
MAGIC = b"PAR1"
FOOTER_TAIL_BYTES = 8
"""Length of the footer, 4 bytes little-endian, and the magic: the end of every Parquet file."""


class FileUnreadable(ObjectDamaged):
    """The bytes are not a Parquet file of ours: the object is corrupt, or the reference to it is wrong. Asking again
    cannot help; `penstock inspect object KEY` says whether that object can be read."""


@contextmanager
def damage_contained(subject: str) -> Iterator[None]:
    """Every exception inside becomes `FileUnreadable`, but `StoreError`s as they are (safety rule S20).

    It stands where stored bytes become Arrow, or rows that were made of them are used. pyarrow raises exceptions of its
    own there, and `KeyError`, `UnicodeDecodeError` and `AttributeError` besides. A length that is damaged may ask for
    more memory than there is, so `MemoryError` is one of them.
    """
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        raise FileUnreadable(f"{subject} cannot be read: {type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroupLocation:
    """Where a row group's columns lie in the file, as far as Kafka's records are made of them, and its rows."""

    byte_first: int
    byte_count: int
    row_count: int


class ByteChecks(Protocol):
    """Checks bytes of a file against the checksums that it was written with."""

    def check(self, byte_first: int, data: Buffer) -> None:
        """Raises `FileUnreadable` where `data` is not what was written from `byte_first` on."""
        ...


class ValueDecoder(Protocol):
    """Decodes values whose bytes a file leaves out, from its typed columns."""

    @property
    def columns(self) -> Sequence[str]:
        """The typed columns that `decode` reads, each once."""
        ...

    def decode(self, kept: "BinaryColumn", schema_ids: Arrow, arrays: Mapping[str, Arrow]) -> "BinaryColumn":
        """All values of a row group. CPU work; raises `FileUnreadable`.

        kept: the values whose bytes the file has, null for those that it leaves out.
        schema_ids: the schema of each left-out value, null for the values in `kept`.
        arrays: one array for each name in `columns`.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """A file's footer, parsed once and kept. What reads the file hands in checks and decoder, so that this module needs
    neither checksums nor typed columns."""

    row_groups: tuple[RowGroupLocation, ...]
    metadata: Mapping[str, str]
    parsed: object
    """The form in which `arrow_files` wants it back for decoding."""
    value_decoder: ValueDecoder | None = None
    """Decodes the values whose bytes the file leaves out; None where it has the bytes of all."""
    has_header_keys: bool = False
    """Whether the file keeps header keys as bytes, too (`header_keys`)."""
    checksums: ByteChecks | None = None
    """The checks of all bytes in front of the footer; None for a file that was written without checksums."""


def footer_bytes(tail: Buffer) -> int:
    """How many bytes from the end of the file the footer takes, its length and magic included.

    `tail` is the end of the file, at least `FOOTER_TAIL_BYTES`. Raises `FileUnreadable`.
    """
    end = bytes(memoryview(tail)[-FOOTER_TAIL_BYTES:])
    if len(end) < FOOTER_TAIL_BYTES or end[4:] != MAGIC:
        raise FileUnreadable(f"a Parquet file ends with {MAGIC!r}, not with {end[4:]!r}")
    return int.from_bytes(end[:4], "little") + FOOTER_TAIL_BYTES
