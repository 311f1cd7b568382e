"""The requests by which each single right is tried: one of each API, or several where it asks for several rights.

Every client asks about a topic, a group and a transactional id of its own, whose names begin with its prefix.
Source of the list: the authorize calls of kafka.server.KafkaApis and ControllerApis (Kafka 4.3).
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tests.compat.protocol_diff.batches import batch

RIGHTS: Final[tuple[tuple[str, str], ...]] = (
    *(
        ("TOPIC", operation)
        for operation in (
            "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS",
        )
    ),
    *(("GROUP", operation) for operation in ("READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")),
    *(("TRANSACTIONAL_ID", operation) for operation in ("WRITE", "DESCRIBE")),
    *(
        ("CLUSTER", operation)
        for operation in (
            "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS",
            "IDEMPOTENT_WRITE",
        )
    ),
)  # fmt: skip
"""All operations that a type of resource has, by the codes of org.apache.kafka.common.acl.AclOperation."""
WAIT_MS: Final = 3_000
MEMBER: Final = "AAAAAAAAAAAAAAAAAAAAAA"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What one client asks about."""

    prefix: str
    topic_id: uuid.UUID
    producer_id: int
    producer_epoch: int

    @property
    def topic(self) -> str:
        return self.prefix + "topic"

    @property
    def group(self) -> str:
        return self.prefix + "group"

    @property
    def transactional_id(self) -> str:
        return self.prefix + "transaction"


@dataclass(frozen=True, slots=True)
class Question:
    """One request."""

    name: str
    api: str
    version: int
    body: dict[str, Any]


def questions(own: Resources) -> Iterator[Question]:
    """All requests, in the order in which they are sent."""
    yield from _records(own)
    yield from _topics(own)
    yield from _groups(own)
    yield from _transactions(own)
    yield from _configs(own)
    yield from _cluster(own)


