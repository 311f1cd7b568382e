"""Where the packages of an installed Penstock are found."""

import sys
from pathlib import Path

import pytest

from penstock.application import APP, find_packages


def test_the_packages_of_an_installed_wheel_come_before_everything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", ["a", "b"])
    find_packages(tmp_path)
    find_packages(tmp_path)
    assert sys.path == [str(tmp_path), "a", "b"]


def test_a_checkout_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["a", "b"])
    assert not APP.exists()
    find_packages()
    assert sys.path == ["a", "b"]
