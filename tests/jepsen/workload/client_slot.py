"""One client's place in a run: its process is started, called, killed, and started again under another number.

Rule: after a call of which nobody knows how it ended the process is ended too, so that nothing that it still holds can
be decided later by who goes on.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.jepsen.history.history import MicroPoll, Op
from tests.jepsen.history.recorder import Recorder
from tests.jepsen.workload.generator import Call, Generator
from tests.jepsen.workload.libraries import ENVIRONMENT
from tests.jepsen.workload.worker import WorkerProcess

CALL_SECONDS_MAX = 90.0
"""Above all time-outs of the clients together."""
FINAL_SECONDS_MAX = 200.0
GROUP = "jepsen"
TRANSACTION_TIMEOUT_MS = 1_000


class Seat:
    """`name`: of the client's library. `generator` is shared, under `lock`."""

    def __init__(
        self,
        name: str,
        number: int,
        command: Sequence[str],
        folder: Path,
        *,
        generator: Generator,
        recorder: Recorder,
        lock: threading.Lock,
    ) -> None:
        self._name, self._number, self._command, self._folder = name, number, command, folder
        self._generator, self._recorder, self._lock = generator, recorder, lock
        self._worker: WorkerProcess | None = None
        self._process = -1
        self.bootstrap = ""
        self.problems: list[str] = []

    def work(self, is_over: threading.Event, pauses_s: Iterator[float]) -> None:
        """Call what the generator says until it is over; `pauses_s`: between two calls."""
        began_s = time.monotonic()
        while not is_over.is_set():
            if self._worker is None:
                self._start()
            with self._lock:
                call = self._generator.call(self._process, time.monotonic() - began_s)
            self._call(call)
            is_over.wait(next(pauses_s))

    def read_all(self, is_given_up: threading.Event) -> None:
        """The final read: as a new process, everything from the beginning, up to what is known to be there."""
        self.kill()
        waiting = dict(self._generator.ends)
        seen: dict[str, set[int]] = defaultdict(set)
        deadline_s = time.monotonic() + FINAL_SECONDS_MAX
        while (
            (waiting or self._is_more_than(seen) or self._worker is None)
            and time.monotonic() < deadline_s
            and not is_given_up.is_set()
        ):
            if self._worker is None:
                self._start()
                self._call(Call(f="assign", keys=tuple(self._generator.keys)), is_final=True)
                continue
            polled = self._call(Call(f="poll", micros=(MicroPoll(),)), is_final=True)
            for micro in polled.micros:
                for key, pairs in micro.records.items() if isinstance(micro, MicroPoll) else ():
                    if max(offset for offset, _ in pairs) >= waiting.get(key, -1):
                        waiting.pop(key, None)
                    seen[key].update(value for _, value in pairs)
        self.kill()

    def _is_more_than(self, seen: dict[str, set[int]]) -> bool:
        with self._lock:
            return self._generator.unplaced.left(seen)

    def kill(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def _start(self) -> None:
        self._process = self._recorder.new_process()
        name = f"{self._name}-{self._number}"
        arguments = [*self._command, self.bootstrap, name, GROUP, str(TRANSACTION_TIMEOUT_MS)]
        self._worker = WorkerProcess(arguments, self._folder / f"{name}.log", ENVIRONMENT)

    def _call(self, call: Call, *, is_final: bool = False) -> Op:
        """Make a call and write it down; returns how it ended."""
        assert self._worker is not None
        invoked = self._recorder.invoke(self._process, self._name, call, is_final=is_final)
        seconds_max = CALL_SECONDS_MAX if call.crash_after_s is None else call.crash_after_s
        answer = self._worker.ask(line_of(call, is_final=is_final), seconds_max=seconds_max)
        if answer is None:
            return self._lost(call, invoked)
        completed = self._recorder.complete(invoked, answer)
        with self._lock:
            self._generator.completed(completed)
        if call.crash_after_s is not None:
            self._recorder.unknown(
                self._recorder.invoke(self._process, self._name, Call(f="crash"), is_final=False), ""
            )
            self.kill()
        elif completed.type == "info":
            self.kill()
        return completed

    def _lost(self, call: Call, invoked: Op) -> Op:
        assert self._worker is not None
        reason = "killed"
        if not self._worker.is_running or call.crash_after_s is None:
            what = "does not answer" if self._worker.is_running else "ended by itself"
            reason = f"the client {what}"
            self.problems.append(f"{self._name}-{self._number} {what} at line {invoked.index}: see its log")
        self.kill()
        lost = self._recorder.unknown(invoked, reason)
        with self._lock:
            self._generator.completed(lost)
        return lost


def line_of(call: Call, *, is_final: bool) -> dict[str, Any]:
    """A call as a client's program reads it."""
    value: list[Any] = [
        ["poll"] if isinstance(micro, MicroPoll) else ["send", micro.key, micro.value] for micro in call.micros
    ]
    return {"f": call.f, "value": value or list(call.keys), "abort": call.is_aborted, "fresh": is_final}
