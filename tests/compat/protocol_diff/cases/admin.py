"""Odds and ends of administration."""

import uuid

from tests.compat.protocol_diff.cases.pieces import ABSENT, topic
from tests.compat.protocol_diff.steps import Cases, Step, T

CASES = Cases()

# Odds and ends of administration

CASES.add("admin.list-reassignments", Step("ListPartitionReassignments", 0, {"TimeoutMs": 1000, "Topics": []}))
CASES.add(
    "admin.elect-unknown",
    Step(
        "ElectLeaders",
        2,
        {"ElectionType": 0, "TopicPartitions": [{"Topic": ABSENT, "Partitions": [0]}], "TimeoutMs": 1000},
    ),
)
CASES.add(
    "admin.elect-not-needed",
    topic(),
    Step(
        "ElectLeaders",
        2,
        {"ElectionType": 0, "TopicPartitions": [{"Topic": T(), "Partitions": [0]}], "TimeoutMs": 1000},
    ),
)
CASES.add(
    "admin.list-config-resources",
    Step("ListConfigResources", 0, {}),
    Step("ListConfigResources", 1, {"ResourceTypes": [99]}),
)
CASES.add(
    "admin.quotas-none",
    Step(
        "DescribeClientQuotas",
        1,
        {"Components": [{"EntityType": "client-id", "MatchType": 0, "Match": "nobody"}], "Strict": True},
    ),
)
CASES.add(
    "admin.quotas-bad-type",
    Step(
        "DescribeClientQuotas",
        1,
        {"Components": [{"EntityType": "planet", "MatchType": 0, "Match": "x"}], "Strict": True},
    ),
)
CASES.add("admin.scram-unknown", Step("DescribeUserScramCredentials", 0, {"Users": [{"Name": "nobody"}]}))
CASES.add(
    "admin.log-dirs-unknown",
    Step(
        "DescribeLogDirs",
        4,
        {"Topics": [{"Topic": ABSENT, "Partitions": [0]}]},
        mask=("LogDir", "TotalBytes", "UsableBytes"),
    ),
)
CASES.add(
    "admin.update-features-unknown",
    Step(
        "UpdateFeatures",
        1,
        {
            "timeoutMs": 1000,
            "FeatureUpdates": [{"Feature": "no.such.feature", "MaxVersionLevel": 1, "UpgradeType": 1}],
            "ValidateOnly": True,
        },
    ),
)
CASES.add(
    "admin.create-token",
    Step(
        "CreateDelegationToken",
        3,
        {"Renewers": [], "MaxLifetimeMs": 1000},
        mask=("IssueTimestampMs", "ExpiryTimestampMs", "MaxTimestampMs"),
    ),
)
CASES.add("admin.renew-token", Step("RenewDelegationToken", 2, {"Hmac": b"hmac", "RenewPeriodMs": -1}))
CASES.add("admin.expire-token", Step("ExpireDelegationToken", 2, {"Hmac": b"hmac", "ExpiryTimePeriodMs": -1}))
CASES.add("admin.describe-tokens", Step("DescribeDelegationToken", 3, {"Owners": None}))
CASES.add(
    "admin.telemetry",
    Step(
        "GetTelemetrySubscriptions",
        0,
        {"ClientInstanceId": uuid.UUID(int=0)},
        mask=("ClientInstanceId", "SubscriptionId"),
    ),
)
