"""A file that one process holds at a time, and that names its holder.

Rule: the lock is the kernel's (`flock`), so it ends with the process, however that ends; the file's text is only a hint
for people. The file is never removed: removing it would let two processes hold two files of the same name.
"""

import contextlib
import fcntl
import os
from pathlib import Path

from coordinator.ledger.port import LedgerUnavailable, SessionHeld


class FileHeld(Exception):
    """Another process, or another part of this one, holds the file. `holder` is its process id where it is known."""

    def __init__(self, path: Path, holder: int | None) -> None:
        super().__init__(f"{path} is held by {'another process' if holder is None else f'process {holder}'}")
        self.holder = holder


class FileLock:
    """Holds `path` from its construction until `release`. Raises `FileHeld`, or OSError where it cannot be opened."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError as error:
            holder = _read_holder(self._descriptor)
            os.close(self._descriptor)
            raise FileHeld(path, holder) from error
        except OSError:
            os.close(self._descriptor)
            raise

    def release(self) -> None:
        """Let others hold the file. Called once."""
        os.close(self._descriptor)


def lock_ledger(path: Path) -> FileLock:
    """The lock of the ledger in the file `path`, or in the journal that has replaced it. The caller releases it.

    Raises `SessionHeld` while another process has it open, and `LedgerUnavailable`.
    """
    try:
        return FileLock(path.with_name(path.name + ".lock"))
    except FileHeld as error:
        holder = "another process" if error.holder is None else f"process {error.holder}"
        raise SessionHeld(f"{holder} has the ledger {path} open: stop it, or use another data folder") from error
    except OSError as error:
        raise LedgerUnavailable(f"{path} cannot be opened ({error}): check that its folder exists") from error


def _read_holder(descriptor: int) -> int | None:
    with contextlib.suppress(ValueError):
        return int(os.pread(descriptor, 32, 0))
    return None
