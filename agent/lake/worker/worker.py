"""The agent's side of its worker: a process that is started once it pays, and ends with the agent.

Rule: a worker saves time and nothing else. Whatever goes wrong with it, the call is left to the caller, who makes it in
a thread of the agent: the reasons are in the log.
"""

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Final, TypeVar, cast

from agent.lake.worker.messages import read_message, write_message
from agent.lake.worker.process import CALL
from agent.lake.worker.program import FOLDER, fingerprint
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from agent.runtime.threads import PatientThread
from iceberg_export.rows.executor import LeftToCaller
from protocol.kernel_folder import kernel_folder
from protocol.limits import (
    WORKER_CALL_BYTES_MIN,
    WORKER_CALL_SECONDS_MAX,
    WORKER_IDLE_SECONDS,
    WORKER_MESSAGE_BYTES_MAX,
    WORKER_PAUSE_SECONDS,
)
from protocol.records.records import kernels_ready

log = logging.getLogger(__name__)

T = TypeVar("T")

_PROGRAM: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); from agent.lake.worker.process import main; main(*sys.argv[2:])"
)
_END_SECONDS: Final = 5.0


class _Failed(Exception):
    """The worker is of no use any more."""


class PassWorker:
    """One process, which makes one call at a time. `call` is a `RunElsewhere`; `close` ends it."""

    def __init__(self, *, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._thread = PatientThread("worker")
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._fingerprint: str | None = None
        """That of the program which this agent runs; a worker of another one is of no use."""
        self._is_ready = False
        self._is_busy = False
        self._is_closed = False
        self._asked_s: float | None = None
        """When the last call was asked for, which was large enough."""
        self._paused_until_s = float("-inf")

    async def begin(self) -> None:
        """Note which program this is, at the agent's start: its files may be replaced while it runs."""
        self._fingerprint = await self._thread.run(fingerprint)

    async def call(self, role: str, byte_count: int, work: Callable[[], T], /) -> T:
        """The result of `work`, made by the worker. Raises `LeftToCaller`."""
        if self._is_closed or byte_count < WORKER_CALL_BYTES_MIN or not kernels_ready():
            raise LeftToCaller("a worker does not pay")
        try:
            self._check_wanted()
            result, cpu_seconds = await self._thread.run(self._call, work)
        except LeftToCaller:
            self._metrics.worker_calls.labels(role, "left").inc()
            raise
        except RuntimeError as error:  # of the system, which gives no thread
            raise LeftToCaller(str(error)) from error
        self._metrics.worker_calls.labels(role, "done").inc()
        self._metrics.worker_cpu_seconds.labels(role).inc(cpu_seconds)
        return cast("T", result)

    def _check_wanted(self) -> None:
        """Raise `LeftToCaller` where the process is not to be asked, or begun."""
        now_s, asked_s = self._clock.monotonic_s(), self._asked_s
        self._asked_s = now_s
        # A call that its caller has given up goes on. Nothing waits for it, for a thread would be free.
        if self._is_busy:
            raise LeftToCaller("the worker has another call")
        if now_s < self._paused_until_s:
            raise LeftToCaller("the worker failed not long ago")
        if self._process is not None and self._process.poll() is not None:
            self._forget()
        if self._process is None and (asked_s is None or now_s - asked_s > WORKER_IDLE_SECONDS):
            raise LeftToCaller("the worker would have too little to do")

    async def close(self) -> None:
        """End the worker, whatever it does. Later calls are left to their callers."""
        self._is_closed = True
        if self._process is not None:
            self._process.kill()
        await self._thread.run(self._forget)

    # In the thread.

    def _call(self, work: Callable[[], object]) -> tuple[object, float]:
        """The result of a call, and the processor time that it took. Raises `LeftToCaller`."""
        self._is_busy = True  # here, because a call that is cancelled before its turn is not made
        try:
            worker = self._ready_socket()
            try:
                memory = write_message(work, bytes_max=WORKER_MESSAGE_BYTES_MAX)
            except Exception as error:  # pickling raises anything
                raise LeftToCaller(f"it cannot be sent: {error}") from error
            try:
                socket.send_fds(worker, [CALL], [memory])
            finally:
                os.close(memory)
            is_made, result, cpu_seconds = _answer(worker)
        except LeftToCaller:
            raise
        except Exception as error:  # whatever it is, the caller's own call does not depend on it
            self._fail(error)
            raise LeftToCaller(str(error)) from error
        finally:
            self._is_busy = False
        if not is_made:
            log.debug("a worker left a call to the agent", extra={"reason": str(result)})
            raise LeftToCaller(str(result))
        return result, cpu_seconds

    def _ready_socket(self) -> socket.socket:
        """The socket of a worker that is ready. Raises `LeftToCaller` while it is getting ready, and begins one."""
        if self._socket is None:
            self._start()
            raise LeftToCaller("the worker is starting")
        if not self._is_ready:
            try:
                is_made, result, _ = _answer(self._socket, socket.MSG_DONTWAIT)
            except BlockingIOError:
                raise LeftToCaller("the worker is starting") from None
            if not is_made:
                raise _Failed(f"it cannot start: {result}")
            if result != self._fingerprint:
                self._is_closed = True
                raise _Failed(
                    "its program is another one than that of this agent, which was replaced: restart the agent"
                )
            self._socket.settimeout(WORKER_CALL_SECONDS_MAX)
            self._is_ready = True
        return self._socket

    def _start(self) -> None:
        if self._is_closed:
            raise LeftToCaller("the agent ends")
        ours, theirs = socket.socketpair()
        with theirs:
            folder = kernel_folder()
            words = [str(theirs.fileno()), str(os.getpid()), "" if folder is None else str(folder)]
            try:
                # Nothing of it may reach the agent's output, whose lines are JSON where the user wants that. And no
                # module of the working directory may take the place of another one (-P).
                self._process = subprocess.Popen(  # noqa: S603 - this program, with arguments of its own
                    [sys.executable, "-P", "-c", _PROGRAM, str(FOLDER), *words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                )
            except BaseException:
                ours.close()
                raise
        self._socket, self._is_ready = ours, False

    def _fail(self, error: Exception) -> None:
        """Give the process up after an error; one that had ended by itself, idle, is none."""
        process, status = self._process, None
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(timeout=_END_SECONDS if isinstance(error, EOFError) else 0)
        self._forget()
        if status == 0 or (self._is_closed and not isinstance(error, _Failed)):
            return
        self._paused_until_s = self._clock.monotonic_s() + WORKER_PAUSE_SECONDS
        remedy = "; it may lack memory: give the agent more" if status == -signal.SIGKILL else ""
        log.warning(
            f"the worker failed: the agent does its work itself, and starts another one in a minute{remedy}",
            extra={"reason": f"{type(error).__name__}: {error}", "status": status},
        )

    def _forget(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._socket = self._process = None
        self._is_ready = False


def _answer(worker: socket.socket, flags: int = 0) -> tuple[bool, object, float]:
    """The worker's next answer. Raises `EOFError` where it has ended, and whatever reading the message raises."""
    message, descriptors, _, _ = socket.recv_fds(worker, 1, 1, flags)
    if not message or not descriptors:
        raise EOFError("it ended")
    return cast("tuple[bool, object, float]", read_message(descriptors[0]))
