"""What should be reached, and whether it was: one line per goal.

Rule: pure. A goal whose rows were not measured says so; it is neither met nor missed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.cases import Kind, PeerName
from benchmarks.report.results import RowResult, ratios
from benchmarks.report.statistics import geometric_mean, ratio

PRODUCE_MEAN_MIN, PRODUCE_ROW_MIN, SUSTAINED_MIN = 1.0, 0.8, 0.8
CPU_PRODUCE_MAX, RATE_SHARE_MIN = 1.0, 0.9
RAW_PUT_SHARE_MIN = 0.8
CONSUME_MIN, CPU_CONSUME_MAX = 1.3, 0.9
ARCHIVE_CONSUME_MIN, ARCHIVE_CONSUME_MB_PER_CPU_S_MIN = 0.8, 300.0
LATENCY_P50_MS_MAX, LATENCY_P99_MS_MAX, END_TO_END_P50_MS_MAX = 2.0, 5.0, 2.0
STEADY_WORKLOAD, STEADY_P99_MS_MAX = "simple-workload", 15.0
"""Of 10,000 records a second, until they are acknowledged."""
ARCHIVE_MB_PER_CPU_S_MIN = 250.0
CHUNKS_PER_S_MIN, LOAD_SECONDS_MAX, CHUNK_BYTES_MAX = 1_000_000.0, 5.0, 250.0
IDLE_CPU_PERCENT_MAX, IDLE_RSS_MIB_MAX, IDLE_OBJECT_REQUESTS_MAX, START_SECONDS_MAX = 0.2, 70.0, 0.0, 0.5
COLD_START_SECONDS_MAX = 1.5
IDLE_GROUPS_ENTRIES_MAX = 0.0
GROUP_COMMITS_MIN, GROUPS_FORMED_MAX, HEARTBEAT_P99_MAX = 1.0, 1.0, 1.0
"""Beside Kafka's."""
TRANSACTIONS_MIN = 1.0
TRANSACTION_OVERHEAD_PERCENT_MAX = {10: 20.0, 100: 5.0}
"""By how many milliseconds a transaction lasts."""
COMMIT_OF_ONE_PARTITION_MAX, COMMIT_VISIBLE_MS_MAX = 1.5, 100.0
"""1,000 partitions beside one; the worst until everybody can read it."""
TLS_CPU_MAX, TLS_SHARE_MIN = 1.0, 0.9
"""Beside what TLS costs Apache Kafka."""
HANDSHAKE_P99_MS_MAX, HANDSHAKE_LOOP_MS_MAX, IDLE_TLS_KIB_MAX, SECURE_START_SECONDS_MAX = 20.0, 1.0, 100.0, 1.7
"""While 600 clients shake hands at once."""
AUTHORIZED_CPU_MAX = 1.02
"""Beside the same broker without an authorizer."""
RELAY_ADDED_MS_MAX = 2.0
PUTS_PER_GIB_MAX, GETS_PER_OBJECT_MAX = 60.0, 1.0
"""With the default flush interval, 100 MB/s on one agent; three readers."""
LATENCY_OF_FLOOR_MAX = 1.2
"""Of clusters: p50 beside the wait for a flush, a PUT and an append."""
EXPRESS_P50_MS_MAX = {1: 10.0, 3: 20.0}
"""Where nothing is waited for, by the number of agents."""
CLUSTER_PUTS_PER_GIB_MAX = {1: 230.0, 3: 300.0}
"""At 20 MB/s with the default flush interval, by the number of agents."""
FLUSH_INTERVAL_MS_DEFAULT = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """`measured` in words; `is_met` None where nothing was measured."""

    text: str
    measured: str
    is_met: bool | None


