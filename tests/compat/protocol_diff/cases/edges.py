"""Edges of what is served: empty, repeated and mixed requests, versions out of range, lies in headers, and sessions."""

from tests.compat.protocol_diff.batches import TIMESTAMP
from tests.compat.protocol_diff.cases.pieces import (
    ABSENT,
    NOBODY,
    configs,
    create,
    fetch,
    metadata,
    offsets,
    produce,
    records,
    topic,
)
from tests.compat.protocol_diff.steps import Cases, G, Mode, Step, T, V

CASES = Cases()

# Versions that no broker of 4.3 serves

for api, version in (("Produce", 14), ("Fetch", 3), ("ListOffsets", 0), ("CreateTopics", 1), ("DeleteTopics", 0)):
    CASES.add(f"frame.{api}-{version}", Step(api, version, b"\0" * 64))
CASES.add(
    "frame.pipelined",
    Step("Metadata", 1, {"Topics": []}, mode=Mode.SEND, conn="p"),
    Step("Metadata", 1, {}, mode=Mode.RECEIVE, conn="p"),
)

# Produce

CASES.add("produce.nothing", Step("Produce", 9, {"Acks": -1, "TimeoutMs": 5000, "TopicData": []}))
CASES.add(
    "produce.no-partitions",
    topic(),
    Step("Produce", 9, {"Acks": -1, "TimeoutMs": 5000, "TopicData": [{"Name": T(), "PartitionData": []}]}),
)
CASES.add(
    "produce.topic-twice",
    topic(partitions=2),
    Step(
        "Produce",
        9,
        {
            "Acks": -1,
            "TimeoutMs": 5000,
            "TopicData": [
                {"Name": T(), "PartitionData": [{"Index": 0, "Records": records(1)}]},
                {"Name": T(), "PartitionData": [{"Index": 1, "Records": records(2)}]},
            ],
        },
    ),
)
CASES.add("produce.bad-topic-name", produce(records(), topic="a b"))
CASES.add(
    "produce.no-time",
    topic(),
    produce(records(), acks=1),
    Step(
        "Produce",
        9,
        {
            "Acks": 1,
            "TimeoutMs": 0,
            "TopicData": [{"Name": T(), "PartitionData": [{"Index": 0, "Records": records(1)}]}],
        },
    ),
    offsets(-1, until=("Topics.0.Partitions.0.Offset", 2)),
)
CASES.add("produce.acks-0-unknown-partition", topic(), produce(records(), acks=0, partition=9))
CASES.add("produce.acks-0-bad-crc", topic(), produce(records(1, bad_crc=True), acks=0))
CASES.add("produce.append-time-bit", topic(), produce(records(1, attributes=8)), offsets(-1))
CASES.add("produce.delete-horizon-bit", topic(), produce(records(1, attributes=0x40)), fetch(0))
CASES.add("produce.unused-bits", topic(), produce(records(1, attributes=0x80)), fetch(0))
CASES.add("produce.transactional-without-id", topic(), produce(records(1, transactional=True)), offsets(-1))
CASES.add(
    "produce.negative-timestamp", topic(), produce(records(1, timestamp=-5)), offsets(-1), offsets(0), offsets(-3)
)
CASES.add(
    "produce.max-timestamp-too-high",
    topic(),
    produce(records(2, max_timestamp=TIMESTAMP + 900)),
    offsets(-3),
    offsets(TIMESTAMP + 500),
    offsets(TIMESTAMP + 1),
)
CASES.add(
    "produce.max-timestamp-too-low", topic(), produce(records(2, max_timestamp=0)), offsets(-3), offsets(TIMESTAMP + 1)
)
CASES.add(
    "produce.append-time-future",
    topic(configs={"message.timestamp.type": "LogAppendTime", "message.timestamp.after.max.ms": "1000"}),
    produce(records(2, timestamp=4_000_000_000_000)),
    offsets(-1),
)
CASES.add(
    "produce.size-at-limit",
    topic(configs={"max.message.bytes": "69"}),
    produce(records([b"x"])),
    produce(records([b"xx"])),
    offsets(-1),
)
CASES.add(
    "produce.compact-delete-no-key",
    topic(configs={"cleanup.policy": "compact,delete"}),
    produce(records(1)),
    offsets(-1),
)
CASES.add(
    "produce.after-recreate",
    topic(),
    produce(records(2), 13, quiet=True),
    Step("DeleteTopics", 5, {"TopicNames": [T()], "TimeoutMs": 5000}, quiet=True),
    metadata([{"Name": T()}], until=("Topics.0.ErrorCode", 3), quiet=True),
    produce(records(1), 13),
    produce(records(1)),
)

