"""The few file operations that the local stores are made of, each one or two system calls, and what their errors mean.

Rule: blocking; callers run it in a thread. A file counts as written only after `sync_file` or `sync_data`, a name (of a
file or a directory) only after `sync_directory` of the directory that holds it: tests replace this class by one that
loses everything else.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from storage.embedded.readable_bytes import UNREADABLE_ERRORS, ReadableBytes
from storage.object_store import (
    Buffer,
    ObjectDamaged,
    ObjectExists,
    ObjectMissing,
    ObjectRejected,
    StoreMisconfigured,
    StoreUnavailable,
)

_HOPELESS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG})
"""Errors that asking again does not cure; a full disk or a failing one may get well."""

_DAMAGED = UNREADABLE_ERRORS | {errno.ELOOP}
"""An error of one file alone: others can be read."""

_NOT_SUPPORTED = frozenset({errno.EOPNOTSUPP, errno.ENOSYS})
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

    def open_existing(self, path: str, *, is_writing: bool = False) -> int:
        """A descriptor of a file that is there. The caller closes it."""
        return _open_regular(path, os.O_RDWR if is_writing else os.O_RDONLY)

    def write_at(self, descriptor: int, parts: Sequence[Buffer], position: int) -> None:
        """Write all of `parts` from `position` on, gathered by the kernel: nothing is joined."""
        for first in range(0, len(parts), _PARTS_PER_WRITE):
            rest = parts[first : first + _PARTS_PER_WRITE]
            while rest:
                written = os.pwritev(descriptor, rest, position)
                position += written
                rest = _after(rest, written)

    def read_at(self, descriptor: int, byte_count: int, position: int) -> bytes:
        """Up to `byte_count` bytes from `position`; fewer at the end of the file, and nowhere else."""
        content = os.pread(descriptor, byte_count, position)
        while len(content) < byte_count:  # a read ends short before an unreadable page, too: only the next read raises
            more = os.pread(descriptor, byte_count - len(content), position + len(content))
            if not more:
                break
            content += more
        return content

    def readable(self, descriptor: int) -> ReadableBytes:
        """The readable bytes of a file, wherever its disk is bad."""
        return ReadableBytes(partial(self.read_at, descriptor), lambda: os.fstat(descriptor).st_size)

    def allocate(self, descriptor: int, first: int, end: int) -> None:
        """Give the file blocks from `first` to `end`, and at least this size, where the file system can.

        Raises `OSError` where there is no room: then fewer blocks may have been added, and no byte is another one.
        """
        if hasattr(os, "posix_fallocate"):  # macOS has none
            try:
                os.posix_fallocate(descriptor, first, end - first)
            except OSError as error:
                if error.errno not in _NOT_SUPPORTED:
                    raise

    def truncate(self, descriptor: int, file_bytes: int) -> None:
        os.ftruncate(descriptor, file_bytes)

    def sync_file(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def sync_data(self, descriptor: int) -> None:
        """Make what was written durable, and of the file's other properties only what is needed to read it."""
        _sync_data(descriptor)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def rename(self, source: str, target: str) -> None:
        """Rename `source` to `target` atomically; a file with that name is replaced."""
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

    def lock_directory(self, path: str) -> int:
        """A descriptor that keeps everyone else from this lock until it is closed. Raises `BlockingIOError`."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def read(self, path: str) -> bytes:
        with open(_open_regular(path), "rb", buffering=0) as file:
            return file.readall()

    def read_range(self, path: str, byte_first: int, byte_count: int) -> bytes:
        """Up to `byte_count` bytes from `byte_first`; fewer at the end of the file."""
        descriptor = _open_regular(path)
        try:
            return self.read_at(descriptor, byte_count, byte_first)
        finally:
            self.close(descriptor)


_sync_data = getattr(os, "fdatasync", os.fsync)
"""macOS has no fdatasync."""


@contextmanager
def errors_of(key: str, *, is_read: bool = False) -> Generator[None]:
    """Turn an `OSError` into the `StoreError` that says what the caller should do. `is_read`: of one object's bytes,
    which are damaged where the disk does not give them back (safety rule S20)."""
    try:
        yield
    except BlockingIOError as error:
        raise StoreMisconfigured(f"{key} is in use by another process: it serves one at a time") from error
    except FileExistsError as error:
        raise ObjectExists(f"{key} exists") from error
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        if is_read:
            raise ObjectMissing(f"{key} does not exist") from error
        raise StoreMisconfigured(f"{key}: {error.strerror}: a key must not be the folder of another one") from error
    except OSError as error:
        if is_read and error.errno in _DAMAGED:
            raise ObjectDamaged(f"{key}: the disk does not give back its bytes: {error.strerror}") from error
        if error.errno in _HOPELESS:
            hopeless = ObjectRejected if is_read else StoreMisconfigured
            raise hopeless(f"{key}: {error.strerror}: check the directory and its permissions") from error
        raise StoreUnavailable(f"{key}: {error.strerror}: the put or read can be repeated") from error


def _open_regular(path: str, mode: int = os.O_RDONLY) -> int:
    """A descriptor of a file. What is none is not there: opening a FIFO would wait for a writer, indefinitely."""
    try:
        descriptor = os.open(path, mode | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        # Of a disk that is gone, or of a socket.
        if error.errno == errno.ENXIO and stat.S_ISSOCK(os.stat(path).st_mode):
            raise FileNotFoundError(errno.ENOENT, "it is no file", path) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, "it is no file", path)
    return descriptor


def _after(parts: Sequence[Buffer], written: int) -> Sequence[Buffer]:
    """The rest of `parts` after their first `written` bytes; empty parts count as written."""
    for index, part in enumerate(parts):
        if written < len(part):
            return [memoryview(part)[written:], *parts[index + 1 :]]
        written -= len(part)
    return ()