def judge(rows: Sequence[RowResult]) -> Iterator[Goal]:
    """The goals in the order of the table, for the embedded broker unless they name MinIO."""
    yield from _produce(_of(rows, Kind.PRODUCE), _of(rows, Kind.PRODUCE_PACED))
    sustained = ratios(_of(rows, Kind.PRODUCE_SUSTAINED), PeerName.EMBEDDED, "mb_per_s")
    yield _smallest("produce sustained, with background work, x Kafka", sustained, SUSTAINED_MIN)
    yield _raw_puts(rows)
    memory, archive = _of(rows, Kind.CONSUME_MEMORY), _of(rows, Kind.CONSUME_ARCHIVE)
    yield _mean_at_least("consume from memory", ratios(memory, PeerName.EMBEDDED, "mb_per_s"), CONSUME_MIN)
    cpu = ratios(memory, PeerName.EMBEDDED, "cpu_s_per_gb")
    yield _mean_at_most("CPU to consume from memory", cpu, CPU_CONSUME_MAX)
    share = ratios(archive, PeerName.EMBEDDED, "mb_per_s")
    yield _mean_at_least("consume from the cold archive, Kafka from memory", share, ARCHIVE_CONSUME_MIN)
    for text, metric, least in (
        ("consume from the cold archive, MB/s a core", "mb_per_cpu_s", ARCHIVE_CONSUME_MB_PER_CPU_S_MIN),
        ("archive pass, MB/s a core", "archive_mb_per_cpu_s", ARCHIVE_MB_PER_CPU_S_MIN),
    ):
        yield _smallest(text, _figures(archive, metric), least)
    metadata = _of(rows, Kind.METADATA)
    yield _smallest("chunk references applied a second", _figures(metadata, "chunks_per_s"), CHUNKS_PER_S_MIN)
    latency, end_to_end, idle = _of(rows, Kind.LATENCY), _of(rows, Kind.END_TO_END), _of(rows, Kind.IDLE)
    for text, found, metric, most in (
        ("load of a million chunks, s", metadata, "load_s", LOAD_SECONDS_MAX),
        ("memory of a chunk, bytes", metadata, "memory_bytes_per_chunk", CHUNK_BYTES_MAX),
        ("latency at 1,000 records/s, p50 ms", latency, "p50_ms", LATENCY_P50_MS_MAX),
        ("latency at 1,000 records/s, p99 ms", latency, "p99_ms", LATENCY_P99_MS_MAX),
        ("10,000 records/s, acknowledged p99 ms", _steady(rows), "publish_p99_ms", STEADY_P99_MS_MAX),
        ("end to end, p50 ms", end_to_end, "p50_ms", END_TO_END_P50_MS_MAX),
        ("idle, % of a core", idle, "cpu_percent", IDLE_CPU_PERCENT_MAX),
        ("idle, MiB resident", idle, "rss_mib", IDLE_RSS_MIB_MAX),
        ("idle, object requests", idle, "object_requests", IDLE_OBJECT_REQUESTS_MAX),
        ("start of penstock run, s", idle, "start_s", START_SECONDS_MAX),
        (
            "start of penstock run with a cold page cache, s",
            _of(rows, Kind.COLD_START),
            "cold_start_s",
            COLD_START_SECONDS_MAX,
        ),
    ):
        yield _largest(text, _figures(found, metric), most)
    tls = [*_of(rows, Kind.TLS_PRODUCE), *_of(rows, Kind.TLS_CONSUME)]
    added = ratios(tls, PeerName.EMBEDDED, "tls_cpu_s_per_gb")
    yield _mean_at_most("CPU that TLS adds", added, TLS_CPU_MAX)
    share = ratios(tls, PeerName.EMBEDDED, "of_plaintext")
    yield _mean_at_least("throughput over TLS beside plaintext", share, TLS_SHARE_MIN)
    handshakes = _of(rows, Kind.TLS_HANDSHAKES)
    for text, found, metric, most in (
        ("p99 ms of a producer while 600 clients shake hands", handshakes, "p99_ms", HANDSHAKE_P99_MS_MAX),
        ("ms of the loop for a handshake of mutual TLS", handshakes, "handshake_loop_ms", HANDSHAKE_LOOP_MS_MAX),
        ("handshakes that failed", handshakes, "handshakes_failed", 0.0),
        ("KiB of an idle TLS connection above plaintext", handshakes, "idle_kib", IDLE_TLS_KIB_MAX),
        ("start of penstock run --secure, s", _of(rows, Kind.TLS_START), "start_s", SECURE_START_SECONDS_MAX),
    ):
        yield _largest(text, _figures(found, metric), most)
    for text, kind in (("produce", Kind.RIGHTS_PRODUCE), ("consume", Kind.RIGHTS_CONSUME)):
        authorized = _figures(_of(rows, kind), "cpu_of_unauthorized")
        yield _largest(f"10,000 ACLs, CPU to {text} / without an authorizer", authorized, AUTHORIZED_CPU_MAX)
    requests = _of(rows, Kind.OBJECT_REQUESTS)
    for text, metric, most in (
        ("MinIO at 100 MB/s, flush of 250 ms, PUTs per GiB", "puts_per_gib", PUTS_PER_GIB_MAX),
        ("MinIO, three readers after a restart, GETs per object", "gets_per_object", GETS_PER_OBJECT_MAX),
    ):
        yield _largest(text, _figures(requests, metric, PeerName.MINIO), most)
    yield from _groups(_of(rows, Kind.GROUPS))
    yield from _transactions(rows)
    yield from _clusters(rows)


