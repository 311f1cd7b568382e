"""Cuts the power of a folder: starts a process whose syncs are recorded, then puts back only what was synced.

Rule: `restore` is the disk after the power came back, by the strict reading of POSIX that `fsync_shim.c` describes. The
process must be dead by then, and the harness decides when: `Process.kill`.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import Process
from tools.steps import ROOT, cache_folder

SOURCE = Path(__file__).with_name("fsync_shim.c")
COMPILE_SECONDS_MAX = 300
_VOLATILE_SUFFIX = "-shm"
"""SQLite's shared index of its write-ahead log: rebuilt from the log, never synced."""


def compiled_shim() -> Path:
    """The shim as a shared library, compiled where this source was not compiled yet; kept in the user's cache."""
    source = SOURCE.read_bytes()
    library = cache_folder() / f"fsync-shim-{hashlib.sha256(source).hexdigest()[:16]}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        unfinished = library.with_name(f"{library.name}.{os.getpid()}")
        options = ["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-ldl"]
        subprocess.run(
            [sys.executable, "-m", "ziglang", "cc", *options, "-o", unfinished, SOURCE],
            check=True,
            timeout=COMPILE_SECONDS_MAX,
            env={**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(cache_folder() / "zig")},
        )
        unfinished.replace(library)
    return library


@dataclass(frozen=True, slots=True)
class _Entry:
    """A synced name of a folder."""

    kind: str
    mode: int
    key: str
    name: str
    target: str | None


class PowerCut:
    """The folder `root` under the shim. `shadow` is a folder of the harness's own, outside of it."""

    def __init__(self, library: Path, root: Path, shadow: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root.resolve()
        self.shadow = shadow
        self._library = library

    def environment(self, *, ignore: str = "") -> dict[str, str]:
        """What a process needs in its environment; `ignore` as POWER_CUT_IGNORE in `fsync_shim.c`."""
        preloaded = os.environ.get("LD_PRELOAD", "")
        return {
            "LD_PRELOAD": f"{self._library}:{preloaded}" if preloaded else str(self._library),
            "POWER_CUT_ROOT": str(self.root),
            "POWER_CUT_SHADOW": str(self.shadow.resolve()),
            "POWER_CUT_IGNORE": ignore,
        }

    def adopt(self) -> None:
        """Take everything below the root as durable, and forget what was recorded before."""
        shutil.rmtree(self.shadow, ignore_errors=True)
        self.shadow.mkdir(parents=True)
        shim = ctypes.CDLL(str(self._library))  # only for this function: the syncs of this process stay as they are
        shim.power_cut_adopt(os.fsencode(self.root), os.fsencode(self.shadow.resolve()))

    def start(
        self,
        command: Sequence[str | Path],
        *,
        ignore: str = "",
    ) -> Process:
        """Adopt the root, then start a process under the shim."""
        self.adopt()
        env = {"PYTHONPATH": str(ROOT), **self.environment(ignore=ignore)}
        return Process(command, self.root.parent, name="process", env=env)

    def restore(self) -> None:
        """Make the root what was durable. Uses the record up: `adopt` or `start` begins a new one."""
        restored = self.root.with_name(self.root.name + ".restored")
        shutil.rmtree(restored, ignore_errors=True)
        restored.mkdir()
        self._restore_folder((self.shadow / "root").read_text(), restored)
        shutil.rmtree(self.root)
        restored.rename(self.root)

    def _restore_folder(self, key: str, folder: Path) -> None:
        for entry in self._entries(key):
            place = folder / entry.name
            match entry.kind:
                case "d":
                    place.mkdir()
                    self._restore_folder(entry.key, place)
                    place.chmod(entry.mode)
                case "f" if not entry.name.endswith(_VOLATILE_SUFFIX):
                    self._restore_file(entry.key, place)
                    place.chmod(entry.mode)
                case "l" if entry.target:
                    place.symlink_to(entry.target)
                case _:
                    pass

    def _restore_file(self, key: str, place: Path) -> None:
        contents = self.shadow / "files" / key
        if contents.exists():
            shutil.copyfile(contents, place)
        else:
            place.touch()

    def _entries(self, key: str) -> list[_Entry]:
        listing = self.shadow / "folders" / key
        if not listing.exists():
            return []
        entries: list[_Entry] = []
        records = iter(os.fsdecode(listing.read_bytes()).split("\0")[:-1])
        for record in records:
            kind, mode, entry_key, name = record.split(" ", 3)
            target = next(records).removeprefix(" -> ") if kind == "l" else None
            entries.append(_Entry(kind, int(mode, 8), entry_key, name, target))
        return entries
