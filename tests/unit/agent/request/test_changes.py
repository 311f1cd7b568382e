"""The changes of requests, as the audit log words them: through handlers, and for failed ones by their body alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest

from agent.request.changes import CHANGES, RequestedChange
from agent.request.messages import Values
from agent.request.services import Services
from agent.server.dispatch import HANDLERS
from coordinator.commands.admin import ConfigResourceType, OperationKind
from protocol.api_versions import ApiKey
from protocol.auth.operations import Operation, PatternType, Permission, ResourceType
from protocol.errors import ErrorCode
from tests.support.agent.audit_logs import KeptAuditLog
from tests.support.agent.data_paths import data_paths, services_of
from tests.support.handlers.handler_client import TIMEOUT, ask

INCREMENTAL = ApiKey.INCREMENTAL_ALTER_CONFIGS


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Services, KeptAuditLog]]:
    """The services of an agent with the topic `t`, and its audit log."""
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        audit = KeptAuditLog()
        yield replace(services_of(paths, paths.parts.clock, tasks), audit_log=audit, tasks=tasks), audit


async def recorded(audit: KeptAuditLog) -> list[tuple[str, str, str, str]]:
    """API, resource, operation and detail of the changes since the last call, and decisions other than `changed`."""
    await audit.flush()
    lines, audit.sink.records = audit.sink.lines, []
    return [
        (line["api"], line["resource"], line["operation"], line["detail"])
        if line["decision"] == "changed"
        else (line["api"], line["resource"], line["operation"], f"{line['decision']}: {line['detail']}")
        for line in lines
    ]


def of_failed(api_key: ApiKey, body: SimpleNamespace) -> list[tuple[str, str]]:
    """Resource and text of the changes of a request whose handler failed. None of them is certain."""
    changes = list(CHANGES[api_key](body, None))
    assert not any(change.is_certain for change in changes)
    return [(str(change.resource), change.text) for change in changes]


def made(**fields: object) -> SimpleNamespace:
    return SimpleNamespace(**fields)


def test_every_api_of_the_table_has_a_handler() -> None:
    assert set(CHANGES) <= set(HANDLERS)


async def test_topics_created_grown_and_deleted() -> None:
    async with serving() as (services, audit):
        topic = {
            "name": "a",
            "num_partitions": -1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": "retention.ms", "value": "5"}],
        }
        await ask(
            services,
            ApiKey.CREATE_TOPICS,
            7,
            topics=[topic, topic | {"name": "t", "num_partitions": 1}],
            timeout=TIMEOUT,
            validate_only=False,
        )
        assert await recorded(audit) == [
            ("CreateTopics", "Topic:a", "CREATE", "created with 1 partitions, retention.ms=5")
        ]
        grown = {"name": "a", "count": 4, "assignments": None}
        await ask(services, ApiKey.CREATE_PARTITIONS, 3, topics=[grown], timeout=TIMEOUT, validate_only=False)
        assert await recorded(audit) == [("CreatePartitions", "Topic:a", "ALTER", "grown to 4 partitions")]
        await ask(services, ApiKey.DELETE_TOPICS, 1, topic_names=["a", "none"], timeout=TIMEOUT)
        assert await recorded(audit) == [("DeleteTopics", "Topic:a", "DELETE", "deleted")]


async def test_a_request_that_is_only_validated_changes_nothing() -> None:
    async with serving() as (services, audit):
        topic = {"name": "a", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        await ask(services, ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout=TIMEOUT, validate_only=True)
        grown = {"name": "t", "count": 4, "assignments": None}
        await ask(services, ApiKey.CREATE_PARTITIONS, 3, topics=[grown], timeout=TIMEOUT, validate_only=True)
        entry = {
            "entity": [{"entity_type": "user", "entity_name": "ann"}],
            "ops": [{"key": "producer_byte_rate", "value": 5.0, "remove": False}],
        }
        await ask(services, ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[entry], validate_only=True)
        config = {"name": "retention.ms", "config_operation": OperationKind.SET, "value": "5"}
        resource = {"resource_type": ConfigResourceType.TOPIC, "resource_name": "t", "configs": [config]}
        await ask(services, INCREMENTAL, 1, resources=[resource], validate_only=True)
        assert await recorded(audit) == []


async def test_configs_are_named_with_their_values() -> None:
    async with serving() as (services, audit):
        configs = [
            {"name": "retention.ms", "config_operation": OperationKind.SET, "value": "5"},
            {"name": "cleanup.policy", "config_operation": OperationKind.APPEND, "value": "compact"},
            {"name": "segment.ms", "config_operation": OperationKind.DELETE, "value": None},
        ]
        resources = [
            {"resource_type": ConfigResourceType.TOPIC, "resource_name": "t", "configs": configs},
            {"resource_type": ConfigResourceType.TOPIC, "resource_name": "none", "configs": configs},
            {
                "resource_type": ConfigResourceType.GROUP,
                "resource_name": "g",
                "configs": [
                    {
                        "name": "consumer.session.timeout.ms",
                        "config_operation": OperationKind.SET,
                        "value": "50000",
                    }
                ],
            },
            {
                "resource_type": ConfigResourceType.BROKER,
                "resource_name": "",
                "configs": [{"name": "log.retention.ms", "config_operation": OperationKind.SET, "value": "7"}],
            },
        ]
        await ask(services, INCREMENTAL, 1, resources=resources, validate_only=False)
        assert await recorded(audit) == [
            (
                "IncrementalAlterConfigs",
                "Topic:t",
                "ALTER_CONFIGS",
                "configs: retention.ms=5, APPEND cleanup.policy=compact, segment.ms removed",
            ),
            ("IncrementalAlterConfigs", "Group:g", "ALTER_CONFIGS", "configs: consumer.session.timeout.ms=50000"),
            (
                "IncrementalAlterConfigs",
                "Cluster:kafka-cluster",
                "ALTER_CONFIGS",
                "broker default, configs: log.retention.ms=7",
            ),
        ]
        whole = {"resource_type": ConfigResourceType.TOPIC, "resource_name": "t", "configs": []}
        await ask(services, ApiKey.ALTER_CONFIGS, 2, resources=[whole], validate_only=False)
        assert await recorded(audit) == [("AlterConfigs", "Topic:t", "ALTER_CONFIGS", "configs: all removed")]


@pytest.mark.parametrize(
    "name", ["ssl.keystore.password", "sasl.jaas.config", "ssl.keystore.key", "sasl.client.secret", "my.TOKEN"]
)
def test_values_that_look_like_secrets_are_hidden(name: str) -> None:
    config = made(name=name, config_operation=OperationKind.SET, value="hush")
    for kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER, ConfigResourceType.CLIENT_METRICS):
        body = made(validate_only=False, resources=[made(resource_type=kind, resource_name="1", configs=[config])])
        ((resource, text),) = of_failed(INCREMENTAL, body)
        assert resource == "Cluster:kafka-cluster"
        assert "hush" not in text
        assert f"{name}=[hidden]" in text


async def test_quotas_are_named_with_their_entity() -> None:
    async with serving() as (services, audit):
        entry = {
            "entity": [
                {"entity_type": "user", "entity_name": "ann"},
                {"entity_type": "client-id", "entity_name": None},
            ],
            "ops": [
                {"key": "producer_byte_rate", "value": 1048576.0, "remove": False},
                {"key": "request_percentage", "value": 0.0, "remove": True},
            ],
        }
        wrong = entry | {"ops": [{"key": "unknown", "value": 1.0, "remove": False}]}
        wrong["entity"] = [{"entity_type": "user", "entity_name": "bob"}]
        await ask(services, ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[entry, wrong], validate_only=False)
        assert await recorded(audit) == [
            (
                "AlterClientQuotas",
                "Cluster:kafka-cluster",
                "ALTER_CONFIGS",
                "quotas of user=ann, client-id=default: producer_byte_rate = 1048576, request_percentage removed",
            )
        ]


async def test_deleted_records_are_named_by_partition_and_offset() -> None:
    async with serving() as (services, audit):
        partitions = [{"partition_index": 0, "offset": -1}, {"partition_index": 9, "offset": 5}]
        topics = [{"name": "t", "partitions": partitions}]
        await ask(services, ApiKey.DELETE_RECORDS, 2, topics=topics, timeout=TIMEOUT)
        assert await recorded(audit) == [
            ("DeleteRecords", "Topic:t", "DELETE", "records deleted below the offset of a partition: 0: all")
        ]


async def test_groups_that_are_not_there_are_no_change() -> None:
    async with serving() as (services, audit):
        await ask(services, ApiKey.DELETE_GROUPS, 2, groups_names=["none"])
        topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
        await ask(services, ApiKey.OFFSET_DELETE, 0, group_id="none", topics=topics)
        assert await recorded(audit) == []


async def test_levels_of_features_and_replicas() -> None:
    async with serving() as (services, audit):
        update = {"feature": "transaction.version", "max_version_level": 2, "upgrade_type": 1}
        await ask(services, ApiKey.UPDATE_FEATURES, 2, feature_updates=[update], timeout=TIMEOUT, validate_only=False)
        topics = [{"name": "t", "partitions": [{"partition_index": 0, "replicas": [1]}]}]
        await ask(services, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, topics=topics, timeout=TIMEOUT)
        assert await recorded(audit) == [
            ("UpdateFeatures", "Cluster:kafka-cluster", "ALTER", "levels of features: transaction.version=2"),
            ("AlterPartitionReassignments", "Topic:t", "ALTER", "replicas of partition 0: [1]"),
        ]


ACL = {
    "resource_type": ResourceType.TOPIC,
    "resource_name": "orders",
    "principal": "User:ann",
    "host": "*",
    "operation": Operation.READ,
    "permission_type": Permission.ALLOW,
}


def texts(changes: list[RequestedChange]) -> list[tuple[str, str, bool]]:
    return [(f"{each.resource} {each.resource.pattern.name}", each.text, each.is_certain) for each in changes]


def of_answered(api_key: ApiKey, body: SimpleNamespace, values: Values) -> list[tuple[str, str, bool]]:
    return texts(list(CHANGES[api_key](body, values)))


def test_acls_are_named_in_full() -> None:
    body = made(creations=[made(**ACL, resource_pattern_type=PatternType.PREFIXED), made(**ACL), made(**ACL)])
    codes = (ErrorCode.none, ErrorCode.none, ErrorCode.invalid_request)
    values: Values = {"results": [{"error_code": code} for code in codes]}
    assert of_answered(ApiKey.CREATE_ACLS, body, values) == [
        ("Topic:orders PREFIXED", "ACL created: ALLOW READ to User:ann from *", True),
        ("Topic:orders LITERAL", "ACL created: ALLOW READ to User:ann from *", True),
    ]
    assert len(of_failed(ApiKey.CREATE_ACLS, body)) == 3
    matching = [ACL | {"pattern_type": PatternType.LITERAL}]
    values = {
        "filter_results": [
            {"error_code": ErrorCode.none, "matching_acls": matching},
            {"error_code": ErrorCode.invalid_request, "matching_acls": []},
        ]
    }
    assert of_answered(ApiKey.DELETE_ACLS, made(), values) == [
        ("Topic:orders LITERAL", "ACL deleted: ALLOW READ to User:ann from *", True)
    ]
    failed = made(filters=[made(resource_name_filter=None, principal_filter="User:ann")])
    assert of_failed(ApiKey.DELETE_ACLS, failed) == [
        ("Cluster:kafka-cluster", "ACLs deleted that fit resource None, principal User:ann")
    ]


def test_credentials_are_named_without_their_keys() -> None:
    body = made(
        deletions=[made(name="bob", mechanism=1), made(name="none", mechanism=1)],
        upsertions=[made(name="ann", mechanism=2, iterations=4096, salt=b"salt", salted_password=b"hush")],
    )
    values = {
        "results": [
            {"user": "bob", "error_code": ErrorCode.none},
            {"user": "none", "error_code": ErrorCode.resource_not_found},
            {"user": "ann", "error_code": ErrorCode.none},
        ]
    }
    assert of_answered(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, body, values) == [
        ("User:bob LITERAL", "SCRAM-SHA-256 credential deleted", True),
        ("User:ann LITERAL", "SCRAM-SHA-512 credential set with 4096 iterations", True),
    ]


def test_the_outcome_of_a_failed_request_is_unknown() -> None:
    topic = made(name="a", num_partitions=3, configs=[])
    assert of_failed(ApiKey.CREATE_TOPICS, made(validate_only=False, topics=[topic])) == [
        ("Topic:a", "created with 3 partitions")
    ]
    assert of_failed(ApiKey.DELETE_TOPICS, made(topic_names=["a"])) == [("Topic:a", "deleted")]
    assert of_failed(ApiKey.DELETE_TOPICS, made(topics=[made(name=None, topic_id="id")])) == [("Topic:id", "deleted")]
    partitions = [made(partition_index=0, offset=5)]
    assert of_failed(ApiKey.DELETE_RECORDS, made(topics=[made(name="a", partitions=partitions)])) == [
        ("Topic:a", "records deleted below the offset of a partition: 0: 5")
    ]
    offsets = made(group_id="g", topics=[made(name="a", partitions=partitions)])
    assert of_failed(ApiKey.OFFSET_DELETE, offsets) == [("Group:g", "committed offsets deleted: a: 0")]
    assert of_failed(ApiKey.DELETE_GROUPS, made(groups_names=["g"])) == [("Group:g", "deleted")]
    replicas = [made(partition_index=0, replicas=None)]
    reassignments = made(topics=[made(name="a", partitions=replicas)])
    assert of_failed(ApiKey.ALTER_PARTITION_REASSIGNMENTS, reassignments) == [
        ("Topic:a", "replicas of partition 0: none of its own")
    ]


def test_offsets_and_topics_that_were_answered() -> None:
    body = made(group_id="g", topics=[made(name="a", partitions=[made(partition_index=0), made(partition_index=1)])])
    codes = (ErrorCode.none, ErrorCode.group_subscribed_to_topic)
    rows = [{"partition_index": index, "error_code": code} for index, code in enumerate(codes)]
    values: Values = {"error_code": ErrorCode.none, "topics": [{"name": "a", "partitions": rows}]}
    assert of_answered(ApiKey.OFFSET_DELETE, body, values) == [
        ("Group:g LITERAL", "committed offsets deleted: a: 0", True)
    ]
    values = {"error_code": ErrorCode.coordinator_not_available, "topics": []}
    assert of_answered(ApiKey.OFFSET_DELETE, body, values) == [
        ("Group:g LITERAL", "committed offsets deleted: a: 0, 1", False)
    ]
    values = {"responses": [{"name": None, "topic_id": "id", "error_code": ErrorCode.request_timed_out}]}
    assert of_answered(ApiKey.DELETE_TOPICS, made(), values) == [("Topic:id LITERAL", "deleted", False)]
    values = {"error_code": ErrorCode.request_timed_out, "responses": []}
    assert of_answered(ApiKey.ALTER_PARTITION_REASSIGNMENTS, made(topics=[]), values) == []


async def test_a_topic_that_metadata_creates() -> None:
    async with serving() as (services, audit):
        fields: dict[str, object] = {"topics": [{"name": "new"}], "allow_auto_topic_creation": True}
        await ask(services, ApiKey.METADATA, 4, **fields)
        await ask(services, ApiKey.METADATA, 4, **fields)
        assert await recorded(audit) == [("Metadata", "Topic:new", "CREATE", "created because a client asked for it")]
