"""The agent's side of its workers: one process for each role, started once it pays, ended with the agent.

Rule: a worker saves time and nothing else. Whatever goes wrong with it, the call is left to the caller, who makes it in
a thread of the agent: the reasons are in the log.
"""

import contextlib
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from pickle import PicklingError
from typing import Final, TypeVar, cast

import agent
from agent.lake.worker.messages import TooLarge, read_message, write_message
from agent.lake.worker.process import CALL, READY
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from agent.runtime.threads import PatientThread
from iceberg_export.rows.executor import LeftToCaller
from protocol.kernel_folder import kernel_folder
from protocol.limits import (
    WORKER_CALL_BYTES_MIN,
    WORKER_CALL_SECONDS_MAX,
    WORKER_IDLE_SECONDS,
    WORKER_MEMORY_LIMIT_MIN,
    WORKER_MESSAGE_BYTES_MAX,
)
from protocol.records.records import kernels_ready

log = logging.getLogger(__name__)

T = TypeVar("T")

_PROGRAM: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); from agent.lake.worker.process import main; main(*sys.argv[2:])"
)
_PACKAGES: Final = str(Path(agent.__file__).parents[1])
_PAUSE_SECONDS: Final = 60.0
"""After a worker failed, calls are left to the caller for so long."""


def may_have_workers(memory_limit: int | None) -> bool:
    """Whether an agent with so much memory has workers. They need Linux's memfd_create(2)."""
    return hasattr(os, "memfd_create") and (memory_limit is None or memory_limit >= WORKER_MEMORY_LIMIT_MIN)


class WorkerProcesses:
    """A worker for each role. `call` is a `RunElsewhere`; `close` ends them."""

    def __init__(self, *, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._by_role: dict[str, _WorkerProcess] = {}
        self._is_closed = False

    async def call(self, role: str, byte_count: int, work: Callable[[], T], /) -> T:
        """The result of `work`, made by the role's worker. Raises `LeftToCaller`."""
        if self._is_closed or byte_count < WORKER_CALL_BYTES_MIN or not kernels_ready():
            raise LeftToCaller("a worker does not pay")
        worker = self._by_role.get(role)
        if worker is None:
            worker = self._by_role[role] = _WorkerProcess(role, clock=self._clock)
        try:
            result, cpu_seconds = await worker.call(work)
        except LeftToCaller:
            self._metrics.worker_calls.labels(role, "left").inc()
            raise
        self._metrics.worker_calls.labels(role, "done").inc()
        self._metrics.worker_cpu_seconds.labels(role).inc(cpu_seconds)
        return cast("T", result)

    async def close(self) -> None:
        """End the workers, whatever they do. Later calls are left to their callers."""
        self._is_closed = True
        for worker in self._by_role.values():
            await worker.close()


class _WorkerProcess:
    """One process, and the thread that waits for it: one call at a time."""

    def __init__(self, role: str, *, clock: Clock) -> None:
        self._role = role
        self._clock = clock
        self._thread = PatientThread(f"worker-{role}")
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._is_ready = False
        self._is_closed = False
        self._asked_s: float | None = None
        """When the last call was asked for, which was large enough."""
        self._paused_until_s = 0.0

    async def call(self, work: Callable[[], object]) -> tuple[object, float]:
        """The result of a call, and the processor time that it took. Raises `LeftToCaller`."""
        now_s, asked_s = self._clock.monotonic_s(), self._asked_s
        self._asked_s = now_s
        if now_s < self._paused_until_s:
            raise LeftToCaller("the worker failed not long ago")
        if self._process is None and (asked_s is None or now_s - asked_s > WORKER_IDLE_SECONDS):
            raise LeftToCaller("the worker would have too little to do")
        return await self._thread.run(self._call, work)

    async def close(self) -> None:
        self._is_closed = True
        if self._process is not None:
            self._process.kill()
        await self._thread.run(self._forget)

    # In the thread.

    def _call(self, work: Callable[[], object]) -> tuple[object, float]:
        try:
            worker = self._ready_socket()
            memory = _message(work)
            try:
                socket.send_fds(worker, [CALL], [memory])
            finally:
                os.close(memory)
            message, descriptors, _, _ = socket.recv_fds(worker, 1, 1)
            if not message or not descriptors:
                raise EOFError("it ended")
            is_made, result, cpu_seconds = cast("tuple[bool, object, float]", read_message(descriptors[0]))
        except (OSError, EOFError) as error:
            self._fail(error)
            raise LeftToCaller(str(error)) from error
        if not is_made:
            log.debug("a worker left a call to the agent", extra={"worker": self._role, "reason": str(result)})
            raise LeftToCaller(str(result))
        return result, cpu_seconds

    def _ready_socket(self) -> socket.socket:
        """The socket of a worker that is ready. Raises `LeftToCaller` while it is getting ready, and begins one."""
        if self._process is not None and self._process.poll() is not None:
            self._forget()
        if self._socket is None:
            self._start()
            raise LeftToCaller("the worker is starting")
        if not self._is_ready:
            try:
                self._is_ready = self._socket.recv(len(READY), socket.MSG_DONTWAIT) == READY
            except BlockingIOError:
                raise LeftToCaller("the worker is starting") from None
            if not self._is_ready:
                raise EOFError("the worker ended at its start")
            self._socket.settimeout(WORKER_CALL_SECONDS_MAX)
        return self._socket

    def _start(self) -> None:
        if self._is_closed:
            raise LeftToCaller("the agent ends")
        ours, theirs = socket.socketpair()
        with theirs:
            folder = kernel_folder()
            words = [str(theirs.fileno()), str(os.getpid()), "" if folder is None else str(folder)]
            try:
                # Nothing of it may reach the agent's output, whose lines are JSON where the user wants that.
                self._process = subprocess.Popen(  # noqa: S603 - this program, with arguments of its own
                    [sys.executable, "-c", _PROGRAM, _PACKAGES, *words],
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
        process, is_idle_end = self._process, False
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                is_idle_end = process.wait(timeout=1) == 0
        self._forget()
        if is_idle_end or self._is_closed:
            return
        self._paused_until_s = self._clock.monotonic_s() + _PAUSE_SECONDS
        log.warning(
            "a worker failed: the agent does its work itself, and starts another one in a minute. If that happens "
            "often, give the agent more memory",
            extra={
                "worker": self._role,
                "reason": f"{type(error).__name__}: {error}",
                "status": None if process is None else process.returncode,
            },
        )

    def _forget(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._socket = self._process = None
        self._is_ready = False


def _message(work: Callable[[], object]) -> int:
    """The call's message. Raises `LeftToCaller` where the call cannot be sent, and `OSError`."""
    try:
        return write_message(work, bytes_max=WORKER_MESSAGE_BYTES_MAX)
    except (TooLarge, TypeError, AttributeError, LookupError, PicklingError) as error:
        raise LeftToCaller(f"it cannot be sent: {error}") from error
