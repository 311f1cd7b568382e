"""Conversations of an administrator: topics, configs, records and the cluster, by Kafka's command line tools.

Rule: what a tool prints is looked at for what an administrator would look for, no closer.
"""

import json
import re
from collections.abc import Callable

from tests.compat.kafka_java.bench import Bench, assert_same, assert_told, until


def topics(bench: Bench) -> None:
    topic = bench.make_topic(2, "retention.ms=600000")
    assert_told(bench.ask("topics", "--list"), topic)
    assert_told(bench.ask("topics", "--describe", "--topic", topic), "PartitionCount: 2", "retention.ms=600000")
    bench.ask("topics", "--alter", "--topic", topic, "--partitions", 5)
    assert_told(bench.ask("topics", "--describe", "--topic", topic), "PartitionCount: 5")
    bench.ask("topics", "--create", "--if-not-exists", "--topic", topic)
    bench.ask("topics", "--delete", "--topic", topic)
    until("the topic's end", lambda: topic not in bench.ask("topics", "--list").split())


def configs(bench: Bench) -> None:
    entity = ("--entity-type", "topics", "--entity-name", bench.make_topic())
    added = "retention.ms=12345,cleanup.policy=[compact,delete]"
    bench.ask("configs", "--alter", *entity, "--add-config", added)
    assert_told(bench.ask("configs", "--describe", *entity), "retention.ms=12345", "cleanup.policy=compact,delete")
    bench.ask("configs", "--alter", *entity, "--delete-config", "retention.ms")
    text = bench.ask("configs", "--describe", *entity)
    assert "retention.ms" not in text, text
    assert_told(bench.ask("configs", "--describe", "--all", *entity), "max.message.bytes")


def configs_of_a_broker(bench: Bench) -> None:
    found = re.search(r"id: (\d+)", bench.ask("api-versions"))
    assert found is not None, "no broker is listed"
    entity = ("--entity-type", "brokers")
    assert_told(bench.ask("configs", "--describe", "--all", *entity, "--entity-name", found[1]), "log.retention")
    bench.ask("configs", "--describe", *entity, "--entity-default")


def round_trip(bench: Bench) -> None:
    topic = bench.make_topic(3)
    values = [f"value-{number}" for number in range(500)]
    bench.write(topic, values, "--compression-codec", "zstd")
    assert_same(bench.read(topic, len(values)), values, "the console consumer's values")
    ends, starts = (_sum_of_offsets(bench.ask("offsets", "--topic", topic, *at)) for at in ((), ("--time", "earliest")))
    assert (starts, ends) == (0, len(values)), f"offsets from {starts} to {ends}"
    bench.ask("offsets", "--topic", topic, "--time", "max-timestamp")
    bench.ask("offsets", "--topic", topic, "--time", "1")


def headers_and_keys(bench: Bench) -> None:
    topic = bench.make_topic()
    properties = ("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")
    bench.write(topic, ["h1:x,h2:y\tk1\tv1", "h3:z\tk2\tv2"], *properties)
    shown = [
        word
        for name in ("key", "headers", "offset", "partition")
        for word in ("--formatter-property", f"print.{name}=true")
    ]
    text = bench.ask("console-consumer", "--topic", topic, "--from-beginning", "--max-messages", 2, *shown)
    assert_told(text, "h1:x,h2:y", "k2", "Offset:1")


def delete_records(bench: Bench) -> None:
    topic = bench.make_topic()
    bench.write(topic, [str(number) for number in range(50)])
    file = bench.folder / "delete-records.json"
    rows = {"partitions": [{"topic": topic, "partition": 0, "offset": 20}], "version": 1}
    file.write_text(json.dumps(rows), encoding="utf-8")
    assert_told(bench.ask("delete-records", "--offset-json-file", file), "low_watermark: 20")
    left = [str(number) for number in range(20, 50)]
    assert_same(bench.read(topic, len(left)), left, "what was left")


def cluster(bench: Bench) -> None:
    assert_told(bench.call("cluster", "cluster-id", "--bootstrap-server", bench.target.bootstrap), "Cluster ID:")
    text = bench.ask("api-versions")
    for api in ("Produce", "Fetch", "ConsumerGroupHeartbeat"):
        assert re.search(rf"\b{api}\(\d+\): (?!UNSUPPORTED)", text), f"{api} is not served"


def features(bench: Bench) -> None:
    text = bench.call("features", "--bootstrap-server", bench.target.bootstrap, "describe")
    found = re.search(r"transaction\.version\s.*FinalizedVersionLevel: 2", text)
    assert found is not None, f"transaction.version 2 not in: {text}"


def log_directories(bench: Bench) -> None:
    topic = bench.make_topic()
    assert_told(bench.ask("log-dirs", "--describe", "--topic-list", topic), topic)


def _sum_of_offsets(text: str) -> int:
    """Of `kafka-get-offsets`: lines of topic:partition:offset."""
    return sum(int(line.rpartition(":")[2]) for line in text.split())


CONVERSATIONS: dict[str, Callable[[Bench], None]] = {
    "cli.topics": topics,
    "cli.configs": configs,
    "cli.configs-broker": configs_of_a_broker,
    "cli.round-trip": round_trip,
    "cli.headers-keys": headers_and_keys,
    "cli.delete-records": delete_records,
    "cli.cluster": cluster,
    "cli.features": features,
    "cli.log-dirs": log_directories,
}
