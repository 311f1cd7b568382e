"""Compiled kernels are loaded by a process that reads much, once, and not by one that reads little."""

import pytest

from iceberg_export.spark import kernels
from iceberg_export.spark.kernels import Kernels
from protocol.limits import SPARK_PLAIN_BYTES_MAX


def test_they_are_loaded_once_when_enough_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(kernels, "warm_kernels", lambda: loaded.append("once"))
    counted = Kernels()
    counted.read(SPARK_PLAIN_BYTES_MAX)
    assert not counted.wait()
    counted.read(1)
    counted.read(SPARK_PLAIN_BYTES_MAX)
    assert counted.wait()
    assert loaded == ["once"]
