"""The audit log on stderr and in a file: one line for each record, appended by one thread.

A file is opened again where its path leads to another file, or to none: so logrotate may rename it without a signal,
and may also truncate it (copytruncate), because each write goes to the end. Several agents may append to one file.
A file that has reached its bound is renamed to FILE.1, FILE.1 to FILE.2, and so on; the oldest is deleted.
Where files are bounded, changes have files of their own: no number of other events makes the oldest change go.
After a failure in the middle of a line the whole line is written again, on a line of its own.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from agent.runtime.threads import PatientThread
from agent.security.audit.audit_events import AuditRecord
from agent.security.audit.audit_log import AuditSink, AuditSinkFailed
from protocol.limits import AUDIT_LOG_FILES_KEPT

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_MODE = 0o600
"""Names and addresses of clients are for the operator alone."""
_LINE_BREAK = b"\n"


class LineSink:
    """Writes lines to a file descriptor. A subclass says to which."""

    def __init__(self) -> None:
        self._thread = PatientThread("audit log")
        self._written_count = 0
        """The lines of the current records that are written already."""
        self._is_line_cut = False

    async def write(self, records: Sequence[AuditRecord]) -> None:
        """Append a line for each record. Raises `AuditSinkFailed`; the next call has to give the same records."""
        await self._thread.run(self._write, [record.line for record in records])

    def _write(self, lines: Sequence[bytes]) -> None:
        try:
            descriptor = self._descriptor()
            data = b"".join(line + _LINE_BREAK for line in lines[self._written_count :])
            self._append(descriptor, _LINE_BREAK + data if self._is_line_cut else data)
        except OSError as error:
            raise AuditSinkFailed(f"{self._name}: {error.strerror or error}") from error
        self._written_count, self._is_line_cut = 0, False

    def _append(self, descriptor: int, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(descriptor, view) :]
        except OSError:
            self._remember(data[: len(data) - len(view)])
            raise

    def _remember(self, appended: bytes) -> None:
        """Remember how far a write got that failed."""
        if not appended:
            return
        self._written_count += appended.count(_LINE_BREAK) - (1 if self._is_line_cut else 0)
        self._is_line_cut = not appended.endswith(_LINE_BREAK)

    @property
    def _name(self) -> str:
        raise NotImplementedError

    def _descriptor(self) -> int:
        """The open file to append to. Raises `OSError`."""
        raise NotImplementedError


class StderrSink(LineSink):
    """The process's stderr, beside its log."""

    @property
    def _name(self) -> str:
        return "stderr"

    def _descriptor(self) -> int:
        return sys.stderr.fileno()


class FileSink(LineSink):
    """One file, which is created where it is missing."""

    def __init__(self, path: Path, *, bytes_max: int | None = None) -> None:
        """`bytes_max` is the size from which a new file is begun; None: never."""
        super().__init__()
        self._path = path
        self._bytes_max = bytes_max
        self._open_descriptor: int | None = None

    @property
    def _name(self) -> str:
        return str(self._path)

    def _descriptor(self) -> int:
        if self._open_descriptor is not None and self._is_moved(self._open_descriptor):
            self._close(self._open_descriptor)
        descriptor = self._opened()
        if self._is_full(descriptor):
            self._rename()
            self._close(descriptor)
            descriptor = self._opened()
        return descriptor

    def _opened(self) -> int:
        if self._open_descriptor is None:
            self._open_descriptor = os.open(self._path, _FLAGS, _MODE)
            self._is_line_cut = False
        return self._open_descriptor

    def _close(self, descriptor: int) -> None:
        self._open_descriptor = None
        os.close(descriptor)

    def _is_full(self, descriptor: int) -> bool:
        # A line that was cut is finished, or rather repeated, in the same file.
        return self._bytes_max is not None and not self._is_line_cut and os.fstat(descriptor).st_size >= self._bytes_max

    def _rename(self) -> None:
        for number in range(AUDIT_LOG_FILES_KEPT, 0, -1):
            source = self._numbered(number - 1) if number > 1 else self._path
            with suppress(FileNotFoundError):
                source.replace(self._numbered(number))

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def _is_moved(self, descriptor: int) -> bool:
        """Whether the path leads to another file than the open one, or to none."""
        try:
            now = self._path.stat()
        except FileNotFoundError:
            return True
        before = os.fstat(descriptor)
        return (now.st_dev, now.st_ino) != (before.st_dev, before.st_ino)


class BoundedFilesSink:
    """Two bounded files: one for changes, and one for all other events."""

    def __init__(self, path: Path, *, bytes_max: int) -> None:
        self._changes = FileSink(changes_path(path), bytes_max=bytes_max)
        self._others = FileSink(path, bytes_max=bytes_max)
        self._are_changes_written = False
        """Whether those of the current records are."""

    async def write(self, records: Sequence[AuditRecord]) -> None:
        """Append a line for each record. Raises `AuditSinkFailed`; the next call has to give the same records."""
        changes = [record for record in records if record.is_change]
        others = [record for record in records if not record.is_change]
        if changes and not self._are_changes_written:
            await self._changes.write(changes)
        self._are_changes_written = True
        if others:
            await self._others.write(others)
        self._are_changes_written = False


def changes_path(path: Path) -> Path:
    """The file of changes beside a bounded file: `audit-changes.log` beside `audit.log`."""
    return path.with_name(f"{path.stem}-changes{path.suffix}")


def file_sink(path: Path, bytes_max: int | None) -> AuditSink:
    """The sink of a file, of at most `bytes_max` bytes where that is a number."""
    return FileSink(path) if bytes_max is None else BoundedFilesSink(path, bytes_max=bytes_max)
