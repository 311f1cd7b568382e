"""Compiled kernels are loaded by a process that takes many records, once, and not by one that takes few."""

import pytest

from iceberg_export.rows import kernels
from iceberg_export.rows.kernels import Kernels
from protocol import kernel_cache
from protocol.limits import PLAIN_RECORDS_MAX
from protocol.records import records
from protocol.records import reference as record_reference
from protocol.records.batch import read_header
from protocol.records.records import decode_records, validate_records, warm_kernels
from tests.support.records.plain_records import Record, make_batch

BATCH = make_batch([Record(offset=row, timestamp=7, value=b"some") for row in range(PLAIN_RECORDS_MAX // 2)])


def test_they_are_loaded_once_when_enough_was_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(kernels, "warm_kernels", lambda: loaded.append("once"))
    counted = Kernels()
    counted.count(PLAIN_RECORDS_MAX)
    assert not counted.wait()
    counted.count(1)
    counted.count(PLAIN_RECORDS_MAX)
    assert counted.wait()
    assert loaded == ["once"]


def test_that_they_cannot_be_loaded_is_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("no room for them")

    monkeypatch.setattr(kernels, "warm_kernels", fail)
    counted = Kernels()
    counted.count(PLAIN_RECORDS_MAX + 1)
    assert counted.wait()
    assert "kernels cannot be loaded" in caplog.text
    assert "no room for them" in caplog.text


def test_that_they_are_not_cached_is_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(kernels, "warm_kernels", lambda: None)
    for reason in ("", "no folder can be written"):
        monkeypatch.setattr(kernel_cache, "uncached_reason", lambda reason=reason: reason)
        counted = Kernels()
        counted.count(PLAIN_RECORDS_MAX + 1)
        assert counted.wait()
    (record,) = caplog.records
    assert "--cache-dir" in record.getMessage()
    assert record.__dict__["reason"] == "no folder can be written"


def test_what_the_reference_does_is_counted_and_what_kernels_do_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    header = read_header(BATCH)
    monkeypatch.setattr(records, "_workers", [record_reference])
    monkeypatch.setattr(records, "_observers", [])
    monkeypatch.setattr(kernels, "warm_kernels", lambda: None)
    counted = Kernels()
    counted.watch()
    before = validate_records(BATCH, header, decompressed_bytes_max=len(BATCH))
    decode_records(BATCH, header)
    assert not counted.wait()
    decode_records(BATCH, header)
    assert counted.wait()
    warm_kernels()
    told: list[int] = []
    records.observe_plain_records(told.append)
    assert validate_records(BATCH, header, decompressed_bytes_max=len(BATCH)) == before
    assert not told