def _groups(rows: Sequence[RowResult]) -> Iterator[Goal]:
    commits, formed, heartbeats = (
        ratios(rows, PeerName.EMBEDDED, metric) for metric in ("commits_per_s", "form_s", "heartbeat_p99_ms")
    )
    yield _mean_at_least("offset commits of 10,000 members", commits, GROUP_COMMITS_MIN)
    yield _mean_at_most("1,000 groups formed", formed, GROUPS_FORMED_MAX)
    yield _mean_at_most("heartbeats p99", heartbeats, HEARTBEAT_P99_MAX)
    yield _largest("idle groups, ledger entries/s", _figures(rows, "idle_entries_per_s"), IDLE_GROUPS_ENTRIES_MAX)


def _transactions(rows: Sequence[RowResult]) -> Iterator[Goal]:
    throughput = ratios(_of(rows, Kind.TRANSACTIONS), PeerName.EMBEDDED, "mb_per_s")
    yield Goal(
        text=f"transactions, slowest row >= {TRANSACTIONS_MIN} x Kafka",
        measured=f"{min(throughput):.2f} x" if throughput else "not measured",
        is_met=min(throughput) >= TRANSACTIONS_MIN if throughput else None,
    )
    for peer, where in ((PeerName.EMBEDDED, ""), (PeerName.MINIO, " on MinIO")):
        for transaction_ms, most in TRANSACTION_OVERHEAD_PERCENT_MAX.items():
            of_length = [row for row in _of(rows, Kind.TRANSACTIONS) if row.case.transaction_ms == transaction_ms]
            overhead = _figures(of_length, "overhead_percent", peer)
            yield _largest(f"transactions of {transaction_ms} ms{where}, % below idempotent", overhead, most)
        commits = {row.case.partitions: row for row in _of(rows, Kind.COMMIT)}
        for metric, what in (("answered_p50_ms", "answered"), ("visible_p50_ms", "visible")):
            one, many = (commits.get(partitions) for partitions in (1, 1000))
            share = None
            if one is not None and many is not None:
                share = ratio(many.figure(peer, metric), one.figure(peer, metric))
            text = f"commit{where} {what}, 1,000 partitions / one"
            yield _largest(text, [] if share is None else [share], COMMIT_OF_ONE_PARTITION_MAX)
        worst = _figures(list(commits.values()), "visible_max_ms", peer)
        yield _largest(f"commit{where} visible, worst ms", worst, COMMIT_VISIBLE_MS_MAX)


def _clusters(rows: Sequence[RowResult]) -> Iterator[Goal]:
    """One agent, and every count of agents, each on its own."""
    share = _figures(_of(rows, Kind.CLUSTER_PRODUCE), "share_of_raw", PeerName.CLUSTER)
    yield _smallest("cluster, produce beside plain 8 MiB PUTs", share, RAW_PUT_SHARE_MIN)
    latency = _of(rows, Kind.CLUSTER_LATENCY)
    waiting = [row for row in latency if row.case.flush_interval_ms]
    express = [row for row in latency if not row.case.flush_interval_ms]
    floor = _figures(waiting, "p50_of_floor", PeerName.CLUSTER)
    yield _largest("cluster, latency p50 / (wait + PUT + append)", floor, LATENCY_OF_FLOOR_MAX)
    costs = [row for row in _of(rows, Kind.CLUSTER_COST) if row.case.flush_interval_ms == FLUSH_INTERVAL_MS_DEFAULT]
    for agents, name in ((1, "one agent"), (3, "three agents")):
        p50 = _figures(_with_agents(express, agents), "p50_ms", PeerName.CLUSTER)
        yield _largest(f"cluster of {name}, express latency p50 ms", p50, EXPRESS_P50_MS_MAX[agents])
        puts = _figures(_with_agents(costs, agents), "puts_per_gib", PeerName.CLUSTER)
        yield _largest(f"cluster of {name} at 20 MB/s, PUTs per GiB", puts, CLUSTER_PUTS_PER_GIB_MAX[agents])
    added = _figures(_of(rows, Kind.CLUSTER_RELAY), "heartbeat_added_ms", PeerName.CLUSTER)
    yield _largest("one address, ms that a relay adds to a heartbeat", added, RELAY_ADDED_MS_MAX)


