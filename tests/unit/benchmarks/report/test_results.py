"""Rows: medians and ratios of their rounds, and their JSON."""

import json

import pytest

from benchmarks.cases import Case, Kind, PeerName
from benchmarks.report.results import RowResult, is_lower_better, ratios
from tests.support.benchmark_rows import made_row

ROW = RowResult(
    case=Case(kind=Kind.PRODUCE, value_bytes=1000),
    rounds={
        PeerName.KAFKA: [{"mb_per_s": 40.0}, {"mb_per_s": 50.0}, {"mb_per_s": 90.0}],
        PeerName.EMBEDDED: [{"mb_per_s": 10.0}, {"mb_per_s": 100.0 / 3}, {"mb_per_s": 25.0}],
    },
)


def test_a_ratio_is_that_of_the_medians() -> None:
    assert ROW.ratio(PeerName.EMBEDDED, "mb_per_s") == 0.5
    assert ROW.ratio(PeerName.MINIO, "mb_per_s") is None
    assert ROW.figure(PeerName.KAFKA, "p99_ms") is None


def test_rows_without_a_ratio_are_left_out() -> None:
    assert ratios([ROW, made_row(Kind.PRODUCE, kafka={"mb_per_s": 1.0})], PeerName.EMBEDDED, "mb_per_s") == [0.5]


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("mb_per_s", False),
        ("p99_ms", True),
        ("cpu_s_per_gb", True),
        ("mb_per_cpu_s", False),
        ("cold_start_s", True),
        ("chunks_per_s", False),
        ("memory_bytes_per_chunk", True),
        ("puts_per_gib", True),
        ("object_requests", True),
        ("cpu_of_unauthorized", True),
    ],
)
def test_what_is_better_follows_from_the_unit(metric: str, *, expected: bool) -> None:
    assert is_lower_better(metric) is expected


def test_json_holds_every_round_in_six_figures() -> None:
    row = json.loads(json.dumps(ROW.as_json()))
    assert row["name"] == "produce 1000 B p1 none 16 KiB"
    assert row["medians"]["embedded"] == {"mb_per_s": 25.0}
    assert row["rounds"]["embedded"] == [{"mb_per_s": 10.0}, {"mb_per_s": 33.3333}, {"mb_per_s": 25.0}]
