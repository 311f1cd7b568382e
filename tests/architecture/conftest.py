"""Tests of this folder share the parsed modules (`source.tree`), which no test of another folder uses."""

import gc
from pathlib import Path

import pytest

from tests.architecture.source import tree


def pytest_runtest_setup() -> None:
    """The cyclic GC would visit the millions of nodes again and again: parsing takes four times as long with it."""
    gc.disable()


def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    if nextitem is None or not nextitem.path.is_relative_to(Path(__file__).parent):
        tree.cache_clear()
        gc.enable()