# Fetch

CASES.add("fetch.nothing", fetch(none=True))
CASES.add(
    "fetch.no-partitions",
    topic(),
    Step(
        "Fetch",
        12,
        {
            "MaxWaitMs": 50,
            "MinBytes": 1,
            "SessionEpoch": -1,
            "ReplicaId": -1,
            "Topics": [{"Topic": T(), "Partitions": []}],
        },
    ),
)
CASES.add(
    "fetch.same-partition-twice",
    topic(),
    produce(records(3), quiet=True),
    Step(
        "Fetch",
        12,
        {
            "MaxWaitMs": 50,
            "MinBytes": 1,
            "SessionEpoch": -1,
            "ReplicaId": -1,
            "Topics": [
                {
                    "Topic": T(),
                    "Partitions": [
                        {"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 1000},
                        {"Partition": 0, "FetchOffset": 2, "PartitionMaxBytes": 1000},
                    ],
                }
            ],
        },
        records=True,
    ),
)
CASES.add(
    "fetch.read-committed",
    topic(),
    produce(records(2), quiet=True),
    fetch(0, isolation=1),
    fetch(2, isolation=1),
    fetch(9, isolation=1),
)
CASES.add("fetch.bad-isolation", topic(), produce(records(1), quiet=True), fetch(0, isolation=7))
CASES.add("fetch.negative-bytes", topic(), produce(records(1), quiet=True), fetch(0, most=-1), fetch(0, whole=-1))
CASES.add("fetch.zero-whole", topic(), produce(records(1), quiet=True), fetch(0, whole=0))
CASES.add("fetch.negative-wait", topic(), fetch(0, wait=-1))
CASES.add(
    "fetch.old-leader-epoch",
    topic(),
    produce(records(1), quiet=True),
    fetch(0, leader_epoch=-2),
    fetch(0, leader_epoch=0, last_epoch=5),
    fetch(0, leader_epoch=0, last_epoch=-2),
)
CASES.add(
    "fetch.by-old-id",
    topic(),
    produce(records(1), quiet=True),
    Step("DeleteTopics", 5, {"TopicNames": [T()], "TimeoutMs": 5000}, quiet=True),
    metadata([{"Name": T()}], until=("Topics.0.ErrorCode", 3), quiet=True),
    fetch(0, 13),
)
CASES.add(
    "fetch.session-ids",
    topic(),
    produce(records(1), quiet=True),
    fetch(0, 13, epoch=0, save={"session": "SessionId"}),
    fetch(none=True, version=13, session=V("session"), epoch=1),
    fetch(1, 13, session=V("session"), epoch=2),
    fetch(none=True, version=13, session=V("session"), epoch=3),
)
CASES.add(
    "fetch.session-mixed",
    topic(),
    fetch(0, 12, epoch=0, save={"session": "SessionId"}),
    fetch(0, 13, session=V("session"), epoch=1),
)
CASES.add(
    "fetch.session-mixed-back",
    topic(),
    fetch(0, 13, epoch=0, save={"session": "SessionId"}),
    fetch(0, 12, session=V("session"), epoch=1),
)
CASES.add(
    "fetch.session-unknown-partition",
    topic(),
    fetch(0, epoch=0, partition=9, save={"session": "SessionId"}),
    fetch(none=True, session=V("session"), epoch=1),
)
CASES.add(
    "fetch.session-unknown-id",
    fetch(0, 13, topic_id=NOBODY, epoch=0, save={"session": "SessionId"}),
    fetch(none=True, version=13, session=V("session"), epoch=1),
)
CASES.add(
    "fetch.session-beyond-end",
    topic(),
    fetch(5, epoch=0, save={"session": "SessionId"}),
    fetch(none=True, session=V("session"), epoch=1),
    fetch(0, session=V("session"), epoch=2),
)
CASES.add(
    "fetch.session-replaced",
    topic(),
    fetch(0, epoch=0, save={"session": "SessionId"}),
    fetch(0, session=V("session"), epoch=0),
    fetch(none=True, session=V("session"), epoch=1),
)
CASES.add(
    "fetch.session-forget-unknown",
    topic(),
    fetch(0, epoch=0, save={"session": "SessionId"}),
    fetch(
        none=True,
        session=V("session"),
        epoch=1,
        forget=[{"Topic": T(), "Partitions": [7]}, {"Topic": ABSENT, "Partitions": [0]}],
    ),
)
CASES.add("fetch.session-nothing", fetch(none=True, epoch=0))

# ListOffsets

CASES.add("offsets.nothing", Step("ListOffsets", 7, {"ReplicaId": -1, "Topics": []}))
CASES.add(
    "offsets.several",
    topic(partitions=2),
    produce(records(2), quiet=True),
    Step(
        "ListOffsets",
        7,
        {
            "ReplicaId": -1,
            "Topics": [
                {
                    "Name": T(),
                    "Partitions": [
                        {"PartitionIndex": 0, "Timestamp": -1},
                        {"PartitionIndex": 1, "Timestamp": -1},
                        {"PartitionIndex": 2, "Timestamp": -1},
                    ],
                },
                {"Name": ABSENT, "Partitions": [{"PartitionIndex": 0, "Timestamp": -1}]},
            ],
        },
    ),
)
CASES.add("offsets.old-leader-epoch", topic(), offsets(-1, epoch=0), offsets(-1, epoch=-2))
CASES.add(
    "offsets.append-time",
    topic(configs={"message.timestamp.type": "LogAppendTime"}),
    produce(records(2), quiet=True),
    offsets(TIMESTAMP, mask=("Timestamp",)),
    offsets(-3, mask=("Timestamp",)),
)
CASES.add(
    "offsets.read-committed-plain",
    topic(),
    produce(records(2), quiet=True),
    offsets(-1, isolation=1),
    offsets(TIMESTAMP + 1, isolation=1),
)
CASES.add("offsets.gzip", topic(), produce(records(3, compression=1), quiet=True), offsets(TIMESTAMP + 1), offsets(-3))

# Metadata and descriptions

CASES.add("metadata.auto-create-v3", metadata([{"Name": T("auto")}], 3, until=("Topics.0.ErrorCode", 0)))
CASES.add(
    "metadata.auto-create-some",
    topic(),
    metadata([{"Name": T("auto")}], auto=True, until=("Topics.0.ErrorCode", 0), quiet=True),
    metadata([{"Name": T()}, {"Name": T("auto")}, {"Name": "a b"}], auto=True),
)
CASES.add("metadata.ids-and-names", topic(), metadata([{"Name": None, "TopicId": V("id_t")}, {"Name": T()}]))
CASES.add(
    "metadata.partitions-limit-zero",
    topic(partitions=3),
    Step("DescribeTopicPartitions", 0, {"Topics": [{"Name": T()}], "ResponsePartitionLimit": 0}),
)
CASES.add(
    "metadata.partitions-limit-negative",
    topic(partitions=3),
    Step("DescribeTopicPartitions", 0, {"Topics": [{"Name": T()}], "ResponsePartitionLimit": -1}),
)
CASES.add("metadata.partitions-bad-name", Step("DescribeTopicPartitions", 0, {"Topics": [{"Name": "a b"}]}))
CASES.add(
    "metadata.partitions-two-topics",
    topic(partitions=2),
    topic("u", partitions=2),
    Step(
        "DescribeTopicPartitions",
        0,
        {"Topics": [{"Name": T("u")}, {"Name": T()}, {"Name": T()}], "ResponsePartitionLimit": 3},
    ),
)
CASES.add(
    "metadata.partitions-at-limit",
    topic(partitions=2),
    topic("u"),
    Step("DescribeTopicPartitions", 0, {"Topics": [{"Name": T("u")}, {"Name": T()}], "ResponsePartitionLimit": 2}),
)
CASES.add(
    "metadata.partitions-cursor-beyond",
    topic(partitions=2),
    Step("DescribeTopicPartitions", 0, {"Topics": [{"Name": T()}], "Cursor": {"TopicName": T(), "PartitionIndex": 5}}),
)
CASES.add(
    "metadata.partitions-cursor-negative",
    topic(partitions=2),
    Step("DescribeTopicPartitions", 0, {"Topics": [{"Name": T()}], "Cursor": {"TopicName": T(), "PartitionIndex": -1}}),
)
CASES.add(
    "metadata.partitions-cursor-other",
    topic(),
    Step(
        "DescribeTopicPartitions", 0, {"Topics": [{"Name": T()}], "Cursor": {"TopicName": "zzz", "PartitionIndex": 0}}
    ),
)
CASES.add(
    "metadata.controllers",
    *[Step("DescribeCluster", v, {"EndpointType": kind}, mask=("Brokers",)) for v in (1, 2) for kind in (2, 9)],
)
CASES.add(
    "find.several-kinds",
    Step("FindCoordinator", 4, {"KeyType": 1, "CoordinatorKeys": ["", G("x")]}, until=("Coordinators.1.ErrorCode", 0)),
)

# CreateTopics and DeleteTopics

CASES.add("create.nothing", create())
CASES.add("create.replication-3", create({"ReplicationFactor": 3}, mask=("Configs",)))
CASES.add(
    "create.config-twice",
    create(
        {"Configs": [{"Name": "retention.ms", "Value": "1"}, {"Name": "retention.ms", "Value": "2"}]}, mask=("Configs",)
    ),
    configs(2, T(), ["retention.ms"], until=("Results.0.ErrorCode", 0)),
)
CASES.add(
    "create.config-list",
    create({"Configs": [{"Name": "cleanup.policy", "Value": "compact,delete"}]}, mask=("Configs",)),
    configs(2, T(), ["cleanup.policy"], until=("Results.0.ErrorCode", 0)),
)
CASES.add(
    "create.config-spaces",
    create({"Configs": [{"Name": "retention.ms", "Value": " 7 "}]}, mask=("Configs",)),
    configs(2, T(), ["retention.ms"], until=("Results.0.ErrorCode", 0)),
)
CASES.add(
    "create.config-empty",
    create({"Configs": [{"Name": "retention.ms", "Value": ""}]}),
    create({"Name": T("u"), "Configs": [{"Name": "cleanup.policy", "Value": ""}]}, mask=("Configs",)),
)
CASES.add(
    "create.remote-storage",
    create({"Configs": [{"Name": "remote.storage.enable", "Value": "true"}]}, mask=("Configs",)),
)
CASES.add("create.config-defaults", create({}))
CASES.add(
    "delete.nothing",
    Step("DeleteTopics", 6, {"Topics": [], "TimeoutMs": 5000}),
    Step("DeleteTopics", 5, {"TopicNames": [], "TimeoutMs": 5000}),
)
CASES.add("delete.some", topic(), Step("DeleteTopics", 5, {"TopicNames": [ABSENT, T(), ""], "TimeoutMs": 5000}))
CASES.add("delete.zero-id", Step("DeleteTopics", 6, {"Topics": [{"Name": ""}], "TimeoutMs": 5000}))

# Configs

CASES.add("configs.nothing", Step("DescribeConfigs", 4, {"Resources": []}))
CASES.add(
    "configs.broker",
    configs(
        4,
        "1",
        ["num.partitions", "auto.create.topics.enable", "message.max.bytes", "log.retention.ms", "compression.type"],
    ),
)
CASES.add(
    "configs.broker-synonyms",
    configs(4, "1", ["num.partitions", "log.retention.hours", "log.retention.ms"], synonyms=True),
)
CASES.add(
    "configs.same-twice",
    topic(keep=False),
    Step(
        "DescribeConfigs",
        4,
        {"Resources": [{"ResourceType": 2, "ResourceName": T(), "ConfigurationKeys": ["retention.ms"]}] * 2},
    ),
)
CASES.add("configs.no-keys", topic(keep=False), configs(2, T(), []))
CASES.add(
    "configs.topic-values",
    topic(keep=False),
    configs(2, T(), None, mask=("Documentation", "ConfigSource", "IsDefault")),
)
CASES.add("configs.empty-topic-name", configs(2, ""))
CASES.add("configs.logger-unknown", configs(8, "9999"))

# OffsetForLeaderEpoch

CASES.add("epoch-end.nothing", Step("OffsetForLeaderEpoch", 4, {"ReplicaId": -1, "Topics": []}))
CASES.add(
    "epoch-end.same-partition-twice",
    topic(),
    Step(
        "OffsetForLeaderEpoch",
        4,
        {
            "ReplicaId": -1,
            "Topics": [
                {"Topic": T(), "Partitions": [{"Partition": 0, "CurrentLeaderEpoch": -1, "LeaderEpoch": 0}] * 2}
            ],
        },
    ),
)
