"""How the cluster rows are measured: throughput, latency beside what it is made of, and what the requests cost.

Rule: requests are those of the agents' own `/metrics`; raw PUTs and appends are measured in the same row, without a
client beside them.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.cases import Case
from benchmarks.measure.agent_kernels import load_kernels
from benchmarks.measure.exposition import STORE_REQUESTS, Samples
from benchmarks.measure.rows import WARM_UP_SHARE, Bench
from benchmarks.peers.cluster import ClusterServices, RunningCluster, increases
from benchmarks.prices import requests_usd

GIB = 1 << 30
WARM_UP_MEGABYTES = 20


def warm_up(bench: Bench, cluster: RunningCluster, case: Case) -> None:
    """Something of what will be measured, through every agent: they have just been started."""
    records = WARM_UP_MEGABYTES * 1_000_000 // case.value_bytes
    with cluster.topic(case.partitions) as topic:
        warm = replace(case, rate=-1)
        bench.tools.produce(cluster.bootstrap, topic, warm, records=records, warm_up_records=0)
        bench.tools.consume(cluster.bootstrap, [(topic, records)], cluster.cpu_seconds)

    def produce_some(some: Case, records: int) -> None:
        with cluster.topic(some.partitions) as topic:
            bench.tools.produce(cluster.bootstrap, topic, some, records=records, warm_up_records=0)

    load_kernels([agent.http for agent in cluster.agents], produce_some)


def produce(bench: Bench, cluster: RunningCluster, case: Case) -> dict[str, float]:
    """CLUSTER_PRODUCE: as fast as it goes, and what the store takes without agents, right after it."""
    figures = _produce(bench, cluster, case)
    raw = bench.minio.measure_puts(bench.scale.megabytes)["mb_per_s"]
    return figures | {"raw_mb_per_s": raw, "share_of_raw": figures["mb_per_s"] / raw}


def cost(bench: Bench, cluster: RunningCluster, case: Case) -> dict[str, float]:
    """CLUSTER_COST: at a fixed rate, then read once by one consumer."""
    return _produce(bench, cluster, case, is_read=True)


def latency(bench: Bench, services: ClusterServices, cluster: RunningCluster, case: Case) -> dict[str, float]:
    """CLUSTER_LATENCY: paced, from `send` to the answer, beside the wait for a flush, one PUT as large as the row's
    objects, and one append.
    """
    figures = _produce(bench, cluster, case)
    put_ms = bench.minio.measure_put_ms(max(1, int(figures["object_bytes"])))
    append_ms = services.append_ms()
    floor_ms = case.flush_interval_ms / 2 + put_ms + append_ms
    return figures | {
        "raw_put_ms": put_ms,
        "raw_append_ms": append_ms,
        "floor_ms": floor_ms,
        "p50_of_floor": figures["p50_ms"] / floor_ms,
    }


def _produce(bench: Bench, cluster: RunningCluster, case: Case, *, is_read: bool = False) -> dict[str, float]:
    records = bench.scale.records(case, case.peers[0])
    with cluster.topic(case.partitions) as topic:
        before, cpu_before, began = cluster.scrape(), cluster.cpu_seconds(), time.monotonic()
        send = bench.tools.produce if case.clients == 1 else bench.tools.produce_together
        figures = send(cluster.bootstrap, topic, case, records=records, warm_up_records=records // WARM_UP_SHARE)
        cpu = cluster.cpu_seconds() - cpu_before
        if is_read:
            bench.tools.consume(cluster.bootstrap, [(topic, records)], cluster.cpu_seconds)
        after = cluster.scrape()
        seconds = time.monotonic() - began
    figures["cpu_s_per_gb"] = cpu / (records * case.value_bytes / 1e9)
    return figures | request_figures(before, after, seconds=seconds)


def request_figures(before: Sequence[Samples], after: Sequence[Samples], *, seconds: float) -> dict[str, float]:
    """Requests and their price by what all agents counted: per second, and for each GiB of acknowledged batches."""
    asked = {name: increases(before, after, STORE_REQUESTS, name) for name in ("put", "get", "list", "head")}
    gib = max(increases(before, after, "penstock_produce_bytes_total"), 1.0) / GIB
    objects = max(increases(before, after, "penstock_intake_object_bytes_count"), 1.0)
    usd = requests_usd(puts=asked["put"], lists=asked["list"], gets=asked["get"], heads=asked["head"])
    return {
        "puts_per_s": asked["put"] / seconds,
        "gets_per_s": asked["get"] / seconds,
        "puts_per_gib": asked["put"] / gib,
        "gets_per_gib": asked["get"] / gib,
        "usd_per_tib": usd / gib * 1024,
        "object_bytes": increases(before, after, "penstock_intake_object_bytes_sum") / objects,
    }
