"""What separates the lab from the machine: a network namespace, and a group of processes in every cgroup hierarchy.

The process that starts the lab is itself in the network namespace, so what it starts is there, too, and nothing keeps
the namespace when all of them have ended. Mounts of nodes are in mount namespaces of their own, and end with them.

Rule: whatever the lab left, this process's or a killed one's, is found by its cgroup and ended by that alone.
Mounts outside a `/run` of their own are made with `--no-mtab`, or `/run/mount` would be left.
"""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

CONTROLLERS = frozenset({"blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids"})
"""Those that containerd and the kubelet use, of cgroup version 1."""
NEW_MOUNTS, NEW_NETWORK = 0x00020000, 0x40000000
"""CLONE_NEWNS and CLONE_NEWNET of sched.h. Python has `os.unshare` and `os.setns` from 3.12 on."""
END_SECONDS_MAX = 30.0
JOIN = 'for group; do shift; [ "$group" = -- ] && break; echo $$ > "$group/cgroup.procs" || exit 1; done; exec "$@"'
"""A shell's program: joins the cgroups before `--`, then becomes the command after it."""

_LIBC = ctypes.CDLL(None, use_errno=True)


@contextmanager
def private_network() -> Iterator[None]:
    """Move this thread, and what it starts, into a new network namespace that has only a loopback interface."""
    with Path("/proc/thread-self/ns/net").open("rb") as before:
        _call("unshare", NEW_NETWORK)
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            _call("setns", before.fileno(), NEW_NETWORK)


@contextmanager
def private_names(resolver: Path) -> Iterator[None]:
    """Let this thread, and those that it starts, find names as the file `resolver` says (resolv.conf(5)).

    It stays in a mount namespace of its own afterwards: a process with threads cannot leave one.
    """
    _call("unshare", NEW_MOUNTS)
    subprocess.run(["mount", "--no-mtab", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "--no-mtab", "--bind", str(resolver), "/etc/resolv.conf"], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--no-mtab", "--lazy", "/etc/resolv.conf"], check=True)


def _call(function: str, *arguments: int) -> None:
    if getattr(_LIBC, function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")


def hierarchies(mounts: str) -> dict[str, Path]:
    """Mount points of cgroup hierarchies by what each is for: the controllers of version 1, `name=...`, `unified`.

    `mounts` has the form of /proc/self/mountinfo, of proc(5).
    """
    folders: dict[str, Path] = {}
    for line in mounts.splitlines():
        words, _separator, described = line.partition(" - ")
        kind, _source, options = described.split(" ", 2)
        folder = Path(words.split()[4])
        if kind == "cgroup":
            folders.update(
                (option, folder) for option in options.split(",") if option in CONTROLLERS or option.startswith("name=")
            )
        elif kind == "cgroup2":
            folders["unified"] = folder
    return folders


@dataclass(frozen=True, slots=True)
class Cgroups:
    """The lab's cgroups: one of its name in every hierarchy, with one below it for each node."""

    name: str
    folders: Mapping[str, Path]
    """Mount points, as `hierarchies` finds them."""

    def create(self, nodes: Sequence[str]) -> None:
        for path in (self.name, *(f"{self.name}/{node}" for node in nodes)):
            for folder in self._version_1:
                group = folder / path
                group.mkdir(exist_ok=True)
                if folder == self.folders["cpuset"]:  # a new one has no processor, and no process can join it
                    for setting in ("cpuset.cpus", "cpuset.mems"):
                        (group / setting).write_text((group.parent / setting).read_text())

    def joining(self, node: str = "") -> list[str]:
        """The words before a command that is to run in the lab's cgroups, or in those of a node."""
        return ["sh", "-c", JOIN, "sh", *(str(folder / self.name / node) for folder in self._version_1), "--"]

    def processes(self, node: str = "") -> set[int]:
        """Ids of the processes of the lab, or of one node."""
        top = self.folders["pids"] / self.name / node
        ids: set[int] = set()
        for folder, _folders, _files in os.walk(top):
            with suppress(OSError):  # it was removed meanwhile
                ids.update(map(int, (Path(folder) / "cgroup.procs").read_text().split()))
        return ids

    def memory_bytes(self) -> int:
        """Memory of all processes that is not the page cache's."""
        text = (self.folders["memory"] / self.name / "memory.stat").read_text()
        values = dict(line.split() for line in text.splitlines())
        return int(values["total_rss"]) + int(values["total_shmem"])

    def kill(self, node: str = "") -> None:
        """End all processes of the lab, or of one node, at once. Returns when there are none."""
        deadline = time.monotonic() + END_SECONDS_MAX
        while ids := self.processes(node):
            for process in ids:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes {sorted(ids)} of {self.name} do not end")
            time.sleep(0.02)

    def kill_container(self, container: str) -> None:
        """End all processes of a container at once."""
        (group,) = (self.folders["pids"] / self.name).rglob(container)
        for process in (group / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)

    def remove(self) -> None:
        """Remove all cgroups of the lab. No process may be in them."""
        for folder in {path / self.name for path in self.folders.values()}:
            for path, _folders, _files in os.walk(folder, topdown=False):
                self._remove_one(Path(path))

    @property
    def _version_1(self) -> list[Path]:
        return sorted({folder for kind, folder in self.folders.items() if kind != "unified"})

    def _remove_one(self, group: Path) -> None:
        deadline = time.monotonic() + END_SECONDS_MAX
        while True:
            try:
                group.rmdir()
            except FileNotFoundError:
                return
            except OSError as error:  # its last process has ended, and the kernel has not noted it yet
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the cgroup {group} cannot be removed: {error}") from error
                time.sleep(0.02)
