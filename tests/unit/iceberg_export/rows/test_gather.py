"""Strings that lie apart, copied back to back."""

import numpy as np
import pytest

from iceberg_export.rows.gather import gather
from protocol.records import records
from protocol.records import reference as record_reference
from protocol.records.records import warm_kernels


@pytest.fixture(params=["reference", "kernels"], autouse=True)
def worker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs on both."""
    warm_kernels()
    monkeypatch.setattr(records, "_observers", [])
    if request.param == "reference":
        monkeypatch.setattr(records, "_workers", [record_reference])


def test_strings_are_copied_in_order_and_null_copies_nothing() -> None:
    payload = np.frombuffer(b"..abc.de", dtype=np.uint8)
    out = np.zeros(7, dtype=np.uint8)
    first = np.array([6, 0, 2, 2], dtype=np.int64)
    length = np.array([2, -1, 3, 0], dtype=np.int32)
    assert gather(payload, first, length, out, 1) == 6
    assert out.tobytes() == b"\0deabc\0"


def test_no_strings_no_bytes() -> None:
    nothing = np.zeros(0, dtype=np.uint8)
    assert gather(nothing, np.zeros(0, np.int64), np.zeros(0, np.int32), nothing, 0) == 0
