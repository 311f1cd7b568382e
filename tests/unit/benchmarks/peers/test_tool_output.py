"""The output of Apache Kafka 4.3.1's tools, as they print it, read into figures."""

import pytest

from benchmarks.peers.tool_output import (
    UnreadableOutput,
    read_committed,
    read_consumed,
    read_end_to_end,
    read_produced,
    read_steady,
    read_together,
)

PRODUCED = """\
23600 records sent, 4715.3 records/sec (4.50 MB/sec), 6551.3 ms avg latency, 7273.0 ms max latency.
100000 records sent, 5025.125628 records/sec (4.79 MB/sec), 5279.01 ms avg latency, 7273.00 ms max latency, \
5998 ms 50th, 7054 ms 95th, 7223 ms 99th, 7260 ms 99.9th.
"""
STEADY = """\
80000 steady state records sent, 4218.500000 records/sec (4.02 MB/sec), 6118.32 ms avg latency, \
7273.00 ms max latency, 6092 ms 50th, 7092 ms 95th, 7238 ms 99th, 7262 ms 99.9th.
"""
END_TO_END = """\
WARNING: Positional argument usage is deprecated
0\t154.381833
Avg latency: 12.2381 ms
Percentiles: 50th = 11, 99th = 38, 99.9th = 154
The node does not support OFFSET_COMMIT
"""


def test_the_steady_state_counts_where_there_were_warm_up_records() -> None:
    assert read_produced(PRODUCED + STEADY, 1000) == {
        "mb_per_s": 4.2185,
        "records_per_s": 4218.5,
        "avg_ms": 6118.32,
        "max_ms": 7273.0,
        "p50_ms": 6092.0,
        "p95_ms": 7092.0,
        "p99_ms": 7238.0,
        "p999_ms": 7262.0,
    }


def test_without_warm_up_records_all_of_them_count() -> None:
    figures = read_produced(PRODUCED, 100)
    assert (figures["records_per_s"], figures["p50_ms"]) == (5025.125628, 5998.0)
    assert figures["mb_per_s"] == pytest.approx(0.5025125628)


def test_a_line_of_progress_is_no_summary() -> None:
    with pytest.raises(UnreadableOutput, match=r"7273\.0 ms max latency"):
        read_produced(PRODUCED.splitlines()[0], 1000)


def test_the_quoted_output_is_short() -> None:
    with pytest.raises(UnreadableOutput) as raised:
        read_produced("x" * 10_000 + " org.apache.kafka.common.errors.TimeoutException", 1000)
    assert len(str(raised.value)) < 400
    assert str(raised.value).endswith("TimeoutException")


def test_end_to_end_figures_are_read_although_the_tool_failed_after_them() -> None:
    assert read_end_to_end(END_TO_END) == {"avg_ms": 12.2381, "p50_ms": 11.0, "p99_ms": 38.0, "p999_ms": 154.0}


@pytest.mark.parametrize("missing", ["Avg latency", "Percentiles"])
def test_end_to_end_needs_both_lines(missing: str) -> None:
    with pytest.raises(UnreadableOutput):
        read_end_to_end(END_TO_END.replace(missing, "Something"))


def test_a_pass_of_the_consumer_gives_megabytes_of_values_by_its_own_clock() -> None:
    line = "done bench-7 records=20000 bytes=20000000 ns=40000000"
    assert read_consumed(line) == {"mb_per_s": 500.0, "records_per_s": 500_000.0, "records": 20_000.0}


def test_another_line_is_no_pass() -> None:
    with pytest.raises(UnreadableOutput):
        read_consumed("start bench-7")


def test_commits_are_read_as_medians_and_the_worst() -> None:
    line = (
        "committed transactions=3 answered_ns=2000000,1000000,9000000 visible_ns=5000000,4000000,6000000 cycle_ns=7,8,9"
    )
    assert read_committed(f"log4j: nothing\n{line}\n") == {
        "answered_p50_ms": 2.0,
        "answered_max_ms": 9.0,
        "visible_p50_ms": 5.0,
        "visible_max_ms": 6.0,
        "cycle_p50_ms": 8e-06,
        "cycle_max_ms": 9e-06,
    }


def test_a_committer_that_tells_nothing_has_failed() -> None:
    with pytest.raises(UnreadableOutput, match="CommitTransactions"):
        read_committed("Exception in thread main")


def test_figures_of_a_steady_workload_are_per_second_of_what_was_counted() -> None:
    counts = "steady ns=2000000000 acknowledged=20000 read=10000 commits_failed=2"
    line = f"{counts} publish_p50_us=1500 publish_p999_us=60000000"
    assert read_steady(line, 1024) == {
        "mb_per_s": 10.24,
        "read_mb_per_s": 5.12,
        "records": 20_000.0,
        "commits_failed": 2.0,
        "publish_p50_ms": 1.5,
        "publish_p999_ms": 60_000.0,
    }


def test_a_steady_workload_without_its_last_line_has_failed() -> None:
    with pytest.raises(UnreadableOutput, match="SteadyWorkload"):
        read_steady("begun", 1024)


def test_figures_of_several_clients_are_of_all_together() -> None:
    output = "a warning\ntogether records=400000 ns=2000000000 p50_us=1500 p99_us=20000\n"
    figures = read_together(output, 1000)
    assert figures == {"mb_per_s": 200.0, "records_per_s": 200_000.0, "p50_ms": 1.5, "p99_ms": 20.0}
    with pytest.raises(UnreadableOutput, match="ProduceTogether"):
        read_together("a warning", 1000)
