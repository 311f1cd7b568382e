"""One request of each API, by a principal without rights and with each single right, as recorded on Kafka 4.3.1.

Only the error codes of authorisation are compared: what is found beyond them depends on what exists.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from agent.request.services import NoAnswerOwed, Services
from agent.security.rights import Rights
from protocol.api_versions import API_VERSIONS, ApiKey
from protocol.auth.operations import Operation, ResourceType
from tests.support.agent.data_paths import data_paths, services_of
from tests.support.commands.commands import TOPIC
from tests.support.handlers.handler_client import ask
from tests.support.handlers.stalled_ledger import Impatient
from tests.support.records.plain_records import Record, make_batch
from tests.support.security.fixed_rights import no_rights, single_right

RECORDED = Path(__file__).with_name("kafka-4.3.1-rights.txt")
AUTHORIZATION = {29, 30, 31, 53, 65}
SINGLE_RIGHTS = {
    ResourceType.TOPIC: "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    ResourceType.GROUP: "READ DELETE DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    ResourceType.CLUSTER: "CREATE ALTER DESCRIBE DELETE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE",
    ResourceType.TRANSACTIONAL_ID: "WRITE DESCRIBE",
}
SECOND = timedelta(seconds=1)


class Recorded(NamedTuple):
    """The codes of authorisation that Kafka answers to one request."""

    without: frozenset[int]
    changes: Mapping[str, frozenset[int]]
    """By the single rights that change them."""


def recorded() -> Iterator[tuple[str, Recorded]]:
    for line in RECORDED.read_text().splitlines():
        if not line.startswith("#"):
            name, without, changes = (part.strip() for part in line.split("|"))
            rows = (row.split("=") for row in changes.split())
            yield name, Recorded(_codes(without), {right: _codes(codes) for right, codes in rows})


def _codes(text: str) -> frozenset[int]:
    return frozenset(int(code) for code in text.split(",") if code.isdecimal()) & AUTHORIZATION


_PRODUCER = {"transactional_id": "x1", "producer_id": 7, "producer_epoch": 0}


_WRITE = {"transactional_id": None, "acks": -1, "timeout": timedelta(milliseconds=1)}
_RECORDS = [{"index": 0, "records": make_batch([Record(offset=0, timestamp=1, value=b"v")])}]
_OFFSETS = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]}]
_FETCH = {
    "max_wait": timedelta(milliseconds=1),
    "min_bytes": 0,
    "max_bytes": 1000,
    "session_epoch": -1,
    "forgotten_topics_data": [],
    "topics": [{"topic": "t", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]}],
}
_CONFIG = {"resource_name": "t", "configuration_keys": None}
_ANY = {
    "operation": 1,
    "permission_type": 1,
    "resource_name_filter": None,
    "principal_filter": None,
    "host_filter": None,
}
_NO_OPERATIONS = {"include_topic_authorized_operations": False}
_MARKER = {"producer_id": 99, "producer_epoch": 0, "transaction_result": False, "coordinator_epoch": 0}


def _incremental(resource: Mapping[str, Any]) -> tuple[ApiKey, int, Mapping[str, Any]]:
    return ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": True}


def _altered(resource_type: int, name: str) -> dict[str, Any]:
    configs = [{"name": "retention.ms", "config_operation": 0, "value": "-1"}]
    return {"resource_type": resource_type, "resource_name": name, "configs": configs}


REQUESTS: Final[Mapping[str, tuple[ApiKey, int, Mapping[str, Any]]]] = {
    "Produce": (ApiKey.PRODUCE, 9, _WRITE | {"topic_data": [{"name": "t", "partition_data": _RECORDS}]}),
    "Produce by id": (
        ApiKey.PRODUCE,
        13,
        _WRITE | {"topic_data": [{"topic_id": uuid.UUID(bytes=TOPIC), "partition_data": _RECORDS}]},
    ),
    "Fetch": (ApiKey.FETCH, 12, _FETCH | {"replica_id": -1}),
    "Fetch as replica": (ApiKey.FETCH, 12, _FETCH | {"replica_id": 1}),
    "ListOffsets": (
        ApiKey.LIST_OFFSETS,
        7,
        {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        },
    ),
    "Metadata": (
        ApiKey.METADATA,
        12,
        {"topics": [{"name": "t", "topic_id": None}], "allow_auto_topic_creation": False, **_NO_OPERATIONS},
    ),
    "Metadata auto-create": (
        ApiKey.METADATA,
        12,
        {"topics": [{"name": "new", "topic_id": None}], "allow_auto_topic_creation": True, **_NO_OPERATIONS},
    ),
    "DescribeTopicPartitions": (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [{"name": "t"}]}),
    "OffsetCommit": (ApiKey.OFFSET_COMMIT, 8, {"group_id": "g1", "member_id": "", "topics": _OFFSETS}),
    "OffsetFetch": (
        ApiKey.OFFSET_FETCH,
        8,
        {"groups": [{"group_id": "g1", "topics": [{"name": "t", "partition_indexes": [0]}]}]},
    ),
    "OffsetFetch all": (ApiKey.OFFSET_FETCH, 8, {"groups": [{"group_id": "g1", "topics": None}]}),
    "FindCoordinator group": (ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g1"]}),
    "FindCoordinator txn": (ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ["x1"]}),
    "JoinGroup": (
        ApiKey.JOIN_GROUP,
        5,
        {
            "group_id": "gj",
            "member_id": "",
            "session_timeout": 10 * SECOND,
            "rebalance_timeout": 10 * SECOND,
            "protocol_type": "x",
            "protocols": [{"name": "a", "metadata": b""}],
        },
    ),
    "Heartbeat": (ApiKey.HEARTBEAT, 3, {"group_id": "g1", "generation_id": 1, "member_id": "m"}),
    "SyncGroup": (
        ApiKey.SYNC_GROUP,
        3,
        {"group_id": "g1", "generation_id": 1, "member_id": "m", "assignments": []},
    ),
    "LeaveGroup": (ApiKey.LEAVE_GROUP, 3, {"group_id": "g1", "members": [{"member_id": "m"}]}),
    "DescribeGroups": (ApiKey.DESCRIBE_GROUPS, 5, {"groups": ["g1"], "include_authorized_operations": True}),
    "DeleteGroups": (ApiKey.DELETE_GROUPS, 2, {"groups_names": ["gone"]}),
    "OffsetDelete": (
        ApiKey.OFFSET_DELETE,
        0,
        {"group_id": "g1", "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}]},
    ),
    "ConsumerGroupHeartbeat": (
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        {"group_id": "gc", "member_id": "AAAAAAAAAAAAAAAAAAAAAA", "member_epoch": -1, "topic_partitions": None},
    ),
    "ConsumerGroupDescribe": (
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        1,
        {"group_ids": ["g1"], "include_authorized_operations": True},
    ),
    "InitProducerId": (ApiKey.INIT_PRODUCER_ID, 4, {"transaction_timeout": SECOND, "transactional_id": None}),
    "InitProducerId txn": (ApiKey.INIT_PRODUCER_ID, 4, {"transaction_timeout": SECOND, "transactional_id": "x2"}),
    "AddPartitionsToTxn": (
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        {
            "v3_and_below_transactional_id": "x1",
            "v3_and_below_producer_id": 7,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [{"name": "t", "partitions": [0]}],
        },
    ),
    "AddPartitionsToTxn v4": (
        ApiKey.ADD_PARTITIONS_TO_TXN,
        5,
        {"transactions": [{**_PRODUCER, "verify_only": True, "topics": [{"name": "t", "partitions": [0]}]}]},
    ),
    "AddOffsetsToTxn": (ApiKey.ADD_OFFSETS_TO_TXN, 3, {**_PRODUCER, "group_id": "g1"}),
    "TxnOffsetCommit": (ApiKey.TXN_OFFSET_COMMIT, 3, {**_PRODUCER, "group_id": "g1", "topics": _OFFSETS}),
    "EndTxn": (ApiKey.END_TXN, 3, {**_PRODUCER, "committed": False}),
    "WriteTxnMarkers": (
        ApiKey.WRITE_TXN_MARKERS,
        1,
        {"markers": [{**_MARKER, "topics": [{"name": "t", "partition_indexes": [0]}]}]},
    ),
    "OffsetForLeaderEpoch": (
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        {"replica_id": -2, "topics": [{"topic": "t", "partitions": [{"partition": 0, "leader_epoch": 0}]}]},
    ),
    "CreateTopics": (
        ApiKey.CREATE_TOPICS,
        7,
        {
            "topics": [{"name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}],
            "timeout": SECOND,
            "validate_only": True,
        },
    ),
    "DeleteTopics": (ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": "tx", "topic_id": None}], "timeout": SECOND}),
    "DeleteRecords": (
        ApiKey.DELETE_RECORDS,
        2,
        {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": 0}]}], "timeout": SECOND},
    ),
    "CreatePartitions": (
        ApiKey.CREATE_PARTITIONS,
        3,
        {
            "topics": [{"name": "t", "count": 2, "assignments": None}],
            "timeout": SECOND,
            "validate_only": True,
        },
    ),
    "DescribeConfigs topic": (ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [_CONFIG | {"resource_type": 2}]}),
    "DescribeConfigs broker": (ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [_CONFIG | {"resource_type": 4}]}),
    "DescribeConfigs logger": (ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [_CONFIG | {"resource_type": 8}]}),
    "DescribeConfigs metrics": (ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [_CONFIG | {"resource_type": 16}]}),
    "DescribeConfigs group": (ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [_CONFIG | {"resource_type": 32}]}),
    "IncrementalAlterConfigs topic": _incremental(_altered(2, "t")),
    "IncrementalAlterConfigs broker": _incremental(_altered(4, "")),
    "IncrementalAlterConfigs logger": _incremental(_altered(8, "1")),
    "IncrementalAlterConfigs group": _incremental(_altered(32, "g1")),
    "AlterConfigs topic": (
        ApiKey.ALTER_CONFIGS,
        2,
        {
            "resources": [
                {"resource_type": 2, "resource_name": "t", "configs": [{"name": "retention.ms", "value": "-1"}]}
            ],
            "validate_only": True,
        },
    ),
    "ListConfigResources": (ApiKey.LIST_CONFIG_RESOURCES, 1, {}),
    "DescribeLogDirs": (ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None}),
    "AlterReplicaLogDirs": (
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        2,
        {"dirs": [{"path": "/nowhere", "topics": [{"name": "t", "partitions": [0]}]}]},
    ),
    "DescribeAcls": (ApiKey.DESCRIBE_ACLS, 3, {"resource_type_filter": 1, "pattern_type_filter": 1, **_ANY}),
    "CreateAcls": (ApiKey.CREATE_ACLS, 3, {"creations": []}),
    "CreateAcls one": (
        ApiKey.CREATE_ACLS,
        3,
        {
            "creations": [
                {
                    "resource_type": 2,
                    "resource_name": "zz",
                    "resource_pattern_type": 3,
                    "principal": "User:zz",
                    "host": "*",
                    "operation": 3,
                    "permission_type": 3,
                }
            ]
        },
    ),
    "DeleteAcls": (
        ApiKey.DELETE_ACLS,
        3,
        {"filters": [{"resource_type_filter": 2, "pattern_type_filter": 3, **_ANY}]},
    ),
    "DescribeClientQuotas": (ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False}),
    "AlterClientQuotas": (ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": [], "validate_only": True}),
    "AlterClientQuotas one": (
        ApiKey.ALTER_CLIENT_QUOTAS,
        1,
        {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "zz"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}],
                }
            ],
            "validate_only": True,
        },
    ),
    "AlterUserScramCredentials": (
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        {"deletions": [{"name": "zz", "mechanism": 1}], "upsertions": []},
    ),
    "ElectLeaders": (
        ApiKey.ELECT_LEADERS,
        2,
        {"election_type": 0, "topic_partitions": [{"topic": "t", "partitions": [0]}], "timeout": SECOND},
    ),
    "AlterPartitionReassignments": (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"timeout": SECOND, "topics": []}),
    "ListPartitionReassignments": (ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"timeout": SECOND, "topics": None}),
    "UpdateFeatures": (
        ApiKey.UPDATE_FEATURES,
        1,
        {"timeout": SECOND, "feature_updates": [], "validate_only": True},
    ),
    "DescribeCluster": (ApiKey.DESCRIBE_CLUSTER, 0, {"include_cluster_authorized_operations": True}),
    "DescribeQuorum": (
        ApiKey.DESCRIBE_QUORUM,
        1,
        {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
    ),
    "DescribeProducers": (ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": [{"name": "t", "partition_indexes": [0]}]}),
    "DescribeTransactions": (ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["x1"]}),
}
"""The requests of the recording, by name."""


@asynccontextmanager
async def serving() -> AsyncIterator[Services]:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, Impatient(), tasks)
        offset = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
        fields = {"group_id": "g1", "member_id": "", "topics": [{"name": "t", "partitions": [offset]}]}
        await ask(services, ApiKey.OFFSET_COMMIT, 8, **fields)
        yield services


async def codes_of(services: Services, rights: Rights, name: str) -> set[int]:
    """The codes of authorisation in the response."""
    api_key, version, fields = REQUESTS[name]
    try:
        answer = await ask(services, api_key, version, None, None, None, rights, **fields)
    except NoAnswerOwed:
        return set()
    return set(_error_codes(answer)) & AUTHORIZATION


def _error_codes(value: object) -> Iterator[int]:
    if isinstance(value, tuple):
        for each in value:
            yield from _error_codes(each)
    elif hasattr(value, "__dataclass_fields__"):
        for field in value.__dataclass_fields__:
            part = getattr(value, field)
            if field.endswith("error_code"):
                yield int(part)
            else:
                yield from _error_codes(part)


@pytest.mark.parametrize(("name", "expected"), [pytest.param(*row, id=row[0]) for row in recorded()])
async def test_each_single_right_allows_what_it_allows_in_kafka(name: str, expected: Recorded) -> None:
    async with serving() as services:
        assert await codes_of(services, no_rights(), name) == expected.without
        for resource_type, operations in SINGLE_RIGHTS.items():
            for operation in operations.split():
                rights = single_right(Operation[operation], resource_type)
                right = f"{resource_type.name}:{operation}"
                assert await codes_of(services, rights, name) == expected.changes.get(right, expected.without), right


def test_every_api_that_asks_for_a_right_is_recorded() -> None:
    recorded_names = {name.split()[0].lower() for name, _ in recorded()}
    unknown = {row.name for row in API_VERSIONS if row.name.lower() not in recorded_names}
    assert unknown == {
        "ListGroups",
        "ListTransactions",
        "ApiVersions",
        "SaslHandshake",
        "SaslAuthenticate",
        "CreateDelegationToken",
        "DescribeUserScramCredentials",
        "RenewDelegationToken",
        "ExpireDelegationToken",
        "DescribeDelegationToken",
        "GetTelemetrySubscriptions",
        "PushTelemetry",
    }
