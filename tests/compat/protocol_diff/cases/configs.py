"""Configs described and altered."""

from tests.compat.protocol_diff.cases.pieces import ABSENT, alter, configs, produce, records, topic
from tests.compat.protocol_diff.steps import Cases, G, Step, T

CASES = Cases()

# Configs

CASES.add(
    "configs.topic",
    topic(keep=False),
    configs(2, T(), ["retention.ms", "cleanup.policy", "max.message.bytes", "min.insync.replicas", "compression.type"]),
)
CASES.add(
    "configs.topic-synonyms",
    topic(keep=False, configs={"retention.ms": "99"}),
    configs(2, T(), ["retention.ms", "segment.bytes"], synonyms=True),
)
CASES.add(
    "configs.topic-names",
    topic(keep=False),
    configs(
        2, T(), None, mask=("Value", "ConfigSource", "IsDefault", "Synonyms", "ReadOnly", "IsSensitive", "ConfigType")
    ),
)
CASES.add("configs.topic-unknown-key", topic(keep=False), configs(2, T(), ["no.such.config"]))
CASES.add("configs.unknown-topic", configs(2, ABSENT))
CASES.add("configs.bad-topic", configs(2, "a b"))
CASES.add("configs.unknown-broker", configs(4, "9999"))
CASES.add("configs.bad-broker", configs(4, "one"))
CASES.add("configs.broker-default", configs(4, "", ["log.retention.ms"]))
CASES.add("configs.bad-type", configs(77, "x"))
CASES.add("configs.group", configs(32, G("g"), mask=("Value",)))
CASES.add("configs.client-metrics-unknown", configs(16, "nothing"))
for v in range(1, 5):
    CASES.add(f"configs.v{v}", topic(keep=False), configs(2, T(), ["retention.ms"], v))
CASES.add(
    "alter.set",
    topic(keep=False),
    alter([("retention.ms", 0, "777")]),
    configs(2, T(), ["retention.ms"], pause=0.3),
    alter([("retention.ms", 1, None)]),
    configs(2, T(), ["retention.ms"], pause=0.3),
)
CASES.add(
    "alter.append",
    topic(keep=False, configs={"cleanup.policy": "delete"}),
    alter([("cleanup.policy", 2, "compact")]),
    configs(2, T(), ["cleanup.policy"], pause=0.3),
    alter([("cleanup.policy", 3, "delete")]),
    configs(2, T(), ["cleanup.policy"], pause=0.3),
)
CASES.add("alter.append-to-number", topic(keep=False), alter([("retention.ms", 2, "1")]))
CASES.add("alter.unknown-key", topic(keep=False), alter([("no.such.config", 0, "1")]))
CASES.add("alter.bad-value", topic(keep=False), alter([("retention.ms", 0, "soon")]))
CASES.add("alter.null-value", topic(keep=False), alter([("retention.ms", 0, None)]))
CASES.add("alter.out-of-range", topic(keep=False), alter([("min.insync.replicas", 0, "0")]))
CASES.add("alter.bad-operation", topic(keep=False), alter([("retention.ms", 9, "1")]))
CASES.add("alter.same-key-twice", topic(keep=False), alter([("retention.ms", 0, "1"), ("retention.ms", 0, "2")]))
CASES.add(
    "alter.validate-only",
    topic(keep=False),
    alter([("retention.ms", 0, "777")], dry=True),
    configs(2, T(), ["retention.ms"]),
)
CASES.add("alter.unknown-topic", alter([("retention.ms", 0, "1")], name=ABSENT))
CASES.add("alter.bad-type", alter([("retention.ms", 0, "1")], kind=77))
CASES.add("alter.unknown-broker", alter([("log.retention.ms", 0, "1")], kind=4, name="9999"))
CASES.add("alter.broker-read-only", alter([("broker.id", 0, "7")], kind=4, name=""))
CASES.add("alter.nothing", topic(keep=False), alter([]))
CASES.add(
    "alter.same-resource-twice",
    topic(keep=False),
    Step(
        "IncrementalAlterConfigs",
        1,
        {
            "Resources": [
                {
                    "ResourceType": 2,
                    "ResourceName": T(),
                    "Configs": [{"Name": "retention.ms", "ConfigOperation": 0, "Value": "1"}],
                }
            ]
            * 2
        },
    ),
)
CASES.add(
    "alter.takes-effect",
    topic(keep=False),
    alter([("max.message.bytes", 0, "100")]),
    produce(records([b"x" * 300]), until=("Responses.0.PartitionResponses.0.ErrorCode", 10)),
)
CASES.add(
    "alter.legacy",
    topic(keep=False, configs={"retention.ms": "5", "segment.ms": "9000"}),
    Step(
        "AlterConfigs",
        2,
        {"Resources": [{"ResourceType": 2, "ResourceName": T(), "Configs": [{"Name": "retention.ms", "Value": "6"}]}]},
    ),
    configs(2, T(), ["retention.ms", "segment.ms"], pause=0.3),
)
CASES.add(
    "alter.legacy-unknown-topic",
    Step("AlterConfigs", 2, {"Resources": [{"ResourceType": 2, "ResourceName": ABSENT, "Configs": []}]}),
)
