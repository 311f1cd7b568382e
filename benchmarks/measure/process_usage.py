"""What a process takes of the machine, from Linux's /proc: CPU seconds and resident memory, with all its descendants.

Rule: a process that has ended counts once its parent has waited for it. One that ended while it was looked at counts
as nothing.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_RESET_PEAK = "5"
"""proc(5), clear_refs: sets the peak resident set size to what it is now."""


def family(pid: int) -> Iterator[int]:
    """A process and its descendants."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in task.read_text().split():
                yield from family(int(child))


def cpu_seconds(pid: int) -> float:
    """User and system time of the family, with those of its processes that have ended."""
    return sum(_cpu_ticks(member) for member in family(pid)) / _TICKS_PER_SECOND


def main_thread_cpu_seconds(pid: int) -> float:
    """User and system time of the first thread of one process: the event loop, where it has one."""
    return sum(_times(Path(f"/proc/{pid}/task/{pid}/stat"))[:2]) / _TICKS_PER_SECOND


def memory_mib(pid: int, field: str = "VmRSS") -> float:
    """Resident memory of the family: now, or with `VmHWM` the sum of the peaks."""
    return sum(_status_kib(member, field) for member in family(pid)) / 1024


def reset_peak(pid: int) -> None:
    """Makes `VmHWM` count from now. Without effect where the system does not allow it."""
    for member in family(pid):
        with contextlib.suppress(OSError):
            Path(f"/proc/{member}/clear_refs").write_text(_RESET_PEAK)


def _cpu_ticks(pid: int) -> int:
    return sum(_times(Path(f"/proc/{pid}/stat")))


def _times(path: Path) -> Sequence[int]:
    """User and system time, and the same of the children that ended and were waited for: in ticks, see proc(5)."""
    try:
        text = path.read_text()
    except OSError:
        return (0, 0, 0, 0)
    # The name of the program, in brackets, may hold anything: fields are counted from its last bracket.
    fields = text.rpartition(")")[2].split()
    return [int(field) for field in fields[11:15]]


def _status_kib(pid: int, field: str) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(rf"^{field}:\s+(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) if found else 0
