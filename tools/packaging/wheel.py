"""The wheel `penstock-broker`: `python3 -m tools.packaging.wheel` writes it to `dist`.

What lies in it says pyproject.toml. Equal sources give equal bytes, by one version of zlib. `deploy/wheel/build.lock`
pins what builds it, with hashes.
"""

import tempfile
from pathlib import Path

from tools.environment import UV_SETTINGS, ensure_uv
from tools.steps import ROOT, main, report, run

DIST = ROOT / "dist"
NAME = "penstock_broker"
BUILD_LOCK = ROOT / "deploy" / "wheel" / "build.lock"
FILE_TIME = 1580601600
"""Modification time of every file in seconds since 1970: hatchling's own, whatever the environment has."""


def build_wheel(folder: Path, source: Path = ROOT) -> Path:
    """Build the wheel of a checkout into `folder`, where no other of it lies; returns its path.

    If that fails, the folder keeps the wheel that it had.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="wheel-", dir=folder) as work:
        pinned: list[str | Path] = ["--build-constraints", BUILD_LOCK, "--require-hashes"]
        settings = {**UV_SETTINGS, "SOURCE_DATE_EPOCH": str(FILE_TIME)}
        run("wheel", [ensure_uv(), "build", "--wheel", *pinned, "--out-dir", work, source], env=settings)
        (built,) = Path(work).glob(f"{NAME}-*.whl")
        for old in folder.glob(f"{NAME}-*.whl"):
            old.unlink()
        return built.replace(folder / built.name)


if __name__ == "__main__":
    main(lambda: report("wheel", "built", build_wheel(DIST)))
