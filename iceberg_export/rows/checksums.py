"""A block in a Parquet file with the CRC-32Cs of all its bytes, and the key that the file was written for.

Stored bytes are checked before they are decoded (safety rule S20): no byte of a file with a block reaches native code
before its checksum is compared. Pure; a check of a file needs neither Parquet nor Arrow.

The block is directly before the footer. No footer refers to bytes there, so other readers ignore the block. The
footer's own metadata says that the block exists (`schema.CHECKSUMS_METADATA_KEY`). Without that, a block whose magic is
damaged would look like a file from before checksums.

    stretches   for each: its size, uint64, and its CRC-32C, uint32, little-endian; they cover the file from its first
                byte without gaps: magic, each column chunk, page indexes and bloom filters
    key         UTF-8
    end         count of stretches, bytes of the key, CRC-32C of the footer with its length and magic, CRC-32C of the
                block up to here: uint32 each; magic
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
"""The fields of the end that the block's own checksum covers."""
_SAYS_CHECKSUMS: Final = b"".join(
    b"\x18" + bytes([len(text)]) + text.encode() for text in (CHECKSUMS_METADATA_KEY, CHECKSUMS_VERSION)
)
"""Key and value of the footer's metadata as strings of Thrift's compact protocol."""
_STRETCH: Final = struct.Struct("<QI")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChecksums:
    """The contents of a file's block."""

    key: str
    """The object key that the file was written for."""
    ends: "array[int]"
    """0, and the end of each stretch; the last one is the block's first byte."""
    crcs: "array[int]"

    def check(self, byte_first: int, data: Buffer) -> None:
        """Check bytes of the file, which are whole stretches.

        Raises `FileUnreadable` where `data` is not what was written from `byte_first` on.
        """
        byte_end = byte_first + len(data)
        first, end = bisect_left(self.ends, byte_first), bisect_left(self.ends, byte_end)
        # A part of a stretch has no checksum: the reference that led here does not fit the file.
        if end >= len(self.ends) or (self.ends[first], self.ends[end]) != (byte_first, byte_end):
            raise FileUnreadable(
                f"bytes {byte_first} to {byte_end} are not whole stretches, so no checksum covers them"
            )
        view = memoryview(data)
        stretches = pairwise(self.ends[first : end + 1])
        for (stretch_first, stretch_end), crc in zip(stretches, self.crcs[first:end], strict=True):
            computed = crc32c(view[stretch_first - byte_first : stretch_end - byte_first])
            if computed != crc:
                raise FileUnreadable(
                    f"bytes {stretch_first} to {stretch_end} are damaged: their CRC-32C is {computed:08x}, and was "
                    f"{crc:08x} when they were written"
                )


def sealed(data: Buffer, key: str, cuts: Iterable[int]) -> tuple[Buffer, ...]:
    """The file with its block, in parts that share its memory.

    `data`: the whole file without a block. `cuts`: positions before the footer where a stretch ends; a reader can check
    only whole stretches.
    """
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
    """The size of footer and block together, counted from the end of the file; of the footer where there is no block.

    A result above `len(tail)` is a lower bound: call again with that many bytes. `tail`: the end of the file, at least
    `FOOTER_TAIL_BYTES`. Raises `FileUnreadable`.
    """
    needed = footer_bytes(tail)
    # A damaged length would make the caller read far too much, or a negative range.
    if needed > file_bytes:
        raise FileUnreadable(f"the file has {file_bytes} bytes, but the length of its footer is {needed}")
    with_end = min(needed + _END.size, file_bytes)
    if with_end > len(tail):
        return with_end
    end = _end_of_block(tail, needed)
    if end is None:
        return needed
    stretches, key_bytes, *_ = end
    with_block = needed + _END.size + key_bytes + stretches * _STRETCH.size
    if with_block > file_bytes:
        raise FileUnreadable(
            f"the file has {file_bytes} bytes, but the lengths of its footer and checksums are {with_block}"
        )
    return with_block


def _end_of_block(tail: Buffer, needed: int) -> tuple[int, int, int, int] | None:
    first = len(tail) - needed - _END.size
    if first < 0:
        return None
    *numbers, magic = _END.unpack_from(tail, first)
    return (numbers[0], numbers[1], numbers[2], numbers[3]) if magic == _MAGIC else None


def checked_footer(tail: Buffer, file_bytes: int | None = None) -> tuple[memoryview, FileChecksums | None]:
    """The footer with its length and magic, and the contents of the block.

    The block is None for a file from before checksums; its footer is returned unchecked. `tail`: the end of the file,
    at least `tail_bytes`. `file_bytes`: the size of the file; None: unknown.

    Raises `FileUnreadable` where footer or block are damaged.
    """
    view = memoryview(tail)
    needed = footer_bytes(view)
    if needed > len(view):
        raise FileUnreadable(f"the length of the footer is {needed}, but the file has {len(view)} bytes")
    end = _end_of_block(view, needed)
    footer = view[len(view) - needed :]
    if end is None:
        # A damaged magic must not turn a file with checksums into one without.
        if _SAYS_CHECKSUMS in bytes(footer):
            raise FileUnreadable("the footer says that a block of checksums is before it, but there is none")
        return footer, None
    count, key_bytes, footer_crc, block_crc = end
    block_bytes = count * _STRETCH.size + key_bytes + _END.size
    if needed + block_bytes > len(view):
        raise FileUnreadable("the block of checksums is damaged: it is longer than the file before the footer")
    block = view[len(view) - needed - block_bytes : len(view) - needed]
    body_bytes = block_bytes - _END.size
    if crc32c(block[: body_bytes + _CHECKED_OF_END.size]) != block_crc:
        raise FileUnreadable("the block of checksums is damaged")
    if crc32c(footer) != footer_crc:
        raise FileUnreadable("the footer is damaged: its CRC-32C is not the one that it was written with")
    stretches = list(_STRETCH.iter_unpack(block[: count * _STRETCH.size]))
    ends = array("q", accumulate((byte_count for byte_count, _ in stretches), initial=0))
    # Bytes were lost or added before the block: positions in the footer would lead to other bytes.
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
    """Check a whole file. False where it has no checksums, so that nothing is known of it.

    `key`: the object key that it was read from; None: any. Raises `FileUnreadable` where it is damaged, or was written
    for another key.
    """
    _, checksums = checked_footer(data, len(data))
    if checksums is None:
        return False
    if key is not None:
        check_key(checksums, key)
    checksums.check(0, memoryview(data)[: checksums.ends[-1]])
    return True


def check_key(checksums: FileChecksums, key: str) -> None:
    """Raises `FileUnreadable` where the file was written for another key: a copy of an undamaged file is no proof."""
    if checksums.key != key:
        raise FileUnreadable(f"the file was written as {checksums.key}, but is stored under {key}")
