"""The programs of the lab that are no pods: each with its log, in the lab's cgroups, and ended by these."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.kube_lab.confinement import Cgroups
from tools.steps import SetupFailed

START_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 30.0
LOG_LINES_SHOWN = 15


@dataclass(slots=True)
class LabPrograms:
    """The running programs, by name."""

    logs: Path
    cgroups: Cgroups
    _running: dict[str, tuple[str, subprocess.Popen[bytes]]] = field(default_factory=dict)
    """The node and the process of each name."""

    def start(self, name: str, command: Sequence[str], *, node: str = "", env: Mapping[str, str] | None = None) -> int:
        """Start a program, for a node or for all. Returns its process id; signals of the terminal do not reach it."""
        with self._log(name).open("ab") as log:
            process = subprocess.Popen(
                [*self.cgroups.joining(node), *command],
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._running[name] = (node, process)
        return process.pid

    def wait_until(self, name: str, what: str, is_true: Callable[[], bool]) -> None:
        """Return when `is_true()`. Raises `SetupFailed` if the program ends before, or time is over."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while not is_true():
            status = self._running[name][1].poll()
            if status is not None or time.monotonic() > deadline:
                state = f"ended with status {status}" if status is not None else "runs"
                tail = "\n".join(self._log(name).read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:])
                raise SetupFailed(f"{tail}\n{what} did not come about; {name} {state}. Its log is {self._log(name)}")
            time.sleep(0.1)

    def process(self, name: str) -> int:
        """The process id of a program."""
        return self._running[name][1].pid

    def stop(self, name: str) -> None:
        """End one program as it likes to be ended, and wait for it; at once if that takes too long."""
        _node, process = self._running.pop(name)
        process.terminate()
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self, name: str) -> None:
        """End one program at once."""
        _node, process = self._running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def kill_all(self, node: str = "") -> None:
        """End at once whatever is in the lab's cgroups, or in those of a node: pods, too."""
        self.cgroups.kill(node)
        for name, (owner, process) in list(self._running.items()):
            if node in ("", owner):
                process.wait()
                del self._running[name]

    def ended(self) -> dict[str, int]:
        """Status of each program that has ended by itself since the last call."""
        statuses = {name: process.poll() for name, (_node, process) in self._running.items()}
        for name, status in statuses.items():
            if status is not None:
                del self._running[name]
        return {name: status for name, status in statuses.items() if status is not None}

    def _log(self, name: str) -> Path:
        return self.logs / f"{name}.log"
