"""A client's process: it is asked by a line of JSON, answers by one, and can be killed in between.

Rule: a call whose answer does not come is over when the process is dead, not before: what comes later could still
change the data, so nobody goes on in its place while it lives.
"""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

Fields = dict[str, Any]
"""As JSON has them."""

READ_BYTES = 1 << 16
END_SECONDS_MAX = 10.0


class WorkerProcess:
    """One client of one library; `command` is without its arguments."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        self._left = b""
        with log.open("ab") as stderr:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, **env},
                cwd=log.parent,
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        return self._popen.poll() is None

    def ask(self, call: Fields, *, seconds_max: float) -> Fields | None:
        """Its answer; None where it died or did not answer in time: then `kill` it."""
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(json.dumps(call).encode() + b"\n")
            self._popen.stdin.flush()
        except BrokenPipeError:
            return None
        return self._answer(time.monotonic() + seconds_max)

    def kill(self) -> None:
        """End it at once, with what it started."""
        if self.is_running:
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()
        for pipe in (self._popen.stdin, self._popen.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                continue

    def _answer(self, deadline_s: float) -> Fields | None:
        pipe = self._popen.stdout
        assert pipe is not None
        while b"\n" not in self._left:
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline_s - time.monotonic()))
            if not ready:
                return None
            data = os.read(pipe.fileno(), READ_BYTES)
            if not data:
                with suppress(subprocess.TimeoutExpired):
                    self._popen.wait(END_SECONDS_MAX)  # so that it is told apart from one that does not answer
                return None
            self._left += data
        line, _, self._left = self._left.partition(b"\n")
        answer: Fields = json.loads(line)
        return answer
