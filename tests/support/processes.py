"""Real processes for tests: started on free loopback ports, watched while they come up, ended by their own id.

Rule: nothing is left behind. A process is a group of its own; the group is gone when its `with` block ends, even where
the test failed. Blocking; an asyncio test calls it in a thread.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

START_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 30.0
POLL_SECONDS = 0.005


class ProcessFailed(AssertionError):
    """The process ended, or was silent for too long. The message ends with what it wrote."""


class Process:
    """A started process, to be used in a `with` block.

    `log` holds what it wrote to stderr (of all processes with this folder and name), `output` what it wrote to stdout.
    """

    def __init__(
        self, command: Sequence[str | Path], folder: Path, *, name: str, env: Mapping[str, str] | None = None
    ) -> None:
        """Start `command` in `folder`, with `env` on top of this process's own environment."""
        folder.mkdir(parents=True, exist_ok=True)
        self.log, self.output = folder / f"{name}.log", folder / f"{name}.out"
        self._log_first = self.log.stat().st_size if self.log.exists() else 0
        self._output_read = 0
        with self.log.open("ab") as stderr, self.output.open("wb") as stdout:
            self._popen = subprocess.Popen(
                [os.fspath(word) for word in command],
                cwd=folder,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_running:
            self.stop()
        self.kill()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        return self._popen.poll() is None

    @property
    def stderr(self) -> str:
        """What this process wrote to stderr so far."""
        with self.log.open("rb") as file:
            file.seek(self._log_first)
            return file.read().decode(errors="replace")

    @property
    def stdout(self) -> str:
        """What this process wrote to stdout so far."""
        return self.output.read_text(errors="replace")

    def read_line(self, *, seconds_max: float = START_SECONDS_MAX) -> str:
        """The next line of stdout, without its end. Raises `ProcessFailed` if none comes."""
        self.wait_until(self.has_line, "its next line on stdout", seconds_max=seconds_max)
        line, _, _ = self._unread().partition(b"\n")
        self._output_read += len(line) + 1
        return line.decode()

    def has_line(self) -> bool:
        """Whether a whole line of stdout is there and was not read."""
        return b"\n" in self._unread()

    def read_lines(self) -> list[str]:
        """All whole lines of stdout that are there and were not read: the last ones, where the process is over."""
        whole, separator, _torn = self._unread().rpartition(b"\n")
        self._output_read += len(whole) + len(separator)
        return whole.decode().split("\n") if separator else []

    def stop(self) -> int:
        """Asks it to end (SIGTERM), then ends its whole group; returns its status."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGTERM)
        try:
            return self._popen.wait(timeout=STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            return self.kill()

    def wait_ended(self, *, seconds_max: float = STOP_SECONDS_MAX) -> int:
        """Its status, once it ended by itself. Raises `ProcessFailed` where it does not."""
        try:
            return self._popen.wait(timeout=seconds_max)
        except subprocess.TimeoutExpired:
            raise self.failed(f"it still runs after {seconds_max} s") from None

    def kill(self) -> int:
        """Ends its whole group at once (SIGKILL); returns its status, negative for a signal."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        return self._popen.wait()

    def wait_until(self, is_ready: Callable[[], bool], what: str, *, seconds_max: float = START_SECONDS_MAX) -> None:
        """Returns when `is_ready()`. Raises `ProcessFailed` when the process ends or the time is over."""
        deadline = time.monotonic() + seconds_max
        while not is_ready():
            status = self._popen.poll()
            if status is not None and not is_ready():
                raise self.failed(f"{what}: ended with status {status}")
            if time.monotonic() > deadline:
                raise self.failed(f"{what}: took over {seconds_max} s")
            time.sleep(POLL_SECONDS)

    def failed(self, reason: str) -> ProcessFailed:
        """An error that shows the ends of what the process wrote."""
        return ProcessFailed(f"{reason}; process {self.pid}:\n{_tail(self.stdout)}\n{_tail(self.stderr)}")

    def _unread(self) -> bytes:
        with self.output.open("rb") as file:
            file.seek(self._output_read)
            return file.read()


def provided(place: Path | None) -> Path:
    """Returns `place`, or fails the test and says how it comes to be."""
    if place is None or not place.exists():
        pytest.fail(f"{place or 'a Java runtime'} is missing: run make setup-test", pytrace=False)
    return place


def resident_bytes(pid: int | None = None) -> int:
    """The memory of a process that is in RAM now; this process's own where none is named."""
    status = Path(f"/proc/{pid or 'self'}/status").read_text()
    match = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1]) * 1024


def stand_still(pid: int) -> None:
    """Stop a process by SIGSTOP, and return when each of its threads stands still: on a busy machine one that runs goes
    on for a while, and would answer a request that the test sends now. SIGCONT lets it go on.
    """
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + STOP_SECONDS_MAX
    while not all(_is_stopped(task) for task in Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < deadline, f"process {pid} does not stand still"
        time.sleep(POLL_SECONDS)


def _is_stopped(task: Path) -> bool:
    try:
        stat = (task / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the thread has ended
        return True
    return stat.rpartition(")")[2].split()[0] in "TtXZ"  # an ended one, too


def is_listening(port: int) -> bool:
    """Whether something accepts connections on a loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _tail(text: str) -> str:
    return "\n".join(text.splitlines()[-30:])