def _records(own: Resources) -> Iterator[Question]:
    def produce(version: int, topic: dict[str, Any], records: bytes, transactional_id: str | None) -> dict[str, Any]:
        topics = [{**topic, "PartitionData": [{"Index": 0, "Records": records}]}]
        return {"TransactionalId": transactional_id, "Acks": -1, "TimeoutMs": WAIT_MS, "TopicData": topics}

    def fetch(replica: int) -> dict[str, Any]:
        partition = {"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 1000}
        return {
            "ReplicaId": replica, "MaxWaitMs": 10, "MinBytes": 0, "MaxBytes": 1000, "IsolationLevel": 0,
            "SessionId": 0, "SessionEpoch": -1, "Topics": [{"Topic": own.topic, "Partitions": [partition]}],
            "ForgottenTopicsData": [],
        }  # fmt: skip

    named, by_id = {"Name": own.topic}, {"TopicId": own.topic_id}
    transactional = batch([b"v"], pid=own.producer_id, epoch=own.producer_epoch, seq=0, transactional=True)
    yield Question("Produce", "Produce", 9, produce(9, named, batch([b"v"]), None))
    yield Question("Produce by id", "Produce", 13, produce(13, by_id, batch([b"v"]), None))
    yield Question("Produce in a transaction", "Produce", 9, produce(9, named, transactional, own.transactional_id))
    yield Question("Fetch", "Fetch", 12, fetch(-1))
    yield Question("Fetch as a replica", "Fetch", 12, fetch(1))
    end = {"PartitionIndex": 0, "CurrentLeaderEpoch": -1, "Timestamp": -1}
    body: dict[str, Any] = {"ReplicaId": -1, "IsolationLevel": 0, "Topics": [{**named, "Partitions": [end]}]}
    yield Question("ListOffsets", "ListOffsets", 7, body)
    epoch = {"Partition": 0, "CurrentLeaderEpoch": -1, "LeaderEpoch": 0}
    body = {"ReplicaId": -2, "Topics": [{"Topic": own.topic, "Partitions": [epoch]}]}
    yield Question("OffsetForLeaderEpoch", "OffsetForLeaderEpoch", 4, body)
    body = {"Topics": [{**named, "Partitions": [{"PartitionIndex": 0, "Offset": 0}]}], "TimeoutMs": WAIT_MS}
    yield Question("DeleteRecords", "DeleteRecords", 2, body)
    yield Question("DescribeProducers", "DescribeProducers", 0, {"Topics": [{**named, "PartitionIndexes": [0]}]})


def _topics(own: Resources) -> Iterator[Question]:
    def metadata(topics: list[dict[str, Any]] | None, *, creates: bool = False) -> dict[str, Any]:
        return {"Topics": topics, "AllowAutoTopicCreation": creates, "IncludeTopicAuthorizedOperations": True}

    yield Question("Metadata", "Metadata", 12, metadata([{"Name": own.topic}]))
    yield Question("Metadata by id", "Metadata", 12, metadata([{"TopicId": own.topic_id, "Name": None}]))
    yield Question("Metadata of all", "Metadata", 12, metadata(None))
    missing = {"Name": own.prefix + "missing"}
    yield Question("Metadata of a missing topic", "Metadata", 12, metadata([missing]))
    body: dict[str, Any] = {"Topics": [{"Name": own.topic}], "ResponsePartitionLimit": 10, "Cursor": None}
    yield Question("DescribeTopicPartitions", "DescribeTopicPartitions", 0, body)
    topic = {"Name": own.prefix + "new", "NumPartitions": 1, "ReplicationFactor": 1}
    yield Question("CreateTopics", "CreateTopics", 7, {"Topics": [topic], "timeoutMs": WAIT_MS, "validateOnly": True})
    yield Question("DeleteTopics", "DeleteTopics", 6, {"Topics": [missing], "TimeoutMs": WAIT_MS})
    body = {"Topics": [{"Name": own.topic, "Count": 2, "Assignments": None}], "TimeoutMs": WAIT_MS}
    yield Question("CreatePartitions", "CreatePartitions", 3, {**body, "ValidateOnly": True})


def _groups(own: Resources) -> Iterator[Question]:
    group, committed = {"GroupId": own.group}, {"PartitionIndex": 0, "CommittedOffset": 0}
    member = {"GenerationIdOrMemberEpoch": -1, "MemberId": ""}
    body: dict[str, Any] = {**group, **member, "Topics": [{"Name": own.topic, "Partitions": [committed]}]}
    yield Question("OffsetCommit", "OffsetCommit", 8, body)
    for name, topics in (("OffsetFetch", [{"Name": own.topic, "PartitionIndexes": [0]}]), ("OffsetFetch of all", None)):
        yield Question(name, "OffsetFetch", 8, {"Groups": [{**group, "Topics": topics}], "RequireStable": False})
    body = {**group, "Topics": [{"Name": own.topic, "Partitions": [{"PartitionIndex": 0}]}]}
    yield Question("OffsetDelete", "OffsetDelete", 0, body)
    for name, kind, key in (("group", 0, own.group), ("transactional id", 1, own.transactional_id)):
        body = {"KeyType": kind, "CoordinatorKeys": [key]}
        yield Question(f"FindCoordinator of a {name}", "FindCoordinator", 4, body)
    joining = {"SessionTimeoutMs": 10_000, "RebalanceTimeoutMs": 10_000, "MemberId": "", "ProtocolType": "x"}
    body = {"GroupId": own.prefix + "joining", **joining, "Protocols": [{"Name": "a", "Metadata": b""}]}
    yield Question("JoinGroup", "JoinGroup", 5, body)
    classic = {**group, "GenerationId": 1, "MemberId": "m"}
    yield Question("Heartbeat", "Heartbeat", 3, classic)
    yield Question("SyncGroup", "SyncGroup", 3, {**classic, "Assignments": []})
    yield Question("LeaveGroup", "LeaveGroup", 3, {**group, "Members": [{"MemberId": "m"}]})
    body = {"GroupId": own.prefix + "consumers", "MemberId": MEMBER, "MemberEpoch": -1}
    yield Question("ConsumerGroupHeartbeat", "ConsumerGroupHeartbeat", 1, body)
    yield Question("DescribeGroups", "DescribeGroups", 5, {"Groups": [own.group], "IncludeAuthorizedOperations": True})
    body = {"GroupIds": [own.group], "IncludeAuthorizedOperations": True}
    yield Question("ConsumerGroupDescribe", "ConsumerGroupDescribe", 1, body)
    yield Question("ListGroups", "ListGroups", 4, {"StatesFilter": []})
    yield Question("DeleteGroups", "DeleteGroups", 2, {"GroupsNames": [own.prefix + "missing"]})


def _transactions(own: Resources) -> Iterator[Question]:
    producer = {"ProducerId": own.producer_id, "ProducerEpoch": own.producer_epoch}
    transactional = {"TransactionalId": own.transactional_id, **producer}
    new = {"TransactionTimeoutMs": 1_000, "ProducerId": -1, "ProducerEpoch": -1}
    yield Question("InitProducerId", "InitProducerId", 4, {"TransactionalId": None, **new})
    body: dict[str, Any] = {"TransactionalId": own.prefix + "other", **new}
    yield Question("InitProducerId of a transactional id", "InitProducerId", 4, body)
    topics = [{"Name": own.topic, "Partitions": [0]}]
    body = {
        "V3AndBelowTransactionalId": own.transactional_id, "V3AndBelowProducerId": own.producer_id,
        "V3AndBelowProducerEpoch": own.producer_epoch, "V3AndBelowTopics": topics,
    }  # fmt: skip
    yield Question("AddPartitionsToTxn", "AddPartitionsToTxn", 3, body)
    body = {"Transactions": [{**transactional, "VerifyOnly": True, "Topics": topics}]}
    yield Question("AddPartitionsToTxn of a broker", "AddPartitionsToTxn", 5, body)
    yield Question("AddOffsetsToTxn", "AddOffsetsToTxn", 3, {**transactional, "GroupId": own.group})
    offsets = [{"Name": own.topic, "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 0}]}]
    body = {**transactional, "GroupId": own.group, "GenerationId": -1, "MemberId": "", "Topics": offsets}
    yield Question("TxnOffsetCommit", "TxnOffsetCommit", 3, body)
    yield Question("EndTxn", "EndTxn", 3, {**transactional, "Committed": False})
    marker = {"ProducerId": 99_999, "ProducerEpoch": 0, "TransactionResult": False, "CoordinatorEpoch": 0}
    body = {"Markers": [{**marker, "Topics": [{"Name": own.topic, "PartitionIndexes": [0]}]}]}
    yield Question("WriteTxnMarkers", "WriteTxnMarkers", 1, body)
    body = {"TransactionalIds": [own.transactional_id]}
    yield Question("DescribeTransactions", "DescribeTransactions", 0, body)
    yield Question("ListTransactions", "ListTransactions", 0, {"StateFilters": [], "ProducerIdFilters": []})


def _configs(own: Resources) -> Iterator[Question]:
    resources = {
        "topic": (2, own.topic, "retention.ms", "-1"),
        "broker": (4, "", "log.retention.ms", "604800000"),
        "group": (32, own.group, "consumer.session.timeout.ms", "50000"),
    }
    for kind, (code, name, key, _) in resources.items():
        named = name or "1"  # the defaults of all brokers have no description
        body: dict[str, Any] = {"ResourceType": code, "ResourceName": named, "ConfigurationKeys": [key]}
        yield Question(f"DescribeConfigs of a {kind}", "DescribeConfigs", 4, {"Resources": [body]})
    for kind, code, name in (("logger", 8, "1"), ("client metrics", 16, "m")):
        body = {"ResourceType": code, "ResourceName": name, "ConfigurationKeys": None}
        yield Question(f"DescribeConfigs of {kind}", "DescribeConfigs", 4, {"Resources": [body]})
    for kind, (code, name, key, value) in resources.items():
        config = {"Name": key, "ConfigOperation": 0, "Value": value}
        body = {"Resources": [{"ResourceType": code, "ResourceName": name, "Configs": [config]}], "ValidateOnly": True}
        yield Question(f"IncrementalAlterConfigs of a {kind}", "IncrementalAlterConfigs", 1, body)
    config = {"Name": "retention.ms", "Value": "-1"}
    body = {"Resources": [{"ResourceType": 2, "ResourceName": own.topic, "Configs": [config]}], "ValidateOnly": True}
    yield Question("AlterConfigs of a topic", "AlterConfigs", 2, body)
    yield Question("ListConfigResources", "ListConfigResources", 1, {"ResourceTypes": []})


def _cluster(own: Resources) -> Iterator[Question]:
    def ask(api: str, version: int, **body: object) -> Question:
        return Question(api, api, version, body)

    yield ask("DescribeCluster", 0, IncludeClusterAuthorizedOperations=True)
    yield ask("DescribeLogDirs", 4, Topics=None)
    topics: list[dict[str, Any]] = [{"Name": own.topic, "Partitions": [0]}]
    yield ask("AlterReplicaLogDirs", 2, Dirs=[{"Path": "/nowhere", "Topics": topics}])
    every = {"ResourceTypeFilter": 1, "PatternTypeFilter": 1, "Operation": 1, "PermissionType": 1}
    yield ask("DescribeAcls", 3, **every)
    acl = {
        "ResourceType": 2, "ResourceName": "unrelated", "ResourcePatternType": 3, "Principal": "User:unrelated",
        "Host": "*", "Operation": 3, "PermissionType": 3,
    }  # fmt: skip
    yield ask("CreateAcls", 3, Creations=[acl])
    named = {**every, "ResourceTypeFilter": 2, "ResourceNameFilter": "unrelated", "PatternTypeFilter": 3}
    yield ask("DeleteAcls", 3, Filters=[{**named, "PrincipalFilter": None, "HostFilter": None}])
    yield ask("DescribeClientQuotas", 1, Components=[], Strict=False)
    entity = [{"EntityType": "user", "EntityName": "unrelated"}]
    quota = {"Key": "producer_byte_rate", "Value": 1_000.0, "Remove": False}
    yield ask("AlterClientQuotas", 1, Entries=[{"Entity": entity, "Ops": [quota]}], ValidateOnly=True)
    yield ask("DescribeUserScramCredentials", 0, Users=[{"Name": "unrelated"}])
    yield ask("AlterUserScramCredentials", 0, Deletions=[{"Name": "unrelated", "Mechanism": 1}], Upsertions=[])
    topics = [{"Topic": own.topic, "Partitions": [0]}]
    yield ask("ElectLeaders", 2, ElectionType=0, TopicPartitions=topics, TimeoutMs=WAIT_MS)
    yield ask("AlterPartitionReassignments", 0, TimeoutMs=WAIT_MS, Topics=[])
    yield ask("ListPartitionReassignments", 0, TimeoutMs=WAIT_MS, Topics=None)
    yield ask("UpdateFeatures", 1, timeoutMs=WAIT_MS, FeatureUpdates=[], ValidateOnly=True)
    metadata = [{"TopicName": "__cluster_metadata", "Partitions": [{"PartitionIndex": 0}]}]
    yield ask("DescribeQuorum", 1, Topics=metadata)
