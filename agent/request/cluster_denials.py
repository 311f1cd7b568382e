"""The responses of requests that need an operation on the cluster which their principal may not perform.

In: a decoded request. Out: a response with CLUSTER_AUTHORIZATION_FAILED where the version has it: at the top, in every
row, or both. Nothing in it depends on what exists.
Source: `getErrorResponse` of each request class in org.apache.kafka.common.requests (Kafka 4.3).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from agent.request.messages import Values
from protocol.api_versions import ApiKey
from protocol.errors import ErrorCode

ERROR_CODE: Final = ErrorCode.cluster_authorization_failed
MESSAGE: Final = "Cluster authorization failed."
_ERROR: Final[Values] = {"error_code": ERROR_CODE, "error_message": MESSAGE}


def _top(**fields: Any) -> Callable[[Any], Values]:
    """A response with the error at the top, and these fields."""
    return lambda _: {**_ERROR, **fields}


def _markers(body: Any) -> Values:
    return {
        "markers": [
            {
                "producer_id": marker.producer_id,
                "topics": [
                    {"name": topic.name, "partitions": _partitions(topic.partition_indexes)} for topic in marker.topics
                ],
            }
            for marker in body.markers
        ]
    }


def _partitions(indexes: Iterable[int], index_field: str = "partition_index") -> list[dict[str, Any]]:
    return [{index_field: index, **_ERROR} for index in indexes]


def _log_dirs(body: Any) -> Values:
    topics: dict[str, list[int]] = {}
    for directory in body.dirs:
        for topic in directory.topics:
            topics.setdefault(topic.name, []).extend(topic.partitions)
    return {
        "results": [{"topic_name": name, "partitions": _partitions(indexes)} for name, indexes in topics.items()],
    }


def _elections(body: Any) -> Values:
    return {
        **_ERROR,
        "replica_election_results": [
            {"topic": topic.topic, "partition_result": _partitions(topic.partitions, "partition_id")}
            for topic in body.topic_partitions or ()
        ],
    }


def _reassignments(body: Any) -> Values:
    return {
        **_ERROR,
        "responses": [
            {
                "name": topic.name,
                "partitions": _partitions(partition.partition_index for partition in topic.partitions),
            }
            for topic in body.topics
        ],
    }


def _listed_reassignments(body: Any) -> Values:
    return {
        **_ERROR,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": index, "replicas": [], "adding_replicas": [], "removing_replicas": []}
                    for index in topic.partition_indexes
                ],
            }
            for topic in body.topics or ()
        ],
    }


def _altered_quotas(body: Any) -> Values:
    return {
        "entries": [
            {
                **_ERROR,
                "entity": [{"entity_type": part.entity_type, "entity_name": part.entity_name} for part in entry.entity],
            }
            for entry in body.entries
        ]
    }


def _described_users(body: Any) -> Values:
    users = [{"user": user.name, **_ERROR, "credential_infos": []} for user in body.users or ()]
    return {**_ERROR, "results": users}


def _altered_users(body: Any) -> Values:
    names = dict.fromkeys(change.name for change in (*body.deletions, *body.upsertions))
    return {"results": [{"user": name, **_ERROR} for name in names]}


CLUSTER_DENIALS: Final[Mapping[ApiKey, Callable[[Any], Values]]] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: _top(results_by_transaction=()),
    ApiKey.WRITE_TXN_MARKERS: _markers,
    ApiKey.DESCRIBE_ACLS: _top(resources=()),
    ApiKey.CREATE_ACLS: lambda body: {"results": [_ERROR] * len(body.creations)},
    ApiKey.DELETE_ACLS: lambda body: {"filter_results": [{**_ERROR, "matching_acls": ()}] * len(body.filters)},
    ApiKey.ALTER_REPLICA_LOG_DIRS: _log_dirs,
    ApiKey.DESCRIBE_LOG_DIRS: _top(results=()),
    ApiKey.ELECT_LEADERS: _elections,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _listed_reassignments,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _top(entries=None),
    ApiKey.ALTER_CLIENT_QUOTAS: _altered_quotas,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _described_users,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _altered_users,
    ApiKey.DESCRIBE_QUORUM: _top(topics=(), nodes=()),
    ApiKey.UPDATE_FEATURES: _top(results=()),
    ApiKey.LIST_CONFIG_RESOURCES: _top(config_resources=()),
}
"""The APIs whose whole requests need an operation on the cluster: those of `agent.security.required_rights`."""
