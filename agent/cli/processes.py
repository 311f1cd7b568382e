"""`penstock agent --processes N`: one agent per process under one command, so that several cores serve.

Rule: each process is an agent of its own, with its own name and ports, as if it ran on a machine of its own; nothing is
shared but this parent, which starts them, starts again what crashed, and passes signals on. The parent runs no loop and
no thread: a child is a fork of it, and goes on where `supervise` returned. Why not one port for all: ADR 9.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

from agent.config.addresses import HostPort, ListenerAddress
from agent.config.settings import InvalidSettings, Settings
from protocol.limits import (
    PROCESS_HEALTHY_SECONDS,
    PROCESS_RESTART_SECONDS_FIRST,
    PROCESS_RESTART_SECONDS_MAX,
    PROCESS_START_SECONDS_MIN,
)

log = logging.getLogger(__name__)

STOPPING = (signal.SIGTERM, signal.SIGINT)
AWAITED = (*STOPPING, signal.SIGCHLD)
_PR_SET_PDEATHSIG = 1


@dataclass(slots=True, kw_only=True)
class ProcessSlot:
    """One of the processes, and when it was, or is to be, started."""

    settings: Settings
    pid: int | None = None
    started_s: float = 0.0
    due_s: float | None = None
    pause_s: float = PROCESS_RESTART_SECONDS_FIRST
    starts_count: int = 0


def settings_of_processes(settings: Settings) -> list[Settings]:
    """Settings of each process: NAME-0, NAME-1, ... at ports PORT, PORT+1, ... of every address; port 0 stays 0.

    Raises `InvalidSettings` where two of them would have the same port.
    """
    count = settings.processes
    each = [_settings_of(settings, number) for number in range(count)]
    taken: dict[tuple[str, int], str] = {}
    for one in each:
        for host, port in [
            (one.http.host, one.http.port),
            *((listener.host, listener.port) for listener in one.listeners),
        ]:
            if port and taken.setdefault((host, port), one.name) != one.name:
                raise InvalidSettings(
                    f"--processes {count}: {taken[host, port]} and {one.name} would both listen on {host}:{port}; "
                    f"keep addresses {count} ports apart"
                )
    return each


def _settings_of(settings: Settings, number: int) -> Settings:
    return replace(
        settings,
        name=f"{settings.name}-{number}",
        listeners=tuple(_moved(listener, number) for listener in settings.listeners),
        advertised=tuple(_moved(listener, number) for listener in settings.advertised),
        http=HostPort(host=settings.http.host, port=settings.http.port + number if settings.http.port else 0),
        processes=1,
    )


def _moved(listener: ListenerAddress, number: int) -> ListenerAddress:
    return replace(listener, port=listener.port + number) if listener.port else listener


def supervise(settings: Settings, monotonic_s: Callable[[], float]) -> Settings | int:
    """Run the processes of `settings`. In each of them this returns its own settings; it is to serve and to exit.

    In the parent it returns the status with which to exit, once all are over: after SIGTERM or SIGINT, which they get
    (a second one too), or because one of them could not even start.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    parent = _Parent(settings_of_processes(settings), monotonic_s)
    child = parent.run()
    if child is None:
        return parent.status
    signal.pthread_sigmask(signal.SIG_UNBLOCK, AWAITED)
    return child


class _Parent:
    def __init__(self, each: list[Settings], monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._places = [ProcessSlot(settings=settings, due_s=monotonic_s()) for settings in each]
        self._is_stopping = False
        self.status = 0

    def run(self) -> Settings | None:
        """Settings in a child, None in the parent when everything is over."""
        while True:
            for place in self._places:
                if place.due_s is not None and place.due_s <= self._monotonic_s() and self._start(place):
                    return place.settings
            if self._is_stopping and all(place.pid is None for place in self._places):
                return None
            self._wait()
            self._reap()

    def _start(self, place: ProcessSlot) -> bool:
        """Whether this is the child."""
        parent_pid = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        place.pid = os.fork()
        if place.pid:
            place.starts_count += 1
            place.started_s, place.due_s = self._monotonic_s(), None
            return False
        _belong_to(parent_pid)
        return True

    def _wait(self) -> None:
        """Return when there is something to do, and pass on what this process is told."""
        due_s = min((place.due_s for place in self._places if place.due_s is not None), default=None)
        if due_s is None:
            due_s = self._monotonic_s() + PROCESS_HEALTHY_SECONDS
        received = signal.sigtimedwait(AWAITED, max(0.0, due_s - self._monotonic_s()))
        if received is not None and received.si_signo in STOPPING:
            self._stop()

    def _stop(self) -> None:
        self._is_stopping = True
        for place in self._places:
            place.due_s = None
            if place.pid is not None:
                os.kill(place.pid, signal.SIGTERM)

    def _reap(self) -> None:
        """Note who has ended; it is started again after a pause that grows as long as it keeps ending."""
        for place in self._places:
            if place.pid is None:
                continue
            pid, wait_status = os.waitpid(place.pid, os.WNOHANG)
            if pid:
                place.pid = None
                self._ended(place, os.waitstatus_to_exitcode(wait_status))

    def _ended(self, place: ProcessSlot, status: int) -> None:
        ran_s = self._monotonic_s() - place.started_s
        if self._is_stopping:
            self.status = self.status or abs(status)
        elif status > 0 and place.starts_count == 1 and ran_s < PROCESS_START_SECONDS_MIN:
            log.error("an agent's process could not start, so none does", extra={"agent": place.settings.name})
            self.status = status
            self._stop()
        else:
            if ran_s >= PROCESS_HEALTHY_SECONDS:
                place.pause_s = PROCESS_RESTART_SECONDS_FIRST
            extra = {"agent": place.settings.name, "status": status, "pause_s": place.pause_s}
            log.error("an agent's process has ended, starting it again", extra=extra)
            place.due_s = self._monotonic_s() + place.pause_s
            place.pause_s = min(place.pause_s * 2, PROCESS_RESTART_SECONDS_MAX)


def _belong_to(parent_pid: int) -> None:
    """In the child: get signals from the parent alone, not from a terminal too, and end when it is gone."""
    os.setpgid(0, 0)
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent_pid:
            signal.raise_signal(signal.SIGKILL)
