"""The lab leaves nothing on the machine: neither after Ctrl-C, nor after its process was killed and started again."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.processes import Process
from tools.kube_lab.confinement import private_network
from tools.kube_lab.images import PenstockImage
from tools.kube_lab.lab import cgroup_name

READY_SECONDS_MAX = 300.0
SETTINGS = ("kernel/keys", "kernel/panic*", "net/bridge", "net/ipv4/conf", "net/ipv4/ip_forward", "net/netfilter", "vm")
CHANGING = ("nf_conntrack_count", "stat_refresh", "drop_caches", "compact_memory")
"""Counters, and settings that are commands."""
OF_PODMAN = ("/var/lib/containers/", "/run/netns/netns-")
"""Parts of mounts that someone else may make and remove meanwhile."""
FOLDERS = ("/run", "/var/lib", "/var/log", "/etc/cni", "/opt", "/usr/libexec/kubernetes")
COMMANDS = (
    ("ip", "-o", "address"),
    ("ip", "route", "show", "table", "all"),
    ("iptables-save",),
    ("ip", "netns"),
)


@pytest.fixture(autouse=True)
def network() -> Iterator[None]:
    """A network namespace that is the lab's machine, so that what others do to the real one's is not seen here."""
    with private_network():
        yield


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for a lab. pytest's own would keep a gigabyte of images until its third run after this one."""
    with tempfile.TemporaryDirectory(prefix="penstock-kube-") as path:
        yield Path(path)


def test_nothing_is_left_after_ctrl_c_nor_after_a_kill_and_a_second_start(folder: Path, image: PenstockImage) -> None:
    before = machine_state()
    kill_while_images_are_unpacked(folder, image)
    assert_equal(machine_state(), before)
    with lab_process(folder, image) as first:
        assert_equal(machine_state(), before)
        os.kill(first.pid, signal.SIGKILL)
        first.wait_ended()
        assert processes_of(folder), "a killed lab's programs run on: else this test shows nothing"
        with lab_process(folder, image) as second:
            assert_equal(machine_state(), before)
            assert cgroups_of(folder)
            os.kill(second.pid, signal.SIGINT)
            assert second.wait_ended() == 0, second.stderr
    assert_equal(machine_state(), before)
    assert processes_of(folder) == []
    assert cgroups_of(folder) == []
    assert {path.name for path in folder.iterdir()} == {"images", "lock", "logs", "process"}


def kill_while_images_are_unpacked(folder: Path, image: PenstockImage) -> None:
    """Start the lab for the first time in a folder, and kill it while a containerd of its start is at work."""
    with start(folder, image) as process:
        log = folder / "logs" / "containerd-images.log"
        process.wait_until(log.exists, "the unpacking of images", seconds_max=READY_SECONDS_MAX)
        os.kill(process.pid, signal.SIGKILL)
        process.wait_ended()


def start(folder: Path, image: PenstockImage) -> Process:
    command = [sys.executable, "-m", "tools.kube_lab", str(folder), "--image", str(image.archive)]
    root = Path(__file__).parents[3]
    return Process(command, folder / "process", name="lab", env={"PYTHONPATH": str(root)})


@contextmanager
def lab_process(folder: Path, image: PenstockImage) -> Iterator[Process]:
    """`make kube`, once all of it is ready."""
    with start(folder, image) as process:
        process.wait_until(lambda: "Ctrl-C ends all of it" in process.stdout, "the lab", seconds_max=READY_SECONDS_MAX)
        yield process


def machine_state() -> dict[str, str]:
    """All of the machine that a cluster of containers likes to change, by name."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    state = {"mounts": "\n".join(line for line in mounts if not any(name in line for name in OF_PODMAN))}
    for command in COMMANDS:
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        lines = [line for line in text.splitlines() if not line.startswith(("#", ":"))]  # times and counters
        state[" ".join(command)] = "\n".join(lines)
    for pattern in SETTINGS:
        for top in Path("/proc/sys").glob(pattern):
            for path in [top] if top.is_file() else sorted(top.rglob("*")):
                if path.is_file() and path.name not in CHANGING:
                    with suppress(OSError):  # some are written only
                        state[str(path)] = path.read_text()
    for name in FOLDERS:
        state[name] = "\n".join(sorted(os.listdir(name))) if Path(name).is_dir() else "none"
    return state


def cgroups_of(folder: Path) -> list[Path]:
    """Cgroups of the lab in a folder: others may come and go meanwhile."""
    return list(Path("/sys/fs/cgroup").glob(f"*/{cgroup_name(folder)}"))


def processes_of(folder: Path) -> list[str]:
    """Command lines of all processes that name a folder."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(folder) in line:
                lines.append(line)
    return lines


def assert_equal(state: dict[str, str], before: dict[str, str]) -> None:
    different = {name for name in state.keys() | before.keys() if state.get(name) != before.get(name)}
    assert not different, "\n".join(f"{name}:\n{before.get(name)}\nis now\n{state.get(name)}" for name in different)
