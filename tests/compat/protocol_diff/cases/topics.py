"""Metadata, and topics as they are created, deleted, grown and trimmed."""

from typing import Any

from tests.compat.protocol_diff.cases.pieces import (
    ABSENT,
    NOBODY,
    committed,
    configs,
    create,
    fetch,
    metadata,
    offsets,
    produce,
    records,
    topic,
)
from tests.compat.protocol_diff.steps import Cases, Step, T, V

CASES = Cases()

# Metadata

for v in range(14):
    CASES.add(f"metadata.v{v}", topic(partitions=2), metadata([{"Name": T()}], v))
CASES.add("metadata.unknown", metadata([{"Name": ABSENT}]))
CASES.add("metadata.none", metadata([], mask=("Brokers",)))
CASES.add(
    "metadata.bad-name",
    metadata([{"Name": "a b"}]),
    metadata([{"Name": "."}]),
    metadata([{"Name": ""}]),
    metadata([{"Name": "x" * 250}]),
)
CASES.add("metadata.bad-name-auto", metadata([{"Name": "a b"}], auto=True), metadata([{"Name": "x" * 250}], auto=True))
CASES.add("metadata.auto-create", metadata([{"Name": T("auto")}], auto=True, until=("Topics.0.ErrorCode", 0)))
CASES.add("metadata.by-id", topic(), metadata([{"Name": None, "TopicId": V("id_t")}]))
CASES.add("metadata.by-unknown-id", metadata([{"Name": None, "TopicId": NOBODY}]))
CASES.add("metadata.by-zero-id", metadata([{"Name": None}]))
CASES.add("metadata.name-and-id", topic(), metadata([{"Name": T(), "TopicId": NOBODY}]))
CASES.add(
    "metadata.operations",
    topic(),
    Step("Metadata", 12, {"Topics": [{"Name": T()}], "IncludeTopicAuthorizedOperations": True}),
)
CASES.add(
    "metadata.cluster-operations-v8", Step("Metadata", 8, {"Topics": [], "IncludeClusterAuthorizedOperations": True})
)
CASES.add("metadata.same-name-twice", topic(), metadata([{"Name": T()}, {"Name": T()}]))
CASES.add(
    "metadata.after-delete",
    topic(),
    Step("DeleteTopics", 6, {"Topics": [{"Name": T()}], "TimeoutMs": 5000}),
    metadata([{"Name": T()}], until=("Topics.0.ErrorCode", 3)),
    metadata([{"Name": None, "TopicId": V("id_t")}]),
)
CASES.add(
    "metadata.partitions",
    topic(partitions=3),
    Step("DescribeTopicPartitions", 0, {"Topics": [{"Name": T()}], "ResponsePartitionLimit": 2}),
)
CASES.add(
    "metadata.partitions-cursor",
    topic(partitions=3),
    Step(
        "DescribeTopicPartitions",
        0,
        {"Topics": [{"Name": T()}], "ResponsePartitionLimit": 2, "Cursor": {"TopicName": T(), "PartitionIndex": 1}},
    ),
)
CASES.add(
    "metadata.partitions-unknown",
    Step("DescribeTopicPartitions", 0, {"Topics": [{"Name": ABSENT}], "ResponsePartitionLimit": 2}),
)
CASES.add(
    "metadata.cluster",
    Step("DescribeCluster", 0, {}, mask=("Brokers",)),
    Step("DescribeCluster", 2, {"IncludeClusterAuthorizedOperations": True}, mask=("Brokers",)),
)

# CreateTopics

for v in range(2, 8):
    CASES.add(f"create.v{v}", create({}, version=v, mask=("Configs",)))
CASES.add("create.exists", topic(), create({}))
CASES.add(
    "create.bad-names",
    create({"Name": "a b"}, {"Name": ""}, {"Name": "."}, {"Name": ".."}, {"Name": "x" * 250}, {"Name": "caf\u00e9"}),
)
CASES.add("create.long-name", create({"Name": "x" * 249}, dry=True, mask=("Configs",)))
CASES.add("create.zero-partitions", create({"NumPartitions": 0}))
CASES.add("create.negative-partitions", create({"NumPartitions": -2}))
CASES.add("create.zero-replicas", create({"ReplicationFactor": 0}))
CASES.add("create.defaults", create({"NumPartitions": -1, "ReplicationFactor": -1}, mask=("Configs",)))
CASES.add("create.defaults-v2", create({"NumPartitions": -1, "ReplicationFactor": -1}, version=2))
CASES.add("create.bad-config-name", create({"Configs": [{"Name": "no.such.config", "Value": "1"}]}))
CASES.add("create.bad-config-value", create({"Configs": [{"Name": "retention.ms", "Value": "soon"}]}))
CASES.add("create.null-config-value", create({"Configs": [{"Name": "retention.ms", "Value": None}]}))
CASES.add("create.bad-cleanup-policy", create({"Configs": [{"Name": "cleanup.policy", "Value": "shred"}]}))
CASES.add("create.config-out-of-range", create({"Configs": [{"Name": "max.message.bytes", "Value": "-1"}]}))
CASES.add("create.same-twice", create({}, {}))
CASES.add("create.validate-only", create({}, dry=True, mask=("Configs",)), metadata([{"Name": T()}]))
CASES.add("create.validate-only-bad", create({"NumPartitions": 0}, dry=True))
CASES.add(
    "create.config-echo",
    create({"Configs": [{"Name": "retention.ms", "Value": "12345"}]}, mask=("Configs",)),
    configs(2, T(), ["retention.ms"]),
)
CASES.add(
    "create.period-collision",
    create({"Name": T("a.b")}, quiet=True),
    metadata([{"Name": T("a.b")}], quiet=True, until=("Topics.0.ErrorCode", 0)),
    create({"Name": T("a_b")}),
)
CASES.add("create.internal-name", committed(), create({"Name": "__consumer_offsets"}))
CASES.add(
    "create.assignment",
    create({"NumPartitions": -1, "ReplicationFactor": -1, "Assignments": [{"PartitionIndex": 0, "BrokerIds": [9999]}]}),
)
CASES.add(
    "create.assignment-and-count",
    create({"NumPartitions": 1, "ReplicationFactor": 1, "Assignments": [{"PartitionIndex": 0, "BrokerIds": [1]}]}),
)
CASES.add(
    "create.assignment-gap",
    create({"NumPartitions": -1, "ReplicationFactor": -1, "Assignments": [{"PartitionIndex": 1, "BrokerIds": [1]}]}),
)
CASES.add(
    "create.several",
    create(
        {"Name": T("a")}, {"Name": T("b"), "NumPartitions": 0}, {"Name": T("c"), "NumPartitions": 3}, mask=("Configs",)
    ),
)

