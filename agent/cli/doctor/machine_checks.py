"""Checks of the machine by `penstock doctor`: Python, memory of open files, ports, disk.

Rule: nothing is left behind: files that a check writes are removed, ports are let go.
"""

import errno
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from agent.cli.clients.running_agent import RunningAgent, agent_at
from agent.cli.output import bytes_text
from agent.cli.reasons import addresses
from agent.config.addresses import FileUrl, HostPort, SqliteUrl, read_ledger_url, read_store_url
from agent.config.settings import Settings
from agent.runtime.clock import SystemClock
from protocol.limits import MIB

PYTHON_MIN = (3, 11)
OPEN_FILES_WANTED = 4096
FREE_BYTES_WANTED = 1024 * MIB
FSYNC_SAMPLES = 20
FSYNC_SLOW_MS = 20.0
FSYNC_UNBELIEVABLE_MS = 0.02
"""Faster than any disk: the device does not really wait."""


class CheckStatus(Enum):
    FINE = "ok"
    DOUBTFUL = "warning"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFinding:
    """`remedy` is empty where everything is fine."""

    name: str
    verdict: CheckStatus
    text: str
    remedy: str = ""


def check_machine(settings: Settings) -> Iterator[DoctorFinding]:
    """All checks that need nothing but this machine."""
    yield _python()
    yield from _open_files()
    yield from _ports(settings)
    yield from _folders(settings)


def _python() -> DoctorFinding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info[:2] < PYTHON_MIN:
        return DoctorFinding(name="python", verdict=CheckStatus.FAILED, text=version, remedy="use Python 3.11 or newer")
    return DoctorFinding(name="python", verdict=CheckStatus.FINE, text=version)


def _open_files() -> Iterator[DoctorFinding]:
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{soft} (up to {hard})"
    if 0 <= soft < OPEN_FILES_WANTED:
        remedy = f"each client connection takes one: ulimit -n {OPEN_FILES_WANTED}, or LimitNOFILE= in a unit"
        yield DoctorFinding(name="open files", verdict=CheckStatus.DOUBTFUL, text=text, remedy=remedy)
    else:
        yield DoctorFinding(name="open files", verdict=CheckStatus.FINE, text=text)


def _ports(settings: Settings) -> Iterator[DoctorFinding]:
    """All of them are held until the last one is tried, as an agent would. Those of this agent, which runs, are fine.

    The HTTP port comes first: where it is free, no agent with these settings runs.
    """
    running: RunningAgent | None = None
    with ExitStack() as held:
        for option, address in addresses(settings):
            family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
            try:
                held.enter_context(socket.create_server((address.host, address.port), family=family))
            except OSError as error:
                if address == settings.http and error.errno == errno.EADDRINUSE:
                    running = running or agent_at(address)
                yield _port_taken(settings, f"{option} {address}", address, error, running)
            else:
                text = f"{address} is free" if address.port else f"{address}: the agent will take a free port"
                yield DoctorFinding(name="port", verdict=CheckStatus.FINE, text=text)


def _port_taken(
    settings: Settings, shown: str, address: HostPort, error: OSError, running: RunningAgent | None
) -> DoctorFinding:
    remedy = "another process has it, two options name it, or the address is not this machine's"
    if running is not None and running.has_taken(address):
        if running.is_of(settings):
            text = f"{shown}: the agent {running.name} has it, which runs with these settings"
            return DoctorFinding(name="port", verdict=CheckStatus.FINE, text=text)
        remedy = f"the agent {running.name} on {running.store} has it: give one of the two another port"
    text = f"{shown}: {(error.strerror or str(error)).partition(' (while')[0]}"
    return DoctorFinding(name="port", verdict=CheckStatus.FAILED, text=text, remedy=remedy)


def _folders(settings: Settings) -> Iterator[DoctorFinding]:
    """The folders that embedded ledger and store lie in, and each file system that they lie on."""
    folders: dict[Path, str] = {}
    ledger, store = read_ledger_url(settings.ledger_url), read_store_url(settings.store_url)
    if isinstance(ledger, SqliteUrl):
        folder = Path(ledger.path).parent
        folders[folder] = "data dir" if folder == settings.data_dir else "ledger dir"
    if isinstance(store, FileUrl):
        folders[Path(store.path)] = "store dir"
    tried: set[Path] = set()
    file_systems: set[int] = set()
    for path, name in folders.items():
        if _existing(path) in tried:
            continue
        finding, milliseconds = _folder(path, name, "--data-dir" if name == "data dir" else "")
        yield finding
        file_system = _existing(path).stat().st_dev
        if file_system not in file_systems and finding.verdict is CheckStatus.FINE:
            file_systems.add(file_system)
            yield _free_space(_existing(path), name)
            yield _fsync_finding(milliseconds, is_durable=settings.is_durable)
        tried.add(_existing(path))


def _folder(path: Path, name: str, option: str) -> tuple[DoctorFinding, float]:
    """Whether an agent could make and write the folder, and how long an fsync takes there."""
    folder = _existing(path)
    try:
        milliseconds = _fsync_ms(folder)
    except OSError as error:
        remedy = "choose a folder that this user may write" + (f" with {option}" if option else "")
        reason = "it is a file" if folder.is_file() else error.strerror or str(error)
        finding = DoctorFinding(name=name, verdict=CheckStatus.FAILED, text=f"{folder}: {reason}", remedy=remedy)
        return finding, 0.0
    return DoctorFinding(name=name, verdict=CheckStatus.FINE, text=f"{path} can be written"), milliseconds


def _free_space(folder: Path, name: str) -> DoctorFinding:
    free_bytes = shutil.disk_usage(folder).free
    return DoctorFinding(
        name="free space",
        verdict=CheckStatus.FINE if free_bytes >= FREE_BYTES_WANTED else CheckStatus.DOUBTFUL,
        text=f"{bytes_text(free_bytes)} for the {name}",
        remedy=""
        if free_bytes >= FREE_BYTES_WANTED
        else f'records need room: free some, or move the {name}; docs/operations/disk.md, "The disk is full"',
    )


def _fsync_finding(milliseconds: float, *, is_durable: bool) -> DoctorFinding:
    text = f"{milliseconds:.2f} ms"
    if not is_durable:
        remedy = "a loss of power can lose acknowledged records: leave --no-fsync away where that matters"
        return DoctorFinding(
            name="fsync", verdict=CheckStatus.DOUBTFUL, text=f"{text}, but switched off", remedy=remedy
        )
    if milliseconds > FSYNC_SLOW_MS:
        remedy = "every acknowledgement waits for two of these: use a faster disk"
        return DoctorFinding(name="fsync", verdict=CheckStatus.DOUBTFUL, text=text, remedy=remedy)
    if milliseconds < FSYNC_UNBELIEVABLE_MS:
        remedy = "faster than a disk: memory, or a disk that does not wait; a loss of power may lose records"
        return DoctorFinding(name="fsync", verdict=CheckStatus.DOUBTFUL, text=text, remedy=remedy)
    return DoctorFinding(name="fsync", verdict=CheckStatus.FINE, text=text)


def _existing(path: Path) -> Path:
    """The path itself, or the nearest one above it that exists: the agent would create the rest."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _fsync_ms(folder: Path) -> float:
    """Median of a small write and its fsync, in milliseconds. Raises `OSError`."""
    samples, clock = [], SystemClock()
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(FSYNC_SAMPLES):
            started = clock.monotonic_s()
            file.write(b"penstock" * 512)
            file.flush()
            os.fsync(file.fileno())
            samples.append(clock.monotonic_s() - started)
    return sorted(samples)[FSYNC_SAMPLES // 2] * 1000
