"""The Python environment: `uv` from its wheel, then the packages of `uv.lock`.

    python3 -m tools.environment [GROUP...]

Rule: a group that was installed once stays; the broker alone (no group) needs no Java, Go or Spark.
"""

import hashlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools import pins
from tools.steps import ROOT, SetupFailed, cache_folder, ensure, environment_folder, locked, main, report, run

PYTHON_MIN = (3, 11)
UV_SETTINGS = {
    "UV_PYTHON_DOWNLOADS": "never",
    "UV_SYSTEM_CERTS": "true",
    "UV_HTTP_TIMEOUT": "180",
    "UV_NO_PROGRESS": "1",
}
STAMP = "penstock-setup"


def ensure_uv() -> Path:
    """Path of the pinned `uv`, installed by pip into a folder of its own (the PIP_* environment is respected)."""

    def build(folder: Path) -> None:
        if _has_module("ensurepip"):
            run("uv environment", [sys.executable, "-m", "venv", folder])
            run("uv", [folder / "bin" / "python", "-m", "pip", "install", "--quiet", f"uv=={pins.UV}"])
        elif _has_module("pip"):
            run("uv", [sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, f"uv=={pins.UV}"])
        else:
            raise SetupFailed(
                f"{sys.executable} has neither ensurepip nor pip, so nothing can be installed. On Debian and Ubuntu:\n"
                "  apt-get install python3-venv\nor name another Python: make setup PYTHON=/path/to/python3.11"
            )

    return ensure(f"uv {pins.UV}", cache_folder() / f"uv-{pins.UV}", build) / "bin" / "uv"


def sync(groups: Sequence[str]) -> None:
    """Makes the environment hold the broker and `groups`, at the versions of uv.lock."""
    place = environment_folder()
    with locked(place):
        stamp = place / STAMP
        wanted = _wanted(stamp, groups)
        if stamp.exists() and stamp.read_text() == wanted:
            return
        uv = ensure_uv()
        title = "packages: " + " ".join(wanted.split()[1:])
        started = time.monotonic()
        options = [option for group in wanted.split()[2:] for option in ("--group", group)]
        present = place / "bin" / "python"
        python = present if present.exists() else Path(sys.executable)
        run(
            title.replace(":", ""),
            [uv, "sync", "--project", ROOT, "--frozen", "--python", python, *options],
            env={**UV_SETTINGS, "UV_PROJECT_ENVIRONMENT": str(place)},
        )
        report(title, f"{time.monotonic() - started:.0f} s", place)
        compile_kernels(present)
        stamp.write_text(wanted)


def compile_kernels(python: Path) -> None:
    """Compiles the record kernels into numba's cache, so that a broker's first minute is as fast as its second."""
    started = time.monotonic()
    run("record kernels", [python, "-c", "import iceberg_export.rows.gather_kernel, protocol.records.kernels"])
    report("record kernels", f"{time.monotonic() - started:.0f} s", ROOT / "protocol")


def install_apart(requirement: str, folder: Path) -> None:
    """Installs one pinned package, without its dependencies, into a folder of its own."""
    options = ["--no-deps", "--python", sys.executable, "--target", str(folder)]
    run(requirement, [ensure_uv(), "pip", "install", *options, requirement], env=UV_SETTINGS)


def _wanted(stamp: Path, groups: Sequence[str]) -> str:
    """What the stamp holds when all is done: the digest of lock and project, `broker`, and the groups."""
    digest = hashlib.sha256()
    for name in ("uv.lock", "pyproject.toml"):
        digest.update((ROOT / name).read_bytes())
    installed = stamp.read_text().split()[2:] if stamp.exists() else []
    return " ".join([digest.hexdigest(), "broker", *sorted({*installed, *groups})])


def _has_module(name: str) -> bool:
    try:
        __import__(name)
    except ImportError:
        return False
    return True


def _main() -> None:
    if sys.version_info < PYTHON_MIN:
        version = ".".join(map(str, sys.version_info[:3]))
        raise SetupFailed(f"Python {version} is too old: Penstock needs 3.11 or newer (make setup PYTHON=python3.12)")
    sync(sys.argv[1:])
    if not (environment_folder() / "bin" / "penstock").exists():
        raise SetupFailed(f"{environment_folder()} lacks bin/penstock: remove that folder and run make setup again")


if __name__ == "__main__":
    main(_main)