# DeleteTopics

for v in range(1, 6):
    CASES.add(f"delete.v{v}", topic(), Step("DeleteTopics", v, {"TopicNames": [T()], "TimeoutMs": 5000}))
CASES.add("delete.v6", topic(), Step("DeleteTopics", 6, {"Topics": [{"Name": T()}], "TimeoutMs": 5000}))
CASES.add(
    "delete.by-id",
    topic(),
    Step("DeleteTopics", 6, {"Topics": [{"Name": None, "TopicId": V("id_t")}], "TimeoutMs": 5000}),
)
CASES.add("delete.unknown", Step("DeleteTopics", 5, {"TopicNames": [ABSENT], "TimeoutMs": 5000}))
CASES.add(
    "delete.unknown-id", Step("DeleteTopics", 6, {"Topics": [{"Name": None, "TopicId": NOBODY}], "TimeoutMs": 5000})
)
CASES.add("delete.no-name-no-id", Step("DeleteTopics", 6, {"Topics": [{"Name": None}], "TimeoutMs": 5000}))
CASES.add(
    "delete.name-and-id",
    topic(),
    Step("DeleteTopics", 6, {"Topics": [{"Name": T(), "TopicId": V("id_t")}], "TimeoutMs": 5000}),
)
CASES.add(
    "delete.same-twice", topic(), Step("DeleteTopics", 6, {"Topics": [{"Name": T()}, {"Name": T()}], "TimeoutMs": 5000})
)
CASES.add(
    "delete.name-and-its-id",
    topic(),
    Step("DeleteTopics", 6, {"Topics": [{"Name": T()}, {"Name": None, "TopicId": V("id_t")}], "TimeoutMs": 5000}),
)
CASES.add(
    "delete.recreate",
    topic(),
    produce(records(2), quiet=True),
    Step("DeleteTopics", 5, {"TopicNames": [T()], "TimeoutMs": 5000}),
    metadata([{"Name": T()}], until=("Topics.0.ErrorCode", 3)),
    topic(),
    offsets(-1),
)

# CreatePartitions


def grow(
    count: int, *, name: Any = T(), assign: Any = None, dry: bool = False, version: int = 3, twice: bool = False
) -> Step:
    one = {"Name": name, "Count": count, "Assignments": assign}
    return Step(
        "CreatePartitions", version, {"Topics": [one, one] if twice else [one], "TimeoutMs": 5000, "ValidateOnly": dry}
    )


for v in range(4):
    CASES.add(f"grow.v{v}", topic(), grow(3, version=v))
CASES.add(
    "grow.counts",
    topic(partitions=2),
    grow(4),
    metadata([{"Name": T()}], until=("Topics.0.Partitions.3.ErrorCode", 0)),
    grow(4),
    grow(3),
    grow(0),
    grow(-1),
)
CASES.add("grow.unknown", grow(3, name=ABSENT))
CASES.add("grow.validate-only", topic(), grow(3, dry=True), metadata([{"Name": T()}]))
CASES.add("grow.assignment-short", topic(), grow(3, assign=[{"BrokerIds": [1]}]))
CASES.add("grow.assignment-unknown-broker", topic(), grow(2, assign=[{"BrokerIds": [9999]}]))
CASES.add("grow.same-twice", topic(), grow(3, twice=True))

# DeleteRecords


def trim(offset: int, *, name: Any = T(), partition: int = 0, version: int = 2) -> Step:
    return Step(
        "DeleteRecords",
        version,
        {
            "Topics": [{"Name": name, "Partitions": [{"PartitionIndex": partition, "Offset": offset}]}],
            "TimeoutMs": 5000,
        },
    )


for v in range(3):
    CASES.add(f"trim.v{v}", topic(), produce(records(5), quiet=True), trim(2, version=v), offsets(-2))
CASES.add("trim.all", topic(), produce(records(5), quiet=True), trim(-1), offsets(-2), offsets(-1), fetch(5))
CASES.add("trim.middle-of-batch", topic(), produce(records(5), quiet=True), trim(3), fetch(3), fetch(2))
CASES.add("trim.backwards", topic(), produce(records(5), quiet=True), trim(3), trim(1), offsets(-2))
CASES.add("trim.beyond-end", topic(), produce(records(5), quiet=True), trim(6))
CASES.add("trim.negative", topic(), produce(records(5), quiet=True), trim(-5))
CASES.add("trim.unknown", trim(1, name=ABSENT))
CASES.add("trim.unknown-partition", topic(), trim(1, partition=9))
CASES.add(
    "trim.compacted",
    topic(configs={"cleanup.policy": "compact"}),
    produce(records([b"a"], keys=[b"k"]), quiet=True),
    trim(1),
)
