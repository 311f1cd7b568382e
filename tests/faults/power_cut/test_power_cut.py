"""The file layer itself: it keeps what was synced, and nothing else."""

import sys
from pathlib import Path

import pytest

from tests.faults.power_cut.power_cut import PowerCut

PRELUDE = """
import os, sys, threading
os.chdir(sys.argv[1])
def write(name, text):
    with open(name, "w") as file:
        file.write(text)
def sync(name):
    descriptor = os.open(name, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
"""


def cut(power_cut: PowerCut, script: str, *, ignore: str = "") -> dict[str, str]:
    """Run a script, cut the power when it has said so, and return what is left: contents by relative path."""
    end = "\nprint('now', flush=True)\nthreading.Event().wait()\n"
    command: list[str | Path] = [sys.executable, "-c", PRELUDE + script + end, power_cut.root]
    with power_cut.start(command, ignore=ignore) as process:
        assert process.read_line() == "now"
        process.kill()
    power_cut.restore()
    return tree(power_cut.root)


def tree(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): path.read_text() if path.is_file() else "/" for path in sorted(root.rglob("*"))
    }


@pytest.mark.parametrize(
    ("script", "left"),
    [
        ("write('a', 'x'); sync('a'); sync('.')", {"a": "x"}),
        ("write('a', 'x')", {}),
        ("write('a', 'x'); sync('a')", {}),
        ("write('a', 'x'); sync('.')", {"a": ""}),
        ("write('a', 'x'); os.fdatasync(os.open('a', os.O_WRONLY)); sync('.')", {"a": "x"}),
        ("write('a', 'x'); sync('a'); sync('.'); write('a', 'newer')", {"a": "x"}),
        ("write('a', 'x'); sync('a'); sync('.'); os.rename('a', 'b')", {"a": "x"}),
        ("write('a', 'x'); sync('a'); sync('.'); os.rename('a', 'b'); sync('.')", {"b": "x"}),
        ("write('a', 'x'); sync('.'); os.rename('a', 'b'); sync('b'); sync('.')", {"b": "x"}),
        ("write('a', 'x'); sync('a'); sync('.'); os.unlink('a')", {"a": "x"}),
        ("write('a', 'x'); sync('a'); sync('.'); os.unlink('a'); sync('.')", {}),
        ("write('a', 'x'); sync('a'); os.link('a', 'b'); sync('.')", {"a": "x", "b": "x"}),
        ("os.makedirs('d/e'); write('d/e/a', 'x'); sync('d/e/a'); sync('d/e'); sync('.')", {"d": "/"}),
        ("os.makedirs('d/e'); sync('d'); sync('.')", {"d": "/", "d/e": "/"}),
        ("os.mkdir('d'); write('d/a', 'x'); sync('d/a'); sync('d')", {}),
        ("os.mkdir('d'); write('d/a', 'x'); sync('d/a'); sync('d'); sync('.')", {"d": "/", "d/a": "x"}),
        ("os.symlink('a', 'l'); write('a', 'x'); sync('a'); sync('.')", {"a": "x", "l": "x"}),
        ("write('a', 'x'); sync('a'); write('a-shm', 'y'); sync('a-shm'); sync('.')", {"a": "x"}),
        ("write('a', 'x'); os.sync(); sync('.')", {"a": ""}),
    ],
)
def test_only_what_was_synced_is_left(power_cut: PowerCut, script: str, left: dict[str, str]) -> None:
    assert cut(power_cut, script) == left


def test_what_was_there_before_is_durable(power_cut: PowerCut) -> None:
    (power_cut.root / "d").mkdir()
    (power_cut.root / "d" / "old").write_text("x")
    assert cut(power_cut, "write('d/old', 'newer'); write('d/new', 'y')") == {"d": "/", "d/old": "x"}


def test_the_next_start_goes_on_from_what_was_left(power_cut: PowerCut) -> None:
    cut(power_cut, "write('a', 'x'); sync('a'); sync('.')")
    assert cut(power_cut, "write('b', 'y'); sync('b'); sync('.'); write('a', 'newer')") == {"a": "x", "b": "y"}


def test_a_new_file_in_the_place_of_a_synced_inode_is_empty(power_cut: PowerCut) -> None:
    script = """
for name in range(50):
    write('old', 'x'); sync('old'); os.unlink('old')
write('new', 'y'); sync('.')
"""
    assert cut(power_cut, script) == {"new": ""}


@pytest.mark.parametrize(
    ("ignore", "left"),
    [
        ("", {"d": "/", "d/a": "x", "d/b": "y"}),
        ("d/a", {"d": "/", "d/a": "", "d/b": "y"}),
        ("file:", {"d": "/", "d/a": "", "d/b": ""}),
        ("dir:/d", {"d": "/"}),
        ("dir:", {}),
        ("file:/a,file:/b", {"d": "/", "d/a": "", "d/b": ""}),
        ("elsewhere", {"d": "/", "d/a": "x", "d/b": "y"}),
    ],
)
def test_a_sync_that_is_ignored_leaves_nothing(power_cut: PowerCut, ignore: str, left: dict[str, str]) -> None:
    script = "os.mkdir('d'); write('d/a', 'x'); write('d/b', 'y'); sync('d/a'); sync('d/b'); sync('d'); sync('.')"
    assert cut(power_cut, script, ignore=ignore) == left


def test_every_acknowledged_file_of_many_threads_is_left(power_cut: PowerCut) -> None:
    script = """
def put_many(thread):
    for number in range(10_000):
        name = f"{thread}-{number}"
        write(name + ".part", name); sync(name + ".part")
        os.rename(name + ".part", name); sync(".")
        os.write(1, f"{name}\\n".encode())
for thread in range(4):
    threading.Thread(target=put_many, args=(thread,), daemon=True).start()
threading.Event().wait()
"""
    command: list[str | Path] = [sys.executable, "-c", PRELUDE + script, power_cut.root]
    with power_cut.start(command) as process:
        acknowledged = [process.read_line() for _ in range(100)]
        process.kill()
        acknowledged += process.read_lines()
    power_cut.restore()
    left = tree(power_cut.root)
    assert [name for name in acknowledged if left.get(name) != name] == []
