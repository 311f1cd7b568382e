"""The shim, compiled once, and folders to cut the power of."""

from pathlib import Path

import pytest

from tests.faults.power_cut.power_cut import PowerCut, compiled_shim


@pytest.fixture(scope="session")
def shim() -> Path:
    return compiled_shim()


@pytest.fixture
def power_cut(shim: Path, tmp_path: Path) -> PowerCut:
    return PowerCut(shim, tmp_path / "root", tmp_path / "shadow")
