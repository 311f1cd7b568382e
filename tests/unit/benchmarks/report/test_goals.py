"""Goals judged from literal rows."""

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.cases import Kind
from benchmarks.report.goals import judge
from benchmarks.report.results import RowResult
from tests.support.benchmark_rows import made_row


def verdicts(rows: Sequence[RowResult], text: str) -> list[tuple[str, bool | None]]:
    return [(goal.measured, goal.is_met) for goal in judge(rows) if goal.text.startswith(text)]


def test_nothing_measured_is_neither_met_nor_missed() -> None:
    assert {(goal.measured, goal.is_met) for goal in judge([])} == {("not measured", None)}


def test_produce_has_a_goal_for_the_mean_and_one_for_the_slowest_row() -> None:
    rows = [
        made_row(Kind.PRODUCE, kafka={"mb_per_s": 50.0}, embedded={"mb_per_s": 100.0}),
        made_row(Kind.PRODUCE, kafka={"mb_per_s": 100.0}, embedded={"mb_per_s": 60.0}),
    ]
    assert verdicts(rows, "produce, geometric mean") == [("1.10 x", True)]
    assert verdicts(rows, "produce, slowest row") == [("0.60 x", False)]


def paced(*, kafka: dict[str, float], embedded: dict[str, float]) -> RowResult:
    """A row of 1,000 records of 1,000 bytes a second: 1 MB/s."""
    row = made_row(Kind.PRODUCE_PACED, kafka=kafka, embedded=embedded)
    return replace(row, case=replace(row.case, rate=1000))


def test_clusters_are_judged_beside_what_store_and_ledger_take() -> None:
    produced = made_row(Kind.CLUSTER_PRODUCE, cluster={"share_of_raw": 0.9})
    assert verdicts([produced], "cluster, produce") == [("0.9", True)]
    waiting = made_row(Kind.CLUSTER_LATENCY, cluster={"p50_of_floor": 1.3, "p50_ms": 170.0})
    waiting = replace(waiting, case=replace(waiting.case, flush_interval_ms=250))
    assert verdicts([waiting], "cluster, latency") == [("1.3", False)]


def test_clusters_have_goals_by_the_number_of_their_agents() -> None:
    def row(kind: Kind, agents: int, flush_interval_ms: int, **figures: float) -> RowResult:
        made = made_row(kind, cluster=figures)
        return replace(made, case=replace(made.case, agents=agents, flush_interval_ms=flush_interval_ms))

    express = [row(Kind.CLUSTER_LATENCY, agents, 0, p50_ms=12.0) for agents in (1, 3)]
    assert verdicts(express, "cluster of one agent, express") == [("12", False)]
    assert verdicts(express, "cluster of three agents, express") == [("12", True)]
    costs = [row(Kind.CLUSTER_COST, agents, flush, puts_per_gib=260.0) for agents in (1, 3) for flush in (250, 50)]
    costs[1] = row(Kind.CLUSTER_COST, 1, 50, puts_per_gib=900.0)
    assert verdicts(costs, "cluster of one agent at 20 MB/s") == [("260", False)]
    assert verdicts(costs, "cluster of three agents at 20 MB/s") == [("260", True)]


def test_cpu_is_compared_at_an_equal_rate() -> None:
    fast = made_row(Kind.PRODUCE, kafka={"cpu_s_per_gb": 4.0}, embedded={"cpu_s_per_gb": 40.0})
    row = paced(kafka={"cpu_s_per_gb": 4.0, "mb_per_s": 0.99}, embedded={"cpu_s_per_gb": 2.0, "mb_per_s": 0.98})
    assert verdicts([fast, row], "CPU to produce") == [("0.50 x", True)]
    dear = paced(kafka={"cpu_s_per_gb": 4.0, "mb_per_s": 1.0}, embedded={"cpu_s_per_gb": 6.0, "mb_per_s": 1.0})
    assert verdicts([dear], "CPU to produce") == [("1.50 x", False)]


def test_cpu_is_not_compared_where_one_could_not_follow() -> None:
    row = paced(kafka={"cpu_s_per_gb": 4.0, "mb_per_s": 1.0}, embedded={"cpu_s_per_gb": 2.0, "mb_per_s": 0.5})
    assert verdicts([row], "CPU to produce") == [("not measured", None)]


def test_produce_through_minio_is_compared_with_raw_puts() -> None:
    raw = made_row(Kind.RAW_PUT, minio={"mb_per_s": 200.0})
    rows = [made_row(Kind.PRODUCE, minio={"mb_per_s": speed}) for speed in (5.0, 150.0)]
    assert verdicts([raw, *rows], "produce through MinIO") == [("0.75 x", False)]
    assert verdicts(rows, "produce through MinIO") == [("not measured", None)]


def test_a_bound_holds_for_every_row() -> None:
    rows = [made_row(Kind.LATENCY, embedded={"p50_ms": 2.0, "p99_ms": p99}) for p99 in (4.0, 6.0)]
    assert verdicts(rows, "latency at 1,000 records/s, p50") == [("2", True)]
    assert verdicts(rows, "latency at 1,000 records/s, p99") == [("6", False)]


def test_a_steady_load_is_judged_by_one_workload() -> None:
    rows = [made_row(Kind.OPENMESSAGING, embedded={"publish_p99_ms": p99}) for p99 in (14.0, 60.0)]
    names = ("simple-workload", "1-topic-16-partitions-1kb")
    rows = [replace(row, case=replace(row.case, workload=name)) for row, name in zip(rows, names, strict=True)]
    assert verdicts(rows, "10,000 records/s") == [("14", True)]


