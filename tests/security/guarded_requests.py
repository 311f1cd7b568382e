"""THE table of what a client asks for without a right: each Kafka API, the rights that it needs, and how it is denied.

A row is a request about the resources of `Names`, and for each right that it needs the error code of a client that has
every other right. Where a need has several rights, one of them is enough. `FILTERED` has the requests whose answers
leave out what may not be seen. `guarded_rights` says which rights of an API the rows reach: a test compares them with
`agent.security.required_rights`, so that no API goes without its row.
Source: org.apache.kafka.server.KafkaApis and ControllerApis (Kafka 4.3.1).
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple

from kio.static.primitive import Records

from agent.security import required_rights as rights
from agent.security.required_rights import Right
from protocol.api_versions import ApiKey
from protocol.auth.operations import Operation, ResourceType
from protocol.errors import ErrorCode
from tests.support.records.plain_records import Record, make_batch

TOPIC_DENIED: Final = ErrorCode.topic_authorization_failed
GROUP_DENIED: Final = ErrorCode.group_authorization_failed
CLUSTER_DENIED: Final = ErrorCode.cluster_authorization_failed
TRANSACTION_DENIED: Final = ErrorCode.transactional_id_authorization_failed
TOKEN_DENIED: Final = ErrorCode.delegation_token_authorization_failed
AUTHORIZATION_CODES: Final = frozenset({TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, TRANSACTION_DENIED, TOKEN_DENIED})
NO_ID: Final = uuid.UUID(int=0)
SECONDS: Final = timedelta(seconds=5)
DOOMED: Final = "doomed"
ALTER_CLUSTER: Final = Right(Operation.ALTER, ResourceType.CLUSTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The resources that requests are about."""

    topic: str
    topic_id: uuid.UUID
    group: str
    transactional_id: str
    consumer_group: str
    """A group of consumers (KIP-848) whose member is assigned the topic."""
    user: str
    """Has a delegation token."""
    missing: str = "missing"
    """A name that no topic, no group and no transaction has."""
    doomed: str = DOOMED
    """A topic that whoever may delete it deletes."""
    created: str = "created"
    """A topic that is created when it is first asked for."""
    node_id: int = 1

    def of(self, resource_type: ResourceType) -> frozenset[str]:
        """The names of a type that an audit event may have for a request."""
        match resource_type:
            case ResourceType.TOPIC:
                return frozenset({self.topic, self.missing, self.doomed, self.created})
            case ResourceType.GROUP:
                return frozenset({self.group, self.missing})
            case ResourceType.TRANSACTIONAL_ID:
                return frozenset({self.transactional_id, self.missing})
            case ResourceType.USER:
                return frozenset({f"User:{self.user}"})
            case _:
                return frozenset({"kafka-cluster"})


class Need(NamedTuple):
    """Rights of which a client needs one, and the error code where it has none of them."""

    code: ErrorCode
    rights: tuple[Right, ...]


def need(code: ErrorCode, *alternatives: Right) -> Need:
    return Need(code, alternatives)


Values = Callable[[Names], Mapping[str, Any]]


class GuardedRequest(NamedTuple):
    """A request, and what it needs, in the order in which it is asked for."""

    label: str
    api_key: ApiKey
    version: int
    values: Values
    needs: tuple[Need, ...]


class FilteredRequest(NamedTuple):
    """A request whose answer has `shown` only with one of the rights."""

    label: str
    api_key: ApiKey
    version: int
    values: Values
    shown: Callable[[Any, Names], bool]
    rights: tuple[Right, ...]
    besides: tuple[Right, ...] = ()
    """Rights without which both are who is shown it and who is not."""


def _batch(producer_id: int | None = None) -> Records:
    return Records(make_batch([Record(offset=0, timestamp=1, value=b"intruder")], transactional_producer=producer_id))


