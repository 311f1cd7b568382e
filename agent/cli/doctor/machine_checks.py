"""Checks of the machine by `penstock doctor`: Python, open files, ports, disk.

Nothing stays behind: files that a check writes are removed, and ports are released.
"""

import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from agent.cli.clients.running_agent import AgentHidden, RunningAgent, agent_of
from agent.cli.clients.security import ClientSecurity
from agent.cli.output import bytes_text
from agent.cli.reasons import addresses
from agent.config.addresses import FileUrl, HostPort, JournalUrl, SqliteUrl, read_ledger_url, read_store_url
from agent.config.memory_limit import memory_limit
from agent.config.settings import Settings
from agent.runtime.clock import SystemClock
from agent.runtime.sockets import bound_socket
from protocol.limits import MIB

PYTHON_MIN = (3, 11)
OPEN_FILES_WANTED = 4096
FREE_BYTES_WANTED = 1024 * MIB
FSYNC_SAMPLES = 20
FSYNC_SLOW_MS = 20.0
FSYNC_UNBELIEVABLE_MS = 0.02
"""Faster than any disk: the device does not wait for the medium."""


class CheckStatus(Enum):
    """The result of a check, as it is printed."""

    FINE = "ok"
    DOUBTFUL = "warning"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFinding:
    """The result of one check. `remedy` is empty where it is fine."""

    name: str
    verdict: CheckStatus
    text: str
    remedy: str = ""


def check_machine(settings: Settings, security: ClientSecurity | None = None) -> Iterator[DoctorFinding]:
    """The findings of all checks that need only this machine. `security`: how a running agent is asked, if not so."""
    yield _python()
    yield from _open_files()
    yield _memory(settings, memory_limit())
    yield from _ports(settings, security)
    yield from _folders(settings)
    if settings.cache_dir is not None:
        yield _folder(settings.cache_dir, "cache dir", "--cache-dir")[0]


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


def _memory(settings: Settings, limit: int | None) -> DoctorFinding:
    """The read cache beside the limit of this process's memory in bytes, if there is one."""
    caches = settings.read_cache_bytes * settings.processes
    times = f"{settings.processes} x " if settings.processes > 1 else ""
    text = f"read cache {times}{bytes_text(settings.read_cache_bytes)}, memory limit " + (
        "none" if limit is None else bytes_text(limit)
    )
    if limit is None or caches <= limit // 2:
        return DoctorFinding(name="memory", verdict=CheckStatus.FINE, text=text)
    remedy = "beside the cache an agent needs half of its memory: lower --read-cache-bytes, or raise the limit"
    return DoctorFinding(name="memory", verdict=CheckStatus.DOUBTFUL, text=text, remedy=remedy)


def _ports(settings: Settings, security: ClientSecurity | None) -> Iterator[DoctorFinding]:
    """Bind every port, all at the same time, as an agent does. Ports of a running agent with these settings are fine.

    The HTTP port comes first: where it is free, no agent with these settings runs.
    """
    running: RunningAgent | None = None
    remedy = "choose another: a process uses it, two options have it, or it is no address of this machine"
    with ExitStack() as sockets:
        for option, address in addresses(settings):
            try:
                sockets.enter_context(bound_socket(address.host, address.port)).listen()
            except OSError as error:
                if address == settings.http and error.errno == errno.EADDRINUSE:
                    try:
                        running = running or agent_of(settings, security)
                    except AgentHidden as hidden:
                        remedy = str(hidden)
                yield _port_taken(settings, f"{option} {address}", address, error, running, remedy)
            else:
                text = f"{address} is free" if address.port else f"{address}: the agent will take a free port"
                yield DoctorFinding(name="port", verdict=CheckStatus.FINE, text=text)


def _port_taken(
    settings: Settings, shown: str, address: HostPort, error: OSError, running: RunningAgent | None, remedy: str
) -> DoctorFinding:
    """The finding of a port that cannot be bound. `remedy`: what to do where it is not known who has it."""
    if running is not None and running.has_taken(address):
        if running.is_of(settings):
            text = f"{shown}: in use by the agent {running.name}, which runs with these settings"
            return DoctorFinding(name="port", verdict=CheckStatus.FINE, text=text)
        remedy = f"the agent {running.name} on {running.store} uses it: give one of the two agents another port"
    text = f"{shown}: {(error.strerror or str(error)).partition(' (while')[0]}"
    return DoctorFinding(name="port", verdict=CheckStatus.FAILED, text=text, remedy=remedy)


def _folders(settings: Settings) -> Iterator[DoctorFinding]:
    """The checks of the folders of embedded ledger and store, and of each of their file systems."""
    folders: dict[Path, str] = {}
    ledger, store = read_ledger_url(settings.ledger_url), read_store_url(settings.store_url)
    if isinstance(ledger, SqliteUrl | JournalUrl):
        folder = Path(ledger.path).parent
        folders[folder] = "data dir" if folder == settings.data_dir else "ledger dir"
    if isinstance(store, FileUrl):
        folders[Path(store.path)] = "store dir"
    checked: set[Path] = set()
    file_systems: set[int] = set()
    for path, name in folders.items():
        if _existing(path) in checked:
            continue
        finding, milliseconds = _folder(path, name, "--data-dir" if name == "data dir" else "")
        yield finding
        file_system = _existing(path).stat().st_dev
        if file_system not in file_systems and finding.verdict is CheckStatus.FINE:
            file_systems.add(file_system)
            yield _free_space(_existing(path), name)
            syncs = "one of these" if isinstance(ledger, JournalUrl) else "two of these"
            yield _fsync_finding(milliseconds, syncs, is_durable=settings.is_durable)
        checked.add(_existing(path))


def _folder(path: Path, name: str, option: str) -> tuple[DoctorFinding, float]:
    """The check that an agent can make and write the folder, and the milliseconds of an fsync there."""
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
        else f'free some space, or move the {name} to another disk; docs/operations/disk.md, "The disk is full"',
    )


def _fsync_finding(milliseconds: float, syncs: str, *, is_durable: bool) -> DoctorFinding:
    """The finding about an fsync's time. `syncs`: how many of them an acknowledgement waits for."""
    text = f"{milliseconds:.2f} ms"
    if not is_durable:
        remedy = "a power failure can lose acknowledged records: remove --no-fsync where that matters"
        return DoctorFinding(
            name="fsync", verdict=CheckStatus.DOUBTFUL, text=f"{text}, but switched off", remedy=remedy
        )
    if milliseconds > FSYNC_SLOW_MS:
        remedy = f"use a faster disk: every acknowledgement waits for {syncs}"
        return DoctorFinding(name="fsync", verdict=CheckStatus.DOUBTFUL, text=text, remedy=remedy)
    if milliseconds < FSYNC_UNBELIEVABLE_MS:
        remedy = "use a disk that waits for its medium: this is memory, or caches writes; a power failure loses records"
        return DoctorFinding(name="fsync", verdict=CheckStatus.DOUBTFUL, text=text, remedy=remedy)
    return DoctorFinding(name="fsync", verdict=CheckStatus.FINE, text=text)


def _existing(path: Path) -> Path:
    """The path itself, or its nearest parent that exists: an agent would create the folders below."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _fsync_ms(folder: Path) -> float:
    """The median of a small write with its fsync, in milliseconds. Raises `OSError`."""
    samples, clock = [], SystemClock()
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(FSYNC_SAMPLES):
            started = clock.monotonic_s()
            file.write(b"penstock" * 512)
            file.flush()
            os.fsync(file.fileno())
            samples.append(clock.monotonic_s() - started)
    return sorted(samples)[FSYNC_SAMPLES // 2] * 1000
