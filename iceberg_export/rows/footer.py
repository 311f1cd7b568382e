"""A Parquet file's footer, and the ports to its checksums and to its left-out values.

No heavy imports: the agent loads this module at its start.
Specification: Apache Parquet's format, "File format".
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from protocol.limits import FOOTER_READ_BYTES_MAX, FOOTER_READ_BYTES_MIN, FOOTER_READ_SHARE
from storage.object_store import Buffer, ObjectDamaged, StoreError

if TYPE_CHECKING:
    from iceberg_export.rows.columns import BinaryColumn  # numpy

Arrow: TypeAlias = Any
"""A pyarrow object."""
MAGIC = b"PAR1"
FOOTER_TAIL_BYTES = 8
"""The end of every Parquet file: the footer's length, 4 bytes little-endian, and the magic."""


class FileUnreadable(ObjectDamaged):
    """The bytes are no Parquet file of Penstock: the object is damaged, or the reference to it is wrong.

    Another read does not help. `penstock inspect object KEY` reports whether the object can be read.
    """


@contextmanager
def damage_contained(subject: str) -> Iterator[None]:
    """Raises `FileUnreadable` for every exception inside, except `StoreError`s, which pass (safety rule S20).

    It encloses code that decodes stored bytes with Arrow, or uses the decoded rows. pyarrow raises exceptions of its
    own there, and `KeyError`, `UnicodeDecodeError` and `AttributeError`. A damaged length may ask for more memory than
    there is, so `MemoryError` is included.
    """
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        raise FileUnreadable(f"{subject} cannot be read: {type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroupLocation:
    """The byte range of a row group's columns that Kafka's records are made of, and its count of rows."""

    byte_first: int
    byte_count: int
    row_count: int


class ByteChecks(Protocol):
    """Compares bytes of a file with the checksums that it was written with."""

    @property
    def ends(self) -> Sequence[int]:
        """0, and the end of each stretch of bytes that has a checksum."""
        ...

    def check(self, byte_first: int, data: Buffer) -> None:
        """Raises `FileUnreadable` where `data` is not what was written from `byte_first` on."""
        ...


class ValueDecoder(Protocol):
    """Decodes values whose bytes a file leaves out, from its typed columns."""

    @property
    def columns(self) -> Sequence[str]:
        """The typed columns that `decode` reads, each once."""
        ...

    def decode(self, kept_values: "BinaryColumn", schema_ids: Arrow, arrays: Mapping[str, Arrow]) -> "BinaryColumn":
        """All values of a row group. CPU work; raises `FileUnreadable`.

        kept_values: the values whose bytes the file has, null for those that it leaves out.
        schema_ids: the schema of each left-out value, null for the values in `kept_values`.
        arrays: one array for each name in `columns`.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """A file's parsed footer.

    The reader of the file passes the checksums and the decoder, so this module imports neither.
    """

    row_groups: tuple[RowGroupLocation, ...]
    metadata: Mapping[str, str]
    parsed: object
    """pyarrow's form of the footer; `arrow_reader` decodes row groups with it."""
    value_decoder: ValueDecoder | None = None
    """Decodes the values whose bytes the file leaves out; None where it leaves out none."""
    has_header_keys: bool = False
    """True where the file keeps header keys as bytes, too (`header_keys`)."""
    checksums: ByteChecks | None = None
    """The checksums of all bytes before the footer; None for a file from before checksums."""
    page_rows: int = 0
    """The rows of each page of its large row groups; 0 where no row group can be read by pages."""
    schema: bytes = b""
    """The schema's elements as the footer has them; empty where no row group can be read by pages."""


def tail_bytes_first(object_bytes: int) -> int:
    """The bytes from the end of a file to request first. They nearly always have its footer and its checksums."""
    share = min(object_bytes // FOOTER_READ_SHARE, FOOTER_READ_BYTES_MAX)
    return min(max(share, FOOTER_READ_BYTES_MIN), object_bytes)


def footer_bytes(tail: Buffer) -> int:
    """The size of the footer with its length and magic, which are the last bytes of the file.

    `tail`: the end of the file, at least `FOOTER_TAIL_BYTES`. Raises `FileUnreadable`.
    """
    end = bytes(memoryview(tail)[-FOOTER_TAIL_BYTES:])
    if len(end) < FOOTER_TAIL_BYTES or end[4:] != MAGIC:
        raise FileUnreadable(f"a Parquet file ends with {MAGIC!r}, not with {end[4:]!r}")
    return int.from_bytes(end[:4], "little") + FOOTER_TAIL_BYTES
