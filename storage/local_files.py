"""The few file operations that the local store is made of, each one or two system calls.

Rule: blocking; callers run it in a thread. A file counts as written only after `sync_file`, a name (of a file or a
directory) only after `sync_directory` of the directory that holds it: tests replace this class by one that loses
everything else.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from storage.object_store import Buffer

_PARTS_PER_WRITE = os.sysconf("SC_IOV_MAX")
_FILE_MODE = 0o644


class Files:
    """Files of the operating system. Every method raises `OSError`."""

    def create(self, path: str) -> int:
        """A descriptor to write a file that does not exist yet. The caller closes it."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)

    def write(self, descriptor: int, parts: Sequence[Buffer]) -> None:
        """Write all of `parts`, gathered by the kernel: nothing is joined."""
        for first in range(0, len(parts), _PARTS_PER_WRITE):
            rest = parts[first : first + _PARTS_PER_WRITE]
            while rest:
                rest = _after(rest, os.writev(descriptor, rest))

    def sync_file(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def rename(self, source: str, target: str) -> None:
        """Give `source` the name `target`, in one step and in the place of what had it."""
        os.rename(source, target)

    def link(self, source: str, target: str) -> None:
        """Give `source` a second name. Raises `FileExistsError` where `target` is taken."""
        os.link(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def make_directory(self, path: str) -> None:
        """Create `path` below an existing directory; it may be there already."""
        with suppress(FileExistsError):
            os.mkdir(path)

    def sync_directory(self, path: str) -> None:
        """Make the names in `path` durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def read_range(self, path: str, byte_first: int, byte_count: int) -> bytes:
        """Up to `byte_count` bytes from `byte_first`; fewer at the end of the file."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(descriptor, byte_count, byte_first)
        finally:
            os.close(descriptor)


def _after(parts: Sequence[Buffer], written: int) -> Sequence[Buffer]:
    """What is left of `parts` after their first `written` bytes; empty parts count as written."""
    for index, part in enumerate(parts):
        if written < len(part):
            return [memoryview(part)[written:], *parts[index + 1 :]]
        written -= len(part)
    return ()
