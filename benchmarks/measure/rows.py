"""How each kind of row is measured on one peer, once.

Rule: a measurement leaves its peer quiet and without the topic it made. CPU is that of the broker's processes alone.
"""

import itertools
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from urllib.request import Request, urlopen

from benchmarks.cases import MIB, Case, Kind
from benchmarks.measure import process_usage
from benchmarks.measure.agent_kernels import load_kernels
from benchmarks.peers.brokers import NO_CONFIG, Peer, PenstockPeer
from benchmarks.peers.java_tools import JavaTools
from benchmarks.peers.minio import MinioServer
from benchmarks.peers.tls import TlsListener
from benchmarks.schedule import Scale

ARCHIVE_SECONDS_MAX = 300
WARM_UP_SHARE = 5
"""A fifth of what is produced warms the client and is not counted in its figures."""
WARM_UP_MEGABYTES_MAX, WARM_UP_PRODUCE_SECONDS_MAX = 50, 1.0
TOPIC_PREFIX = "bench-"
"""Of the topics of every measurement."""
_numbers = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What measurements need beside a peer."""

    tools: JavaTools
    minio: MinioServer
    scale: Scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Topics to consume: a small one that warms the client, and the one that is measured."""

    warm_topic: str
    warm_records: int
    topic: str
    records: int
    figures: dict[str, float]
    """What loading them showed: the archive pass."""


def produce(bench: Bench, peer: Peer, case: Case, *, tls: TlsListener | None = None) -> dict[str, float]:
    """PRODUCE, PRODUCE_BULK, PRODUCE_PACED and LATENCY; through the listener that encrypts, where one is given."""
    records = bench.scale.records(case, peer.name)
    with topic_of(peer, case.partitions) as topic:
        process_usage.reset_peak(peer.pid)
        before = peer.cpu_seconds()
        figures = bench.tools.produce(
            peer.bootstrap if tls is None else tls.bootstrap,
            topic,
            case,
            records=records,
            warm_up_records=records // WARM_UP_SHARE,
            configs=NO_CONFIG if tls is None else tls.client_configs,
        )
        cpu = peer.cpu_seconds() - before
        return figures | cpu_figures(cpu, records, case.value_bytes) | memory_figures(peer)


def end_to_end(bench: Bench, peer: Peer, case: Case) -> dict[str, float]:
    records = bench.scale.records(case, peer.name)
    with topic_of(peer, case.partitions) as topic:
        return bench.tools.end_to_end(peer.bootstrap, topic, records=records, value_bytes=case.value_bytes)


@contextmanager
def loaded(bench: Bench, peer: Peer, case: Case) -> Iterator[Loaded]:
    """Topics full of records for CONSUME_MEMORY and CONSUME_ARCHIVE; in the archive where the case asks for it."""
    records = bench.scale.records(case, peer.name)
    warm_records = records // 4
    with topic_of(peer, case.partitions) as warm_topic, topic_of(peer, case.partitions) as topic:
        figures: dict[str, float] = {}
        for name, count in ((warm_topic, warm_records), (topic, records)):
            bench.tools.produce(peer.bootstrap, name, case, records=count, warm_up_records=0)
            if case.kind is Kind.CONSUME_ARCHIVE and isinstance(peer, PenstockPeer):
                figures = _archive(peer, name, count * case.value_bytes / 1e6)
        peer.settle()
        yield Loaded(warm_topic=warm_topic, warm_records=warm_records, topic=topic, records=records, figures=figures)


def consume(
    bench: Bench, peer: Peer, case: Case, topics: Loaded, *, tls: TlsListener | None = None
) -> dict[str, float]:
    """CONSUME_MEMORY and CONSUME_ARCHIVE: the second of two passes by one client; the first is over another topic."""
    if case.kind is Kind.CONSUME_ARCHIVE and isinstance(peer, PenstockPeer):
        peer.restart()
        _load_kernels(bench, peer)
        peer.settle()
    process_usage.reset_peak(peer.pid)
    _, measured = bench.tools.consume(
        peer.bootstrap if tls is None else tls.bootstrap,
        [(topics.warm_topic, topics.warm_records), (topics.topic, topics.records)],
        peer.cpu_seconds,
        configs=NO_CONFIG if tls is None else tls.client_configs,
    )
    cpu = measured.after - measured.before
    figures = measured.figures | cpu_figures(cpu, topics.records, case.value_bytes) | memory_figures(peer)
    if cpu > 0:
        figures["mb_per_cpu_s"] = topics.records * case.value_bytes / 1e6 / cpu
    peer.settle()
    return figures | topics.figures


def warm_up(bench: Bench, peer: Peer) -> None:
    """Runs through what will be measured, so that compilers and caches have seen it."""
    scale = replace(
        bench.scale,
        megabytes=min(bench.scale.megabytes, WARM_UP_MEGABYTES_MAX),
        produce_seconds=min(bench.scale.produce_seconds, WARM_UP_PRODUCE_SECONDS_MAX),
    )
    warm = replace(bench, scale=scale)
    for case in (
        Case(kind=Kind.PRODUCE, value_bytes=1000, batch_bytes=MIB),
        Case(kind=Kind.PRODUCE, value_bytes=1000, partitions=16),
    ):
        produce(warm, peer, case)
    case = Case(kind=Kind.CONSUME_MEMORY, value_bytes=1000, compression="zstd", batch_bytes=MIB)
    with loaded(warm, peer, case) as topics:
        consume(warm, peer, case, topics)
    if isinstance(peer, PenstockPeer):
        _load_kernels(bench, peer)


def _load_kernels(bench: Bench, peer: PenstockPeer) -> None:
    def produce_some(case: Case, records: int) -> None:
        with topic_of(peer, case.partitions) as topic:
            bench.tools.produce(peer.bootstrap, topic, case, records=records, warm_up_records=0)

    load_kernels([peer.http], produce_some)


@contextmanager
def topic_of(peer: Peer, partitions: int) -> Iterator[str]:
    """A new topic's name; it is deleted at the end."""
    name = f"{TOPIC_PREFIX}{next(_numbers)}"
    peer.create_topic(name, partitions)
    try:
        yield name
    finally:
        peer.delete_topic(name)
        peer.settle()


def _archive(peer: PenstockPeer, topic: str, megabytes: float) -> dict[str, float]:
    """Archives a topic: its speed, and the speed of one core at it."""
    body = json.dumps({"topics": [topic], "wait": True}).encode()
    request = Request(f"http://{peer.http}/api/archive", data=body, headers={"Content-Type": "application/json"})
    before, began = peer.cpu_seconds(), time.monotonic()
    with urlopen(request, timeout=ARCHIVE_SECONDS_MAX) as response:
        response.read()
    seconds, cpu = time.monotonic() - began, peer.cpu_seconds() - before
    return {"archive_mb_per_s": megabytes / seconds, "archive_mb_per_cpu_s": megabytes / max(cpu, 0.01)}


def cpu_figures(cpu_seconds: float, records: int, value_bytes: int) -> dict[str, float]:
    """What a broker's CPU seconds were for each GB and each record."""
    return {
        "cpu_s_per_gb": cpu_seconds / (records * value_bytes / 1e9),
        "cpu_us_per_record": cpu_seconds / records * 1e6,
    }


def memory_figures(peer: Peer) -> dict[str, float]:
    """The most memory that a peer took since its peak was reset."""
    return {"peak_rss_mib": process_usage.memory_mib(peer.pid, "VmHWM")}
