"""Real processes for tests: started on free loopback ports, watched while they come up, ended by their own id.

Rule: nothing is left behind. A process is a group of its own; the group is ended even where the test failed.
"""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

START_SECONDS_MAX = 90
STOP_SECONDS_MAX = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A running process. `log` holds what it wrote to stderr, `output` what it wrote to stdout."""

    popen: subprocess.Popen[bytes]
    log: Path
    output: Path

    @property
    def pid(self) -> int:
        return self.popen.pid

    def stop(self) -> int:
        """Asks it to end (SIGTERM), then ends its whole group; returns its status."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGTERM)
        try:
            return self.popen.wait(timeout=STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self) -> int:
        """Ends its whole group at once (SIGKILL); returns its status."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        return self.popen.wait()

    def wait_until(self, is_ready: Callable[[], bool], what: str) -> None:
        """Returns when `is_ready()`. Raises with the end of the log when the process ends or the time is over."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while not is_ready():
            status = self.popen.poll()
            if status is not None or time.monotonic() > deadline:
                reason = f"ended with status {status}" if status is not None else f"took over {START_SECONDS_MAX} s"
                raise AssertionError(f"{what} {reason}:\n{_tail(self.output)}\n{_tail(self.log)}")
            time.sleep(0.02)


@contextlib.contextmanager
def running(
    command: Sequence[str | Path], folder: Path, *, name: str, env: Mapping[str, str] | None = None
) -> Iterator[Process]:
    """Runs a command in `folder`, in a process group of its own, until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    log, output = folder / f"{name}.log", folder / f"{name}.out"
    with log.open("ab") as stderr, output.open("wb") as stdout:
        popen = subprocess.Popen(
            [str(word) for word in command],
            cwd=folder,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    process = Process(popen=popen, log=log, output=output)
    try:
        yield process
    finally:
        if popen.poll() is None:
            process.stop()
        process.kill()


def provided(place: Path | None) -> Path:
    """Returns `place`, or fails the test and says how it comes to be."""
    if place is None or not place.exists():
        pytest.fail(f"{place or 'a Java runtime'} is missing: run make setup-test", pytrace=False)
    return place


def free_port() -> int:
    """A loopback port that was free a moment ago: for servers that cannot be asked to choose one themselves."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_listening(port: int) -> bool:
    """Whether something accepts connections on a loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-30:]) if log.exists() else ""
