"""The wheel `penstock-broker`: `python3 -m tools.wheel` writes it to `dist`. What lies in it says pyproject.toml.

Equal sources give equal bytes.
"""

from pathlib import Path

from tools.environment import UV_SETTINGS, ensure_uv
from tools.steps import ROOT, main, report, run

DIST = ROOT / "dist"
NAME = "penstock_broker"


def build_wheel(folder: Path, source: Path = ROOT) -> Path:
    """Build the wheel of a checkout into `folder`, where no other of it lies; returns its path."""
    for old in folder.glob(f"{NAME}-*.whl"):
        old.unlink()
    run("wheel", [ensure_uv(), "build", "--wheel", "--out-dir", folder, source], env=UV_SETTINGS)
    (wheel,) = folder.glob(f"{NAME}-*.whl")
    return wheel


if __name__ == "__main__":
    main(lambda: report("wheel", "built", build_wheel(DIST)))
