"""CRC-32Cs of a Parquet file's bytes, in a block of the file itself, and the key that the file was written for.

Rule: stored bytes are checked before they are believed (safety rule S20): nothing of a file that has a block reaches
native code before its checksum was found right. Pure; neither Parquet nor Arrow is needed to check a file.

The block stands directly in front of the footer, where Parquet leaves room: nothing that a footer names lies behind it,
so other readers do not notice. The footer's own metadata says that there is a block (`schema.CHECKSUMS_METADATA_KEY`),
so a block whose magic is damaged is not taken for a file of before.

    stretches   uint64 and uint32 for each, little-endian: its bytes and its CRC-32C; from the file's first byte on
                without holes: magic, each column chunk, page indexes and bloom filters
    key         UTF-8
    end         how many stretches, how many bytes of key, CRC-32C of the footer with its length and magic,
                CRC-32C of all before this in the block: uint32 each; magic
"""

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

from crc32c import crc32c

from iceberg_export.rows.footer import FOOTER_TAIL_BYTES, FileUnreadable, footer_bytes
from iceberg_export.rows.schema import CHECKSUMS_METADATA_KEY, CHECKSUMS_VERSION
from storage.object_store import Buffer

_MAGIC: Final = b"PNSTKCRC"
_END: Final = struct.Struct("<IIII8s")
_CHECKED_OF_END: Final = struct.Struct("<III")
"""What of the end the block's own checksum covers."""
_SAYS_CHECKSUMS: Final = b"".join(
    b"\x18" + bytes([len(text)]) + text.encode() for text in (CHECKSUMS_METADATA_KEY, CHECKSUMS_VERSION)
)
"""Both as strings of Thrift's compact protocol, as they stand in the footer."""
_STRETCH: Final = struct.Struct("<QI")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChecksums:
    """What a file's block says."""

    key: str
    """The object that the file was written as."""
    ends: "array[int]"
    """0, and the end of each stretch; the last is where the block begins."""
    crcs: "array[int]"

    def check(self, byte_first: int, data: Buffer) -> None:
        """Raises `FileUnreadable` where `data` is not what was written from `byte_first` on: stretches as a whole."""
        byte_end = byte_first + len(data)
        first, end = bisect_left(self.ends, byte_first), bisect_left(self.ends, byte_end)
        if end >= len(self.ends) or (self.ends[first], self.ends[end]) != (byte_first, byte_end):
            raise FileUnreadable(f"bytes {byte_first} to {byte_end} are no stretches that have checksums")
        view = memoryview(data)
        stretches = pairwise(self.ends[first : end + 1])
        for (stretch_first, stretch_end), crc in zip(stretches, self.crcs[first:end], strict=True):
            found = crc32c(view[stretch_first - byte_first : stretch_end - byte_first])
            if found != crc:
                raise FileUnreadable(
                    f"bytes {stretch_first} to {stretch_end} are damaged: their CRC-32C is {found:08x}, and was "
                    f"{crc:08x} when they were written"
                )


def sealed(data: Buffer, key: str, cuts: Iterable[int]) -> tuple[Buffer, ...]:
    """A whole file with its block, in parts that share its memory. `cuts`: where stretches end that readers ask for."""
    view = memoryview(data)
    footer_first = len(view) - footer_bytes(view[-FOOTER_TAIL_BYTES:])
    ends = sorted({0, footer_first, *cuts})
    assert (ends[0], ends[-1]) == (0, footer_first), "cuts lie in front of the footer"
    stretches = [_STRETCH.pack(end - first, crc32c(view[first:end])) for first, end in pairwise(ends)]
    name = key.encode()
    body = b"".join((*stretches, name))
    footer_crc = crc32c(view[footer_first:])
    block_crc = crc32c(_CHECKED_OF_END.pack(len(stretches), len(name), footer_crc), crc32c(body))
    end = _END.pack(len(stretches), len(name), footer_crc, block_crc, _MAGIC)
    return view[:footer_first], body + end, view[footer_first:]