def _produce(names: Names, transactional_id: str | None = None) -> Mapping[str, Any]:
    records = _batch(None if transactional_id is None else 7)
    data = [{"index": 0, "records": records}]
    topic = {"name": names.topic, "topic_id": names.topic_id, "partition_data": data}
    return {"transactional_id": transactional_id, "acks": -1, "timeout": SECONDS, "topic_data": [topic]}


def _fetch(names: Names, replica_id: int = -1) -> Mapping[str, Any]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}
    topic = {"topic": names.topic, "topic_id": names.topic_id, "partitions": [partition]}
    sizes = {"max_wait": timedelta(0), "min_bytes": 0, "max_bytes": 1_000}
    return {"replica_id": replica_id, "topics": [topic], "forgotten_topics_data": [], **sizes}


def _metadata(names: Names, **values: object) -> Mapping[str, Any]:
    topic = {"topic_id": values.pop("topic_id", NO_ID), "name": values.pop("name", names.topic)}
    return {
        "topics": [topic],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
        **values,
    }


def _committed(names: Names) -> list[Mapping[str, Any]]:
    partition = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
    return [{"name": names.topic, "partitions": [partition]}]


def _join(names: Names) -> Mapping[str, Any]:
    protocols = [{"name": "range", "metadata": b""}]
    times = {"session_timeout": timedelta(seconds=10), "rebalance_timeout": timedelta(seconds=10)}
    return {"group_id": names.group, "member_id": "", "protocol_type": "none", "protocols": protocols, **times}


def _member(names: Names, **values: object) -> Mapping[str, Any]:
    return {"group_id": names.group, "generation_id": 1, "member_id": "m", **values}


def _transaction(names: Names, **values: object) -> Mapping[str, Any]:
    return {"transactional_id": names.transactional_id, "producer_id": 7, "producer_epoch": 0, **values}


def _resource(resource_type: int, name: str, configs: list[Mapping[str, Any]] | None = None) -> Mapping[str, Any]:
    row: dict[str, Any] = {"resource_type": resource_type, "resource_name": name}
    if configs is None:
        return {"resources": [{**row, "configuration_keys": None}]}
    return {"resources": [{**row, "configs": configs}], "validate_only": True}


