"""The memory that this process may use at most, by its control group: a container's limit.

In: the files of /proc and /sys/fs/cgroup. Out: bytes, or None where nothing limits it, as on a plain machine or on
another system than Linux. Both versions of control groups are read, with the limits of the groups above: all hold.
Specification: Linux, "Control Group v2" (memory.max) and "Memory Resource Controller" (memory.limit_in_bytes).
"""

from collections.abc import Iterator
from pathlib import Path

from protocol.limits import KIB, READ_CACHE_BYTES_DEFAULT, READ_CACHE_BYTES_MAX, READ_CACHE_BYTES_MIN

_GROUPS = "sys/fs/cgroup"
READ_CACHE_SHARE = 4
"""The read cache of `auto` takes the limit divided by this."""


def memory_limit(root: Path = Path("/")) -> int | None:
    """The limit in bytes; None without one. `root`: the folder of proc and sys."""
    memory = _memory(root)
    # A limit above the machine's memory limits nothing: version 1 has one of 2^63 where none was set.
    limits = [limit for limit in _limits(root) if memory is None or limit < memory]
    return min(limits, default=None)


def read_cache_bytes(limit: int | None, processes: int) -> int:
    """The bytes of the read cache of `auto` for each of that many processes, whose limit is that."""
    if limit is None:
        return READ_CACHE_BYTES_DEFAULT
    return min(max(limit // READ_CACHE_SHARE // processes, READ_CACHE_BYTES_MIN), READ_CACHE_BYTES_MAX)


def _limits(root: Path) -> Iterator[int]:
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            folder, name = root / _GROUPS, "memory.max"
        elif "memory" in controllers.split(","):
            folder, name = root / _GROUPS / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = folder / path.lstrip("/")
        # A container may see its own group as the root, under the path that it has outside: that path is missing then.
        for each in (group, *group.parents):
            text = _text(each / name).strip()
            if text.isdecimal():  # `max` is none
                yield int(text)
            if each == folder:
                break


def _memory(root: Path) -> int | None:
    """The machine's memory."""
    for line in _text(root / "proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * KIB
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:  # no Linux, no such group, or one without this controller
        return ""
