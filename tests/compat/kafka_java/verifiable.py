"""Kafka's verifiable clients, its test of clients' compatibility, and its performance tools.

Rule: every record that the producer saw acknowledged is consumed once, no more and no less.
"""

import json
import re
from collections.abc import Callable
from functools import partial

from tests.compat.kafka_java.bench import Bench, assert_same
from tests.support.processes import Process

RECORDS = 20_000
SECONDS_MAX = 120.0
SUPPORTED = (
    "offsets-for-times",
    "cluster-id",
    "create-topics",
    "describe-acls",
    "describe-configs",
    "idempotent-producer",
)


def consume(bench: Bench, *options: str, consumers: int = 2, is_static: bool = False) -> None:
    """Consumers of one group read what the verifiable producer writes meanwhile."""
    topic, group = bench.make_topic(4), bench.name("group")
    running: list[Process] = []
    for number in range(consumers):
        words = ("--topic", topic, "--group-id", group, "--reset-policy", "earliest", "--verbose", *options)
        static = ("--group-instance-id", f"instance-{number}") if is_static else ()
        running.append(bench.start("verifiable-consumer", *words, *static))
    acknowledged = produce(bench, topic)
    seen: list[object] = []

    def is_all_seen() -> bool:
        for consumer in running:
            seen.extend(row["value"] for row in map(json.loads, consumer.read_lines()) if row["name"] == "record_data")
        return len(seen) >= len(acknowledged)

    running[0].wait_until(is_all_seen, f"{len(acknowledged)} records", seconds_max=SECONDS_MAX)
    assert_same(seen, acknowledged, "consumed records")


def share(bench: Bench) -> None:
    """A member of a share group acknowledges every record."""
    topic, group = bench.make_topic(2), bench.name("group")
    entity = ("--entity-type", "groups", "--entity-name", group)
    bench.ask("configs", "--alter", *entity, "--add-config", "share.auto.offset.reset=earliest")
    words = ("--topic", topic, "--group-id", group, "--acknowledgement-mode", "sync")
    consumer = bench.start("verifiable-share-consumer", *words)
    produce(bench, topic)
    counts: list[int] = []

    def is_all_acknowledged() -> bool:
        rows = map(json.loads, consumer.read_lines())
        counts.extend(row.get("count", 0) for row in rows if row["name"] == "offsets_acknowledged")
        return sum(counts) >= RECORDS

    consumer.wait_until(is_all_acknowledged, f"{RECORDS} acknowledged records", seconds_max=SECONDS_MAX)


def produce(bench: Bench, topic: str) -> list[object]:
    """Writes `RECORDS` records; returns the values that were acknowledged, which must be all."""
    words = ("--topic", topic, "--max-messages", RECORDS, "--throughput", -1, "--acks", -1)
    broker = ("--bootstrap-server", bench.target.bootstrap)
    text = bench.call("verifiable-producer", *broker, *words, seconds_max=SECONDS_MAX)
    acknowledged = [json.loads(line)["value"] for line in text.splitlines() if '"producer_send_success"' in line]
    assert len(acknowledged) == RECORDS, f"{len(acknowledged)} of {RECORDS} acknowledged"
    return acknowledged


def compatibility(bench: Bench) -> None:
    """Kafka's own test of what a client finds supported."""
    flags = [word for name in SUPPORTED for word in (f"--{name}-supported", "True")]
    flags += ["--expect-record-too-large-exception", "False"]
    topic = bench.make_topic()
    bench.ask("compatibility", "--topic", topic, *flags, "--num-cluster-nodes", bench.target.agents_count)


def performance(bench: Bench) -> None:
    """The performance tools come to their ends, and read as much as they wrote."""
    topic, records = bench.make_topic(3), 100_000
    broker = ("--bootstrap-server", bench.target.bootstrap, "--topic", topic)
    size = ("--num-records", records, "--record-size", 200, "--throughput", -1)
    codec = ("--command-property", "compression.type=lz4")
    bench.call("produce-perf", *broker, *size, *codec, seconds_max=SECONDS_MAX)
    text = bench.call("consume-perf", *broker, "--num-records", records, seconds_max=SECONDS_MAX)
    assert re.search(r"\b100\d{3}\b", text), text
    few = ("--num-records", 500, "--producer-acks", "all", "--record-size", 100)
    bench.call("latency", *broker, *few, seconds_max=SECONDS_MAX)


CONVERSATIONS: dict[str, Callable[[Bench], None]] = {
    "verify.classic": lambda bench: consume(bench, "--group-protocol", "classic"),
    "verify.consumer": lambda bench: consume(bench, "--group-protocol", "consumer"),
    "verify.static": partial(consume, is_static=True),
    "verify.cooperative": lambda bench: consume(
        bench, "--assignment-strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    ),
    "verify.share": share,
    "verify.compatibility": compatibility,
    "verify.performance": performance,
}