def tail_bytes(tail: Buffer, file_bytes: int) -> int:
    """How many bytes from the end of the file footer and block take, as far as `tail` tells; where it holds fewer,
    more may be needed still. A file without a block needs its footer alone.

    `tail` is the end of the file, at least `FOOTER_TAIL_BYTES`. Raises `FileUnreadable`.
    """
    needed = footer_bytes(tail)
    if needed > file_bytes:
        raise FileUnreadable(f"the file has {file_bytes} bytes and says that its footer takes {needed}")
    with_end = min(needed + _END.size, file_bytes)
    if with_end > len(tail):
        return with_end
    found = _end_of_block(tail, needed)
    if found is None:
        return needed
    stretches, key_bytes, *_ = found
    with_block = needed + _END.size + key_bytes + stretches * _STRETCH.size
    if with_block > file_bytes:
        raise FileUnreadable(f"the file has {file_bytes} bytes and says that its checksums begin {with_block} earlier")
    return with_block


def _end_of_block(tail: Buffer, needed: int) -> tuple[int, int, int, int] | None:
    first = len(tail) - needed - _END.size
    if first < 0:
        return None
    *numbers, magic = _END.unpack_from(tail, first)
    return (numbers[0], numbers[1], numbers[2], numbers[3]) if magic == _MAGIC else None


def checked_footer(tail: Buffer, file_bytes: int | None = None) -> tuple[memoryview, FileChecksums | None]:
    """The footer with its length and magic, and what the block says; None where the file has none, so that nothing of
    the footer is checked. `tail`: at least `tail_bytes`. `file_bytes`: of the whole file, where they are known.

    Raises `FileUnreadable` where footer or block are damaged.
    """
    view = memoryview(tail)
    needed = footer_bytes(view)
    if needed > len(view):
        raise FileUnreadable(f"the file says that its footer takes {needed} bytes, and has {len(view)}")
    found = _end_of_block(view, needed)
    footer = view[len(view) - needed :]
    if found is None:
        if _SAYS_CHECKSUMS in bytes(footer):
            raise FileUnreadable("the footer says that checksums are in front of it, and there are none")
        return footer, None
    count, key_bytes, footer_crc, block_crc = found
    block_bytes = count * _STRETCH.size + key_bytes + _END.size
    if needed + block_bytes > len(view):
        raise FileUnreadable("the block of checksums is damaged: it is longer than what is in front of the footer")
    block = view[len(view) - needed - block_bytes : len(view) - needed]
    body_bytes = block_bytes - _END.size
    if crc32c(block[: body_bytes + _CHECKED_OF_END.size]) != block_crc:
        raise FileUnreadable("the block of checksums is damaged")
    if crc32c(footer) != footer_crc:
        raise FileUnreadable("the footer is damaged: it has not the checksum that it was written with")
    stretches = list(_STRETCH.iter_unpack(block[: count * _STRETCH.size]))
    ends = array("q", accumulate((byte_count for byte_count, _ in stretches), initial=0))
    if file_bytes is not None and ends[-1] + block_bytes + needed != file_bytes:
        raise FileUnreadable(
            f"the file has {file_bytes} bytes, and had {ends[-1] + block_bytes + needed} when it was written"
        )
    checksums = FileChecksums(
        key=bytes(block[body_bytes - key_bytes : body_bytes]).decode(),
        ends=ends,
        crcs=array("I", (crc for _, crc in stretches)),
    )
    return footer, checksums


def check_whole(data: Buffer, key: str | None) -> bool:
    """Whether the file, all of it, has checksums; then all of it is right. `key`: where it lies, None for anywhere.

    Raises `FileUnreadable` where it is damaged, or another object's.
    """
    _, checksums = checked_footer(data, len(data))
    if checksums is None:
        return False
    if key is not None:
        check_key(checksums, key)
    checksums.check(0, memoryview(data)[: checksums.ends[-1]])
    return True


def check_key(checksums: FileChecksums, key: str) -> None:
    """Raises `FileUnreadable` where another object's bytes lie under `key`."""
    if checksums.key != key:
        raise FileUnreadable(f"the file was written as {checksums.key}, and lies under {key}")