def test_the_slowest_archive_counts() -> None:
    rows = [made_row(Kind.CONSUME_ARCHIVE, embedded={"mb_per_cpu_s": speed}) for speed in (500.0, 299.0)]
    assert verdicts(rows, "consume from the cold archive, MB/s a core") == [("299", False)]


def test_apply_and_load_have_a_goal_each() -> None:
    figures = {"chunks_per_s": 290_000.0, "load_s": 0.3, "memory_bytes_per_chunk": 61.0}
    rows = [made_row(Kind.METADATA, embedded=figures)]
    assert verdicts(rows, "chunk references applied a second") == [("290,000", False)]
    assert verdicts(rows, "load of a million chunks") == [("0.3", True)]
    assert verdicts(rows, "memory of a chunk") == [("61", True)]


def test_an_idle_broker_asks_for_no_object() -> None:
    for requests, is_met in ((0.0, True), (1.0, False)):
        rows = [made_row(Kind.IDLE, kafka={"cpu_percent": 2.0}, embedded={"object_requests": requests})]
        assert verdicts(rows, "idle, object requests") == [(f"{requests:g}", is_met)]


def test_idle_groups_cost_no_entry() -> None:
    for entries, is_met in ((0.0, True), (0.5, False)):
        rows = [made_row(Kind.GROUPS, embedded={"idle_entries_per_s": entries})]
        assert verdicts(rows, "idle groups, ledger entries/s") == [(f"{entries:g}", is_met)]


def test_groups_are_judged_beside_those_of_kafka() -> None:
    kafka = {"commits_per_s": 1000.0, "form_s": 8.0, "heartbeat_p99_ms": 2.0}
    rows = [made_row(Kind.GROUPS, kafka=kafka, embedded=kafka | {"form_s": 9.0, "heartbeat_p99_ms": 1.0})]
    assert verdicts(rows, "offset commits of 10,000 members") == [("1.00 x", True)]
    assert verdicts(rows, "1,000 groups formed") == [("1.12 x", False)]
    assert verdicts(rows, "heartbeats p99") == [("0.50 x", True)]


def test_a_cold_start_has_a_goal_of_its_own() -> None:
    rows = [
        made_row(Kind.IDLE, embedded={"start_s": 0.5}),
        made_row(Kind.COLD_START, embedded={"cold_start_s": 2.0}),
    ]
    assert verdicts(rows, "start of penstock run, s") == [("0.5", True)]
    assert verdicts(rows, "start of penstock run with a cold page cache") == [("2", False)]


def test_object_requests_are_those_of_the_agent_with_minio() -> None:
    rows = [made_row(Kind.OBJECT_REQUESTS, minio={"puts_per_gib": 128.0, "gets_per_object": 1.0})]
    assert verdicts(rows, "MinIO at 100 MB/s") == [("128", False)]
    assert verdicts(rows, "MinIO, three readers") == [("1", True)]


def test_transactions_are_judged_by_their_length() -> None:
    def row(transaction_ms: int, percent: float) -> RowResult:
        made = made_row(Kind.TRANSACTIONS, embedded={"overhead_percent": percent})
        return replace(made, case=replace(made.case, transaction_ms=transaction_ms))

    slow = made_row(Kind.TRANSACTIONS, kafka={"mb_per_s": 100.0}, embedded={"mb_per_s": 60.0})
    assert verdicts([slow], "transactions, slowest row") == [("0.60 x", False)]
    text = "transactions of {} ms, % below idempotent, every row <= {}"
    assert verdicts([row(10, 19), row(100, 6)], text.format(10, 20)) == [("19", True)]
    assert verdicts([row(10, 19), row(100, 6)], text.format(100, 5)) == [("6", False)]
    assert verdicts([row(1000, 6)], text.format(100, 5)) == [("not measured", None)]


def test_commits_over_many_partitions_are_judged_beside_one() -> None:
    def row(partitions: int, answered_ms: float, worst_ms: float) -> RowResult:
        figures = {"answered_p50_ms": answered_ms, "visible_max_ms": worst_ms}
        made = made_row(Kind.COMMIT, embedded=figures)
        return replace(made, case=replace(made.case, partitions=partitions))

    rows = [row(1, 2.0, 50), row(10, 9.0, 60), row(1000, 2.8, 99)]
    answered, worst = "commit answered, 1,000 partitions / one", "commit visible, worst ms"
    assert verdicts(rows, answered) == [("1.4", True)]
    assert verdicts([rows[0], row(1000, 3.2, 101)], answered) == [("1.6", False)]
    assert verdicts(rows[:1], answered) == [("not measured", None)]
    assert verdicts(rows, worst) == [("99", True)]
    assert verdicts([row(1000, 3.2, 101)], worst) == [("101", False)]


def test_the_authorizer_is_judged_beside_the_same_broker_without_it() -> None:
    produced, consumed = (
        made_row(kind, kafka={"cpu_of_unauthorized": 1.2}, embedded={"cpu_of_unauthorized": found})
        for kind, found in ((Kind.RIGHTS_PRODUCE, 1.01), (Kind.RIGHTS_CONSUME, 1.03))
    )
    text = "10,000 ACLs, CPU to {} / without an authorizer, every row <= 1.02"
    assert verdicts([produced, consumed], text.format("produce")) == [("1.01", True)]
    assert verdicts([produced, consumed], text.format("consume")) == [("1.03", False)]
