"""`penstock agent --processes N`: one agent per process under one command, so that several cores serve.

Each process is an agent with its own name and ports, as if it ran on its own machine (ADR 9 says why). The parent
starts the processes, restarts those that crash, and passes signals on. It runs no event loop and no thread, because a
child is a fork of it, which goes on where `supervise` returned.
"""

import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

from agent.config.addresses import NAME_FIELD, Advertised
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
    """One process: its settings, and the monotonic times of its last and its next start."""

    settings: Settings
    pid: int | None = None
    started_s: float = 0.0
    start_at_s: float | None = None
    """The time of its next start; None while it runs or is not to be started."""
    pause_s: float = PROCESS_RESTART_SECONDS_FIRST
    starts_count: int = 0


def settings_of_processes(settings: Settings) -> list[Settings]:
    """Settings of each process: NAME-0, NAME-1, ... at ports PORT, PORT+1, ... of every address; port 0 stays 0.

    Raises `InvalidSettings` where two of them would have the same port.
    """
    count = settings.processes
    processes = [_settings_of(settings, number) for number in range(count)]
    names: dict[tuple[str, int], str] = {}
    for process in processes:
        for host, port in [
            (process.http.host, process.http.port),
            *((listener.host, listener.port) for listener in process.listeners),
        ]:
            if port and names.setdefault((host, port), process.name) != process.name:
                raise InvalidSettings(
                    f"--processes {count}: {names[host, port]} and {process.name} would both listen on {host}:{port}; "
                    f"keep addresses {count} ports apart"
                )
    return processes


def _settings_of(settings: Settings, number: int) -> Settings:
    shown = settings.advertised_http
    return replace(
        settings,
        name=f"{settings.name}-{number}",
        listeners=tuple(_moved(listener, number) for listener in settings.listeners),
        advertised=tuple(_moved(listener, number) for listener in settings.advertised),
        http=_moved(settings.http, number),
        advertised_http=None if shown is None else replace(shown, address=_moved(shown.address, number)),
        processes=1,
    )


def _moved(address: Advertised, number: int) -> Advertised:
    # A router selects the agent by the name in the host, and has one port for all agents.
    is_moved = bool(address.port) and NAME_FIELD not in address.host
    return replace(address, port=address.port + number) if is_moved else address


def supervise(settings: Settings, monotonic_s: Callable[[], float]) -> Settings | int:
    """Run the processes of `settings`. In each of them this returns its settings, with which the caller serves.

    In the parent it returns the exit status once all processes have ended: after SIGTERM or SIGINT, which is passed on
    to them (also a second one), or because one of them could not start.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    parent = _Parent(settings_of_processes(settings), monotonic_s)
    child = parent.run()
    if child is None:
        return parent.status
    signal.pthread_sigmask(signal.SIG_UNBLOCK, AWAITED)
    return child


class _Parent:
    def __init__(self, processes: list[Settings], monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._slots = [ProcessSlot(settings=settings, start_at_s=monotonic_s()) for settings in processes]
        self._is_stopping = False
        self.status = 0

    def run(self) -> Settings | None:
        """A child's settings in the child; None in the parent when all processes have ended."""
        while True:
            for slot in self._slots:
                if slot.start_at_s is not None and slot.start_at_s <= self._monotonic_s() and self._start(slot):
                    return slot.settings
            if self._is_stopping and all(slot.pid is None for slot in self._slots):
                return None
            self._wait()
            self._reap()

    def _start(self, slot: ProcessSlot) -> bool:
        """Fork. True in the child, False in the parent."""
        parent_pid = os.getpid()
        # Before the fork: else the child writes the buffers, too.
        sys.stdout.flush()
        sys.stderr.flush()
        slot.pid = os.fork()
        if slot.pid:
            slot.starts_count += 1
            slot.started_s, slot.start_at_s = self._monotonic_s(), None
            return False
        _end_with_parent(parent_pid)
        return True

    def _wait(self) -> None:
        """Return at the next start, or after a signal. A stop signal is passed on to the processes."""
        start_at_s = min((slot.start_at_s for slot in self._slots if slot.start_at_s is not None), default=None)
        if start_at_s is None:
            start_at_s = self._monotonic_s() + PROCESS_HEALTHY_SECONDS
        received = signal.sigtimedwait(AWAITED, max(0.0, start_at_s - self._monotonic_s()))
        if received is not None and received.si_signo in STOPPING:
            self._stop()

    def _stop(self) -> None:
        self._is_stopping = True
        for slot in self._slots:
            slot.start_at_s = None
            if slot.pid is not None:
                os.kill(slot.pid, signal.SIGTERM)

    def _reap(self) -> None:
        for slot in self._slots:
            if slot.pid is None:
                continue
            pid, wait_status = os.waitpid(slot.pid, os.WNOHANG)
            if pid:
                slot.pid = None
                self._ended(slot, os.waitstatus_to_exitcode(wait_status))

    def _ended(self, slot: ProcessSlot, status: int) -> None:
        """Plan the restart of a process that has ended, after a pause that doubles while it keeps ending."""
        ran_s = self._monotonic_s() - slot.started_s
        if self._is_stopping:
            self.status = self.status or abs(status)
        elif status > 0 and slot.starts_count == 1 and ran_s < PROCESS_START_SECONDS_MIN:
            # The cause is most likely a setting, which all processes share: a restart would not help.
            log.error(
                "an agent's process could not start: all processes are stopped; its own message says why",
                extra={"agent": slot.settings.name},
            )
            self.status = status
            self._stop()
        else:
            if ran_s >= PROCESS_HEALTHY_SECONDS:
                slot.pause_s = PROCESS_RESTART_SECONDS_FIRST
            extra = {"agent": slot.settings.name, "status": status, "pause_s": slot.pause_s}
            log.error("an agent's process has ended unexpectedly; it is started again", extra=extra)
            slot.start_at_s = self._monotonic_s() + slot.pause_s
            slot.pause_s = min(slot.pause_s * 2, PROCESS_RESTART_SECONDS_MAX)


def _end_with_parent(parent_pid: int) -> None:
    """In the child: get signals from the parent only, and not from a terminal, and end when the parent ends."""
    os.setpgid(0, 0)
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent_pid:
            signal.raise_signal(signal.SIGKILL)