def _produce(fast: Sequence[RowResult], paced: Sequence[RowResult]) -> Iterator[Goal]:
    values = ratios(fast, PeerName.EMBEDDED, "mb_per_s")
    yield _mean_at_least("produce", values, PRODUCE_MEAN_MIN)
    yield Goal(
        text=f"produce, slowest row >= {PRODUCE_ROW_MIN} x Kafka",
        measured=f"{min(values):.2f} x" if values else "not measured",
        is_met=min(values) >= PRODUCE_ROW_MIN if values else None,
    )
    cpu = ratios([row for row in paced if _is_rate_held(row)], PeerName.EMBEDDED, "cpu_s_per_gb")
    yield _mean_at_most("CPU to produce at an equal rate, 16 KiB batches", cpu, CPU_PRODUCE_MAX)


def _is_rate_held(row: RowResult) -> bool:
    """Whether both brokers followed: CPU at different rates says nothing."""
    wanted = row.case.rate * row.case.value_bytes / 1e6 * RATE_SHARE_MIN
    rates = (row.figure(peer, "mb_per_s") for peer in (PeerName.KAFKA, PeerName.EMBEDDED))
    return all(rate is not None and rate >= wanted for rate in rates)


def _raw_puts(rows: Sequence[RowResult]) -> Goal:
    """Beside the best row, for the slower ones may be bound by the client."""
    raw = _figures(_of(rows, Kind.RAW_PUT), "mb_per_s", PeerName.MINIO)
    produced = [*_of(rows, Kind.PRODUCE), *_of(rows, Kind.PRODUCE_BULK)]
    ours = _figures(produced, "mb_per_s", PeerName.MINIO)
    share = ratio(max(ours, default=None), max(raw, default=None))
    return Goal(
        text=f"produce through MinIO, best row >= {RAW_PUT_SHARE_MIN} x raw 8 MiB PUTs",
        measured="not measured" if share is None else f"{share:.2f} x",
        is_met=None if share is None else share >= RAW_PUT_SHARE_MIN,
    )


def _steady(rows: Sequence[RowResult]) -> list[RowResult]:
    return [row for row in _of(rows, Kind.OPENMESSAGING) if row.case.workload == STEADY_WORKLOAD]


def _with_agents(rows: Sequence[RowResult], agents: int) -> list[RowResult]:
    return [row for row in rows if row.case.agents == agents]


def _of(rows: Sequence[RowResult], kind: Kind) -> list[RowResult]:
    return [row for row in rows if row.case.kind is kind]


def _figures(rows: Sequence[RowResult], metric: str, peer: PeerName = PeerName.EMBEDDED) -> list[float]:
    found = (row.figure(peer, metric) for row in rows)
    return [value for value in found if value is not None]


def _mean_at_least(text: str, values: Sequence[float], least: float) -> Goal:
    mean = geometric_mean(values)
    return Goal(
        text=f"{text}, geometric mean >= {least} x Kafka",
        measured="not measured" if mean is None else f"{mean:.2f} x",
        is_met=None if mean is None else mean >= least,
    )


def _mean_at_most(text: str, values: Sequence[float], most: float) -> Goal:
    mean = geometric_mean(values)
    return Goal(
        text=f"{text}, geometric mean <= {most} x Kafka",
        measured="not measured" if mean is None else f"{mean:.2f} x",
        is_met=None if mean is None else mean <= most,
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _smallest(text: str, values: Sequence[float], least: float) -> Goal:
    return Goal(
        text=f"{text}, every row >= {_number(least)}",
        measured=_number(min(values)) if values else "not measured",
        is_met=min(values) >= least if values else None,
    )


def _largest(text: str, values: Sequence[float], most: float) -> Goal:
    return Goal(
        text=f"{text}, every row <= {most:g}",
        measured=_number(max(values)) if values else "not measured",
        is_met=max(values) <= most if values else None,
    )
