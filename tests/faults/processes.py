"""Processes that a test starts, waits for, and ends: by their own pid, never by a name.

Rule: whatever a test starts is gone when its `with` block ends. Blocking; an asyncio test calls it in a thread.
"""

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

READY_SECONDS_MAX = 60.0
EXIT_SECONDS_MAX = 30.0
_READY_LINE = re.compile(r"ready kafka=(\S+) http=(\S+)")
_READ_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Address:
    """Where a process listens."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        host, _, port = text.rpartition(":")
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ProcessFailed(AssertionError):
    """The process ended, or was silent for too long. The message ends with what it wrote to stderr."""


class Process:
    """A started process, to be used in a `with` block. Its stdout is read here line by line.

    Its stderr is appended to `stderr_path`.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        stderr_path: Path,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        """Start `command` with `environment` on top of this process's own."""
        self.stderr_path = stderr_path
        self._stderr_first = stderr_path.stat().st_size if stderr_path.exists() else 0
        self._unread = bytearray()
        with stderr_path.open("ab") as stderr:
            self._process = subprocess.Popen(
                [os.fspath(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, **(environment or {})},
                cwd=folder,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._stdout.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def stderr(self) -> str:
        """What this process wrote to stderr so far."""
        with self.stderr_path.open("rb") as file:
            file.seek(self._stderr_first)
            return file.read().decode(errors="replace")

    def read_line(self, *, seconds_max: float = READY_SECONDS_MAX) -> str:
        """The next line of stdout, without its end. Raises `ProcessFailed` if none comes."""
        deadline = time.monotonic() + seconds_max
        while b"\n" not in self._unread:
            if not self._read_more(deadline - time.monotonic()):
                raise self._failed(f"no line on stdout in {seconds_max:.0f} s")
        line, _, rest = bytes(self._unread).partition(b"\n")
        self._unread = bytearray(rest)
        return line.decode()

    def read_rest(self, *, seconds_max: float = EXIT_SECONDS_MAX) -> list[str]:
        """All whole lines of stdout that are left, up to its end: for a process that is ending or was killed."""
        deadline = time.monotonic() + seconds_max
        while self._read_more(deadline - time.monotonic()):
            pass
        *lines, _torn = bytes(self._unread).decode().split("\n")
        self._unread.clear()
        return lines

    def kill(self) -> None:
        """SIGKILL, unless it is over; returns once it is gone."""
        if self.is_running:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait(EXIT_SECONDS_MAX)

    def terminate(self, *, seconds_max: float = EXIT_SECONDS_MAX) -> int:
        """SIGTERM, then the exit code. Raises `ProcessFailed` (and kills it) if it does not end in time."""
        self._process.send_signal(signal.SIGTERM)
        return self.wait(seconds_max=seconds_max)

    def wait(self, *, seconds_max: float = EXIT_SECONDS_MAX) -> int:
        """The exit code (negative: the signal). Raises `ProcessFailed` (and kills it) if it does not end in time."""
        try:
            return self._process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self._failed(f"still running after {seconds_max:.0f} s") from None

    def _read_more(self, seconds_max: float) -> bool:
        stdout = self._stdout
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            if not selector.select(max(0.0, seconds_max)):
                return False
        received = os.read(stdout.fileno(), _READ_BYTES)
        self._unread += received
        return bool(received)

    @property
    def _stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def _failed(self, reason: str) -> ProcessFailed:
        code = self._process.poll()
        state = "running" if code is None else f"ended with {code}"
        return ProcessFailed(f"{reason}; process {self.pid} is {state}; its stderr:\n{self.stderr[-4000:]}")


class BrokerProcess(Process):
    """A broker. `kafka` and `http` are its addresses, known once `wait_ready` has returned."""

    kafka: Address
    http: Address

    def wait_ready(self, *, seconds_max: float = READY_SECONDS_MAX) -> Self:
        """Return once the broker has said that it serves."""
        line = self.read_line(seconds_max=seconds_max)
        ready = _READY_LINE.fullmatch(line)
        if ready is None:
            raise self._failed(f"stdout began with {line!r} instead of the ready line")
        self.kafka, self.http = Address.parse(ready[1]), Address.parse(ready[2])
        return self
