"""THE table of APIs and versions: what is served, and what ApiVersions answers, derive from it.

Rule: an API appears here when its handler does. `version_min` and `version_max` are what ApiVersions answers: the
stable versions of Apache Kafka 4.3.1. A request outside of what is served closes its connection, as in Kafka; only
ApiVersions itself is answered in any version (KIP-511).
Source: https://kafka.apache.org/protocol#protocol_api_keys, KIP-482 for flexible versions, KIP-896 for the minima.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class ApiKey(IntEnum):
    """Numbers of the APIs that are served."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRange:
    """One API: the versions that ApiVersions lists, those served, and the first that is flexible (KIP-482)."""

    api_key: ApiKey
    name: str
    version_min: int
    """Listed by ApiVersions."""
    version_max: int
    """Listed by ApiVersions, and served."""
    version_served_min: int
    flexible_first: int
    """From this version on the request has header v2 and the response header v1 (but ApiVersions: always v0)."""

    def is_served(self, api_version: int) -> bool:
        """Whether a request in this version is read and answered."""
        return self.version_served_min <= api_version <= self.version_max

    def is_flexible(self, api_version: int) -> bool:
        """Whether messages of this version have compact lengths and tagged fields."""
        return api_version >= self.flexible_first

    def request_header_version(self, api_version: int) -> int:
        """1, or 2 where the header ends with tagged fields."""
        return 2 if api_version >= self.flexible_first else 1

    def response_header_version(self, api_version: int) -> int:
        """0, or 1 where the header ends with tagged fields.

        ApiVersions stays at 0: a client reads that answer before it knows what the broker speaks (KIP-511).
        """
        return 1 if api_version >= self.flexible_first and self.api_key is not ApiKey.API_VERSIONS else 0


def _row(api_key: ApiKey, name: str, versions: tuple[int, int], flexible_first: int, served_min: int = 0) -> ApiRange:
    version_min, version_max = versions
    return ApiRange(
        api_key=api_key,
        name=name,
        version_min=version_min,
        version_max=version_max,
        version_served_min=max(version_min, served_min),
        flexible_first=flexible_first,
    )