_RETENTION: Final = {"name": "retention.ms", "config_operation": 0, "value": "-1"}
_SESSION: Final = {"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "50000"}
_BROKER: Final = {"name": "log.retention.ms", "config_operation": 0, "value": "604800000"}
_ACL_FILTER: Final = {
    "resource_type_filter": 2,
    "resource_name_filter": "nothing",
    "pattern_type_filter": 3,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
_ACL: Final = {
    "resource_type": 2,
    "resource_name": "nothing",
    "resource_pattern_type": 3,
    "principal": "User:nobody",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}


def _topics(names: Names, **values: object) -> Mapping[str, Any]:
    return {"topics": [{"name": names.topic, **values}], "timeout": SECONDS}


READ_T: Final = need(TOPIC_DENIED, rights.READ_TOPIC)
WRITE_T: Final = need(TOPIC_DENIED, rights.WRITE_TOPIC)
DESCRIBE_T: Final = need(TOPIC_DENIED, rights.DESCRIBE_TOPIC)
READ_G: Final = need(GROUP_DENIED, rights.READ_GROUP)
DESCRIBE_G: Final = need(GROUP_DENIED, rights.DESCRIBE_GROUP)
DELETE_G: Final = need(GROUP_DENIED, rights.DELETE_GROUP)
WRITE_X: Final = need(TRANSACTION_DENIED, rights.WRITE_TRANSACTION)
DESCRIBE_X: Final = need(TRANSACTION_DENIED, rights.DESCRIBE_TRANSACTION)
ALTER_K: Final = need(CLUSTER_DENIED, ALTER_CLUSTER)
DESCRIBE_K: Final = need(CLUSTER_DENIED, rights.DESCRIBE_CLUSTER)
SHOW_CONFIGS_K: Final = need(CLUSTER_DENIED, rights.DESCRIBE_CONFIGS_CLUSTER)
SET_CONFIGS_K: Final = need(CLUSTER_DENIED, rights.ALTER_CONFIGS_CLUSTER)

GUARDED: Final[tuple[GuardedRequest, ...]] = (
    GuardedRequest("Produce", ApiKey.PRODUCE, 9, _produce, (WRITE_T,)),
    GuardedRequest("Produce by id", ApiKey.PRODUCE, 13, _produce, (WRITE_T,)),
    GuardedRequest("Produce in a transaction", ApiKey.PRODUCE, 9,
                   lambda n: _produce(n, n.transactional_id), (WRITE_X, WRITE_T)),
    GuardedRequest("Fetch", ApiKey.FETCH, 12, _fetch, (READ_T,)),
    GuardedRequest("Fetch by id", ApiKey.FETCH, 17, _fetch, (READ_T,)),
    GuardedRequest("Fetch as a replica", ApiKey.FETCH, 12, lambda n: _fetch(n, 1),
                   (need(TOPIC_DENIED, rights.ACT_ON_CLUSTER),)),
    GuardedRequest("ListOffsets", ApiKey.LIST_OFFSETS, 7, lambda n: {
        "replica_id": -1, "isolation_level": 0,
        "topics": [{"name": n.topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]}, (DESCRIBE_T,)),
    GuardedRequest("Metadata", ApiKey.METADATA, 12, _metadata, (DESCRIBE_T,)),
    GuardedRequest("Metadata that creates", ApiKey.METADATA, 12,
                   lambda n: _metadata(n, name=n.created, allow_auto_topic_creation=True),
                   (need(TOPIC_DENIED, rights.CREATE_CLUSTER, rights.CREATE_TOPIC),)),
    GuardedRequest("DescribeTopicPartitions", ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0,
                   lambda n: {"topics": [{"name": n.topic}], "response_partition_limit": 10}, (DESCRIBE_T,)),
    GuardedRequest("OffsetForLeaderEpoch", ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, lambda n: {
        "topics": [{"topic": n.topic, "partitions": [{"partition": 0, "leader_epoch": 0}]}]},
        (need(TOPIC_DENIED, rights.ACT_ON_CLUSTER, rights.DESCRIBE_TOPIC),)),
    GuardedRequest("InitProducerId", ApiKey.INIT_PRODUCER_ID, 4,
                   lambda _: {"transactional_id": None, "transaction_timeout": SECONDS},
                   (need(CLUSTER_DENIED, rights.WRITE_IDEMPOTENTLY, rights.WRITE_TOPIC),)),
    GuardedRequest("InitProducerId for a transaction", ApiKey.INIT_PRODUCER_ID, 4,
                   lambda n: {"transactional_id": n.missing, "transaction_timeout": SECONDS}, (WRITE_X,)),
    GuardedRequest("AddPartitionsToTxn", ApiKey.ADD_PARTITIONS_TO_TXN, 3, lambda n: {
        "v3_and_below_transactional_id": n.transactional_id, "v3_and_below_producer_id": 7,
        "v3_and_below_producer_epoch": 0, "v3_and_below_topics": [{"name": n.topic, "partitions": [0]}]},
        (WRITE_X, WRITE_T)),
    GuardedRequest("AddPartitionsToTxn of agents", ApiKey.ADD_PARTITIONS_TO_TXN, 5, lambda n: {
        "transactions": [_transaction(n, verify_only=True, topics=[{"name": n.topic, "partitions": [0]}])]},
        (need(CLUSTER_DENIED, rights.ACT_ON_CLUSTER),)),
    GuardedRequest("AddOffsetsToTxn", ApiKey.ADD_OFFSETS_TO_TXN, 3,
                   lambda n: _transaction(n, group_id=n.group), (WRITE_X, READ_G)),
    GuardedRequest("TxnOffsetCommit", ApiKey.TXN_OFFSET_COMMIT, 3,
                   lambda n: _transaction(n, group_id=n.group, topics=_committed(n)), (WRITE_X, READ_G, READ_T)),
    GuardedRequest("EndTxn", ApiKey.END_TXN, 3, lambda n: _transaction(n, committed=False), (WRITE_X,)),
    GuardedRequest("WriteTxnMarkers", ApiKey.WRITE_TXN_MARKERS, 1, lambda n: {"markers": [{
        "producer_id": 99, "producer_epoch": 0, "transaction_result": False, "coordinator_epoch": 0,
        "topics": [{"name": n.topic, "partition_indexes": [0]}]}]},
        (need(CLUSTER_DENIED, ALTER_CLUSTER, rights.ACT_ON_CLUSTER),)),
    GuardedRequest("DescribeTransactions", ApiKey.DESCRIBE_TRANSACTIONS, 0,
                   lambda n: {"transactional_ids": [n.transactional_id]}, (DESCRIBE_X,)),
    GuardedRequest("DescribeProducers", ApiKey.DESCRIBE_PRODUCERS, 0,
                   lambda n: {"topics": [{"name": n.topic, "partition_indexes": [0]}]}, (READ_T,)),
    GuardedRequest("FindCoordinator of a group", ApiKey.FIND_COORDINATOR, 4,
                   lambda n: {"key_type": 0, "coordinator_keys": [n.group]}, (DESCRIBE_G,)),
    GuardedRequest("FindCoordinator of a transaction", ApiKey.FIND_COORDINATOR, 4,
                   lambda n: {"key_type": 1, "coordinator_keys": [n.transactional_id]}, (DESCRIBE_X,)),
    GuardedRequest("JoinGroup", ApiKey.JOIN_GROUP, 5, _join, (READ_G,)),
    GuardedRequest("SyncGroup", ApiKey.SYNC_GROUP, 3, lambda n: _member(n, assignments=[]), (READ_G,)),
    GuardedRequest("Heartbeat", ApiKey.HEARTBEAT, 3, _member, (READ_G,)),
    GuardedRequest("LeaveGroup", ApiKey.LEAVE_GROUP, 3,
                   lambda n: {"group_id": n.group, "members": [{"member_id": "m"}]}, (READ_G,)),
    GuardedRequest("ConsumerGroupHeartbeat", ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, lambda n: {
        "group_id": n.missing, "member_id": "A" * 22, "member_epoch": 0, "rebalance_timeout": SECONDS,
        "subscribed_topic_names": [n.topic], "topic_partitions": []}, (READ_G, DESCRIBE_T)),
    GuardedRequest("ConsumerGroupDescribe", ApiKey.CONSUMER_GROUP_DESCRIBE, 1,
                   lambda n: {"group_ids": [n.group], "include_authorized_operations": False}, (DESCRIBE_G,)),
    GuardedRequest("OffsetCommit", ApiKey.OFFSET_COMMIT, 8,
                   lambda n: {"group_id": n.group, "member_id": "", "topics": _committed(n)}, (READ_G, READ_T)),
    GuardedRequest("OffsetFetch", ApiKey.OFFSET_FETCH, 8, lambda n: {
        "groups": [{"group_id": n.group, "topics": [{"name": n.topic, "partition_indexes": [0]}]}]},
        (DESCRIBE_G, DESCRIBE_T)),
    GuardedRequest("OffsetDelete", ApiKey.OFFSET_DELETE, 0, lambda n: {
        "group_id": n.group, "topics": [{"name": n.topic, "partitions": [{"partition_index": 7}]}]},
        (DELETE_G, READ_T)),
    GuardedRequest("DeleteGroups", ApiKey.DELETE_GROUPS, 2, lambda n: {"groups_names": [n.missing]}, (DELETE_G,)),
    GuardedRequest("DescribeGroups", ApiKey.DESCRIBE_GROUPS, 5,
                   lambda n: {"groups": [n.group], "include_authorized_operations": False}, (DESCRIBE_G,)),
    GuardedRequest("CreateTopics", ApiKey.CREATE_TOPICS, 7, lambda n: {
        "topics": [{"name": n.missing, "num_partitions": 1, "replication_factor": 1, "assignments": [],
                    "configs": []}], "timeout": SECONDS, "validate_only": True},
        (need(TOPIC_DENIED, rights.CREATE_CLUSTER, rights.CREATE_TOPIC),
         need(TOPIC_DENIED, rights.DESCRIBE_CONFIGS_TOPIC))),
    GuardedRequest("DeleteTopics", ApiKey.DELETE_TOPICS, 6, lambda n: {
        "topics": [{"name": n.doomed, "topic_id": NO_ID}], "timeout": SECONDS},
        (need(TOPIC_DENIED, rights.DELETE_CLUSTER, rights.DELETE_TOPIC),)),
    GuardedRequest("DeleteRecords", ApiKey.DELETE_RECORDS, 2,
                   lambda n: _topics(n, partitions=[{"partition_index": 0, "offset": 0}]),
                   (need(TOPIC_DENIED, rights.DELETE_TOPIC),)),
    GuardedRequest("CreatePartitions", ApiKey.CREATE_PARTITIONS, 3,
                   lambda n: {**_topics(n, count=5, assignments=None), "validate_only": True},
                   (need(TOPIC_DENIED, rights.ALTER_TOPIC),)),
    GuardedRequest("DescribeConfigs of a topic", ApiKey.DESCRIBE_CONFIGS, 4, lambda n: _resource(2, n.topic),
                   (need(TOPIC_DENIED, rights.DESCRIBE_CONFIGS_TOPIC),)),
    GuardedRequest("DescribeConfigs of a group", ApiKey.DESCRIBE_CONFIGS, 4, lambda n: _resource(32, n.group),
                   (need(GROUP_DENIED, rights.DESCRIBE_CONFIGS_GROUP),)),
    GuardedRequest("DescribeConfigs of a broker", ApiKey.DESCRIBE_CONFIGS, 4,
                   lambda n: _resource(4, str(n.node_id)), (SHOW_CONFIGS_K,)),
    GuardedRequest("DescribeConfigs of loggers", ApiKey.DESCRIBE_CONFIGS, 4,
                   lambda n: _resource(8, str(n.node_id)), (SHOW_CONFIGS_K,)),
    GuardedRequest("DescribeConfigs of metrics", ApiKey.DESCRIBE_CONFIGS, 4,
                   lambda _: _resource(16, "m"), (SHOW_CONFIGS_K,)),
    GuardedRequest("AlterConfigs of a topic", ApiKey.ALTER_CONFIGS, 2, lambda n: _resource(2, n.topic, [_RETENTION]),
                   (need(TOPIC_DENIED, rights.ALTER_CONFIGS_TOPIC),)),
    GuardedRequest("AlterConfigs of a group", ApiKey.ALTER_CONFIGS, 2, lambda n: _resource(32, n.group, [_SESSION]),
                   (need(GROUP_DENIED, rights.ALTER_CONFIGS_GROUP),)),
    GuardedRequest("AlterConfigs of a broker", ApiKey.ALTER_CONFIGS, 2,
                   lambda n: _resource(4, str(n.node_id), [_BROKER]), (SET_CONFIGS_K,)),
    GuardedRequest("IncrementalAlterConfigs of a topic", ApiKey.INCREMENTAL_ALTER_CONFIGS, 1,
                   lambda n: _resource(2, n.topic, [_RETENTION]), (need(TOPIC_DENIED, rights.ALTER_CONFIGS_TOPIC),)),
    GuardedRequest("IncrementalAlterConfigs of a group", ApiKey.INCREMENTAL_ALTER_CONFIGS, 1,
                   lambda n: _resource(32, n.group, [_SESSION]), (need(GROUP_DENIED, rights.ALTER_CONFIGS_GROUP),)),
    GuardedRequest("IncrementalAlterConfigs of a broker", ApiKey.INCREMENTAL_ALTER_CONFIGS, 1,
                   lambda n: _resource(4, str(n.node_id), [_BROKER]), (SET_CONFIGS_K,)),
    GuardedRequest("ListConfigResources", ApiKey.LIST_CONFIG_RESOURCES, 1, lambda _: {}, (SHOW_CONFIGS_K,)),
    GuardedRequest("DescribeClientQuotas", ApiKey.DESCRIBE_CLIENT_QUOTAS, 1,
                   lambda _: {"components": [], "strict": False}, (SHOW_CONFIGS_K,)),
    GuardedRequest("AlterClientQuotas", ApiKey.ALTER_CLIENT_QUOTAS, 1, lambda _: {"entries": [{
        "entity": [{"entity_type": "user", "entity_name": "nobody"}],
        "ops": [{"key": "producer_byte_rate", "value": 1_000.0, "remove": False}]}], "validate_only": True},
        (SET_CONFIGS_K,)),
    GuardedRequest("DescribeAcls", ApiKey.DESCRIBE_ACLS, 3, lambda _: _ACL_FILTER, (DESCRIBE_K,)),
    GuardedRequest("CreateAcls", ApiKey.CREATE_ACLS, 3, lambda _: {"creations": [_ACL]}, (ALTER_K,)),
    GuardedRequest("DeleteAcls", ApiKey.DELETE_ACLS, 3, lambda _: {"filters": [_ACL_FILTER]}, (ALTER_K,)),
    GuardedRequest("DescribeUserScramCredentials", ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0,
                   lambda _: {"users": [{"name": "nobody"}]}, (DESCRIBE_K,)),
    GuardedRequest("AlterUserScramCredentials", ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0,
                   lambda _: {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []}, (ALTER_K,)),
    GuardedRequest("DescribeLogDirs", ApiKey.DESCRIBE_LOG_DIRS, 4, lambda _: {"topics": None}, (DESCRIBE_K,)),
    GuardedRequest("AlterReplicaLogDirs", ApiKey.ALTER_REPLICA_LOG_DIRS, 2, lambda n: {
        "dirs": [{"path": "/nowhere", "topics": [{"name": n.topic, "partitions": [0]}]}]}, (ALTER_K,)),
    GuardedRequest("DescribeQuorum", ApiKey.DESCRIBE_QUORUM, 1, lambda _: {
        "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}, (DESCRIBE_K,)),
    GuardedRequest("ElectLeaders", ApiKey.ELECT_LEADERS, 2, lambda n: {
        "election_type": 0, "topic_partitions": [{"topic": n.topic, "partitions": [0]}]}, (ALTER_K,)),
    GuardedRequest("AlterPartitionReassignments", ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0,
                   lambda _: {"topics": []}, (ALTER_K,)),
    GuardedRequest("ListPartitionReassignments", ApiKey.LIST_PARTITION_REASSIGNMENTS, 0,
                   lambda _: {"topics": None}, (DESCRIBE_K,)),
    GuardedRequest("UpdateFeatures", ApiKey.UPDATE_FEATURES, 1,
                   lambda _: {"feature_updates": [], "validate_only": True}, (ALTER_K,)),
    GuardedRequest("CreateDelegationToken for another", ApiKey.CREATE_DELEGATION_TOKEN, 3, lambda n: {
        "owner_principal_type": "User", "owner_principal_name": n.user, "renewers": [], "max_lifetime": SECONDS * 100},
        (need(TOKEN_DENIED, rights.CREATE_TOKENS_USER),)),
)  # fmt: skip

FILTERED: Final[tuple[FilteredRequest, ...]] = (
    FilteredRequest("Metadata of all topics", ApiKey.METADATA, 12,
                    lambda _: {"topics": None, "allow_auto_topic_creation": False,
                               "include_topic_authorized_operations": False},
                    lambda answer, n: n.topic in repr(answer), (rights.DESCRIBE_TOPIC,)),
    FilteredRequest("DescribeTopicPartitions of all topics", ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0,
                    lambda _: {"topics": []}, lambda answer, n: n.topic in repr(answer), (rights.DESCRIBE_TOPIC,)),
    FilteredRequest("ListGroups", ApiKey.LIST_GROUPS, 4, lambda _: {"states_filter": []},
                    lambda answer, n: n.group in repr(answer), (rights.DESCRIBE_CLUSTER, rights.DESCRIBE_GROUP)),
    FilteredRequest("ListTransactions", ApiKey.LIST_TRANSACTIONS, 1, lambda _: {},
                    lambda answer, n: n.transactional_id in repr(answer), (rights.DESCRIBE_TRANSACTION,)),
    FilteredRequest("OffsetFetch of all topics", ApiKey.OFFSET_FETCH, 8,
                    lambda n: {"groups": [{"group_id": n.group, "topics": None}]},
                    lambda answer, n: n.topic in repr(answer), (rights.DESCRIBE_TOPIC,)),
    FilteredRequest("Topics in DescribeTransactions", ApiKey.DESCRIBE_TRANSACTIONS, 0,
                    lambda n: {"transactional_ids": [n.transactional_id]},
                    lambda answer, n: n.topic in repr(answer), (rights.DESCRIBE_TOPIC,)),
    FilteredRequest("Members in ConsumerGroupDescribe", ApiKey.CONSUMER_GROUP_DESCRIBE, 1,
                    lambda n: {"group_ids": [n.consumer_group], "include_authorized_operations": False},
                    lambda answer, n: n.topic in repr(answer), (rights.DESCRIBE_TOPIC,)),
    FilteredRequest("DescribeDelegationToken", ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, lambda _: {"owners": None},
                    lambda answer, n: n.user in repr(answer), (rights.DESCRIBE_TOKEN, rights.DESCRIBE_TOKENS_USER)),
    FilteredRequest("Operations in DescribeCluster", ApiKey.DESCRIBE_CLUSTER, 0,
                    lambda _: {"include_cluster_authorized_operations": True},
                    lambda answer, _: answer.cluster_authorized_operations != 0, (rights.DESCRIBE_CLUSTER,)),
    FilteredRequest("Operations on the cluster in Metadata", ApiKey.METADATA, 8,
                    lambda n: _metadata(n, include_cluster_authorized_operations=True),
                    lambda answer, _: answer.cluster_authorized_operations != 0, (rights.DESCRIBE_CLUSTER,)),
    FilteredRequest("Metadata by id", ApiKey.METADATA, 12, lambda n: _metadata(n, topic_id=n.topic_id, name=None),
                    lambda answer, n: n.topic in repr(answer), (rights.DESCRIBE_TOPIC,)),
    FilteredRequest("DeleteTopics by id", ApiKey.DELETE_TOPICS, 6,
                    lambda n: {"topics": [{"name": None, "topic_id": n.topic_id}], "timeout": SECONDS},
                    lambda answer, n: n.topic in repr(answer), (rights.DESCRIBE_TOPIC,),
                    (rights.DELETE_CLUSTER, rights.DELETE_TOPIC)),
)  # fmt: skip


def guarded_rights(api_key: ApiKey) -> set[Right]:
    """The rights of an API that the rows reach."""
    needed = {right for row in GUARDED if row.api_key is api_key for each in row.needs for right in each.rights}
    return needed | {right for row in FILTERED if row.api_key is api_key for right in row.rights}
