"""A message between an agent and its worker: an object in memory that both map, so that its buffers are copied once.

Layout of the memory: the count of lengths, the lengths of the pickled object and of each buffer (u64, little-endian),
then these. Both processes are the same program, and only they have the memory's descriptor: so the object is pickled.
"""

import copyreg
import io
import mmap
import os
import pickle
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pickle import PickleBuffer
from struct import Struct
from typing import Final

_COUNT: Final = Struct("<Q")
_BUFFERS_PER_WRITE: Final = 1024
"""The limit of writev(2), IOV_MAX."""


class TooLarge(Exception):
    """A message exceeds the caller's limit."""


def write_message(value: object, *, bytes_max: int) -> int:
    """Returns the descriptor of a new memory that holds `value`. The caller closes it.

    Raises `TooLarge`, `OSError`, and whatever the pickling of `value` raises.
    """
    pickled, buffers = io.BytesIO(), list[PickleBuffer]()
    pickler = pickle.Pickler(pickled, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append)
    pickler.dispatch_table = {**copyreg.dispatch_table, memoryview: _view}
    pickler.dump(value)
    parts: list[memoryview] = [pickled.getbuffer(), *(buffer.raw() for buffer in buffers)]
    if sum(map(len, parts)) > bytes_max:
        raise TooLarge(f"a message of {sum(map(len, parts))} bytes, {bytes_max} is the most")
    lengths = Struct(f"<{len(parts)}Q").pack(*map(len, parts))
    memory = os.memfd_create("penstock-worker")
    try:
        _write(memory, [memoryview(_COUNT.pack(len(parts))), memoryview(lengths), *parts])
    except BaseException:
        os.close(memory)
        raise
    return memory


def read_message(memory: int) -> object:
    """The object in a memory, whose descriptor is closed. Its memoryviews lie in the memory, which they keep."""
    try:
        mapped = memoryview(mmap.mmap(memory, 0, access=mmap.ACCESS_READ))
    finally:
        os.close(memory)
    (count,) = _COUNT.unpack_from(mapped)
    sizes = Struct(f"<{count}Q")
    lengths: Sequence[int] = sizes.unpack_from(mapped, _COUNT.size)
    bounds = accumulate(lengths, initial=_COUNT.size + sizes.size)
    pickled, *buffers = (mapped[first:end] for first, end in pairwise(bounds))
    return pickle.loads(pickled, buffers=buffers)  # noqa: S301 - written by the same program, and private to both processes


def _view(view: memoryview) -> tuple[type[memoryview], tuple[PickleBuffer]]:
    """How a memoryview is pickled: its bytes are left to the message."""
    return memoryview, (PickleBuffer(view),)


def _write(memory: int, parts: Sequence[memoryview]) -> None:
    filled = [part for part in parts if len(part)]
    for first in range(0, len(filled), _BUFFERS_PER_WRITE):
        left: Sequence[memoryview] = filled[first : first + _BUFFERS_PER_WRITE]
        while left:
            left = _behind(left, os.writev(memory, left))


def _behind(parts: Sequence[memoryview], written: int) -> Sequence[memoryview]:
    """The parts without their first bytes, which were written: a write may be cut short."""
    for index, part in enumerate(parts):
        if written < len(part):
            return [part[written:], *parts[index + 1 :]]
        written -= len(part)
    return ()