API_VERSIONS: Final[tuple[ApiRange, ...]] = (
    # Produce is listed from 0 on, since librdkafka up to 2.10 stops compressing where the minimum is higher
    # (KAFKA-18659), and served from 3 on; 0 to 2 close the connection. Both as Kafka does.
    _row(ApiKey.PRODUCE, "Produce", (0, 13), flexible_first=9, served_min=3),
    _row(ApiKey.FETCH, "Fetch", (4, 18), flexible_first=12),
    _row(ApiKey.LIST_OFFSETS, "ListOffsets", (1, 11), flexible_first=6),
    _row(ApiKey.METADATA, "Metadata", (0, 13), flexible_first=9),
    _row(ApiKey.OFFSET_COMMIT, "OffsetCommit", (2, 10), flexible_first=8),
    _row(ApiKey.OFFSET_FETCH, "OffsetFetch", (1, 10), flexible_first=6),
    _row(ApiKey.FIND_COORDINATOR, "FindCoordinator", (0, 6), flexible_first=3),
    _row(ApiKey.JOIN_GROUP, "JoinGroup", (0, 9), flexible_first=6),
    _row(ApiKey.HEARTBEAT, "Heartbeat", (0, 4), flexible_first=4),
    _row(ApiKey.LEAVE_GROUP, "LeaveGroup", (0, 5), flexible_first=4),
    _row(ApiKey.SYNC_GROUP, "SyncGroup", (0, 5), flexible_first=4),
    _row(ApiKey.DESCRIBE_GROUPS, "DescribeGroups", (0, 6), flexible_first=5),
    _row(ApiKey.LIST_GROUPS, "ListGroups", (0, 5), flexible_first=3),
    _row(ApiKey.SASL_HANDSHAKE, "SaslHandshake", (0, 1), flexible_first=2),
    _row(ApiKey.API_VERSIONS, "ApiVersions", (0, 4), flexible_first=3),
    _row(ApiKey.CREATE_TOPICS, "CreateTopics", (2, 7), flexible_first=5),
    _row(ApiKey.DELETE_TOPICS, "DeleteTopics", (1, 6), flexible_first=4),
    _row(ApiKey.DELETE_RECORDS, "DeleteRecords", (0, 2), flexible_first=2),
    _row(ApiKey.INIT_PRODUCER_ID, "InitProducerId", (0, 5), flexible_first=2),
    _row(ApiKey.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", (2, 4), flexible_first=4),
    _row(ApiKey.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn", (0, 5), flexible_first=3),
    _row(ApiKey.ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn", (0, 4), flexible_first=3),
    _row(ApiKey.END_TXN, "EndTxn", (0, 5), flexible_first=3),
    _row(ApiKey.WRITE_TXN_MARKERS, "WriteTxnMarkers", (1, 2), flexible_first=1),
    _row(ApiKey.TXN_OFFSET_COMMIT, "TxnOffsetCommit", (0, 5), flexible_first=3),
    _row(ApiKey.DESCRIBE_ACLS, "DescribeAcls", (1, 3), flexible_first=2),
    _row(ApiKey.CREATE_ACLS, "CreateAcls", (1, 3), flexible_first=2),
    _row(ApiKey.DELETE_ACLS, "DeleteAcls", (1, 3), flexible_first=2),
    _row(ApiKey.DESCRIBE_CONFIGS, "DescribeConfigs", (1, 4), flexible_first=4),
    _row(ApiKey.ALTER_CONFIGS, "AlterConfigs", (0, 2), flexible_first=2),
    _row(ApiKey.ALTER_REPLICA_LOG_DIRS, "AlterReplicaLogDirs", (1, 2), flexible_first=2),
    _row(ApiKey.DESCRIBE_LOG_DIRS, "DescribeLogDirs", (1, 5), flexible_first=2),
    _row(ApiKey.SASL_AUTHENTICATE, "SaslAuthenticate", (0, 2), flexible_first=2),
    _row(ApiKey.CREATE_PARTITIONS, "CreatePartitions", (0, 3), flexible_first=2),
    _row(ApiKey.CREATE_DELEGATION_TOKEN, "CreateDelegationToken", (1, 3), flexible_first=2),
    _row(ApiKey.RENEW_DELEGATION_TOKEN, "RenewDelegationToken", (1, 2), flexible_first=2),
    _row(ApiKey.EXPIRE_DELEGATION_TOKEN, "ExpireDelegationToken", (1, 2), flexible_first=2),
    _row(ApiKey.DESCRIBE_DELEGATION_TOKEN, "DescribeDelegationToken", (1, 3), flexible_first=2),
    _row(ApiKey.DELETE_GROUPS, "DeleteGroups", (0, 2), flexible_first=2),
    _row(ApiKey.ELECT_LEADERS, "ElectLeaders", (0, 2), flexible_first=2),
    _row(ApiKey.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", (0, 1), flexible_first=1),
    _row(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "AlterPartitionReassignments", (0, 1), flexible_first=0),
    _row(ApiKey.LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignments", (0, 0), flexible_first=0),
    _row(ApiKey.OFFSET_DELETE, "OffsetDelete", (0, 0), flexible_first=1),
    _row(ApiKey.DESCRIBE_CLIENT_QUOTAS, "DescribeClientQuotas", (0, 1), flexible_first=1),
    _row(ApiKey.ALTER_CLIENT_QUOTAS, "AlterClientQuotas", (0, 1), flexible_first=1),
    _row(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "DescribeUserScramCredentials", (0, 0), flexible_first=0),
    _row(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "AlterUserScramCredentials", (0, 0), flexible_first=0),
    _row(ApiKey.DESCRIBE_QUORUM, "DescribeQuorum", (0, 2), flexible_first=0),
    _row(ApiKey.UPDATE_FEATURES, "UpdateFeatures", (0, 2), flexible_first=0),
    _row(ApiKey.DESCRIBE_CLUSTER, "DescribeCluster", (0, 2), flexible_first=0),
    _row(ApiKey.DESCRIBE_PRODUCERS, "DescribeProducers", (0, 0), flexible_first=0),
    _row(ApiKey.DESCRIBE_TRANSACTIONS, "DescribeTransactions", (0, 0), flexible_first=0),
    _row(ApiKey.LIST_TRANSACTIONS, "ListTransactions", (0, 2), flexible_first=0),
    _row(ApiKey.CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", (0, 1), flexible_first=0),
    _row(ApiKey.CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", (0, 1), flexible_first=0),
    _row(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, "GetTelemetrySubscriptions", (0, 0), flexible_first=0),
    _row(ApiKey.PUSH_TELEMETRY, "PushTelemetry", (0, 0), flexible_first=0),
    _row(ApiKey.LIST_CONFIG_RESOURCES, "ListConfigResources", (0, 1), flexible_first=0),
    _row(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitions", (0, 0), flexible_first=0),
)

_RANGES: Final = {int(row.api_key): row for row in API_VERSIONS}
FLEXIBLE_REQUESTS: Final = {
    (int(row.api_key), version): row.is_flexible(version)
    for row in API_VERSIONS
    for version in range(row.version_served_min, row.version_max + 1)
}
"""Whether requests of each API and version that is served are flexible: one look-up for each request."""


def range_of(api_key: int) -> ApiRange | None:
    """The row of an API, or None where it is not served."""
    return _RANGES.get(api_key)


def name_of(api_key: int) -> str:
    """The name of an API that is served."""
    return _RANGES[api_key].name
