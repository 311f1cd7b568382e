"""THE table of the rights that each Kafka API asks for. A handler without its row cannot be dispatched.

In: an API. Out: the operations on the cluster that the whole request needs, which the dispatch asks for before the
handler runs, and the rights that the handler asks for, resource by resource, in this order.
Rule: rights come before existence. A topic that a client may not describe has the same answer whether or not it exists.
A test compares the table with `protocol.api_versions` and with the rights that the handlers import.
Source: org.apache.kafka.server.KafkaApis, ControllerApis and AclApis, ConfigHelper, each API and version recorded on
Kafka 4.3.1 by a principal without rights and by one with each single right.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from protocol.api_versions import ApiKey
from protocol.auth.operations import Operation, ResourceType


class Right(NamedTuple):
    """An operation on a resource of a type: the first arguments of `Rights.may` and `Rights.denied_names`."""

    operation: Operation
    resource_type: ResourceType


READ_TOPIC: Final = Right(Operation.READ, ResourceType.TOPIC)
WRITE_TOPIC: Final = Right(Operation.WRITE, ResourceType.TOPIC)
CREATE_TOPIC: Final = Right(Operation.CREATE, ResourceType.TOPIC)
DELETE_TOPIC: Final = Right(Operation.DELETE, ResourceType.TOPIC)
ALTER_TOPIC: Final = Right(Operation.ALTER, ResourceType.TOPIC)
DESCRIBE_TOPIC: Final = Right(Operation.DESCRIBE, ResourceType.TOPIC)
DESCRIBE_CONFIGS_TOPIC: Final = Right(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC)
ALTER_CONFIGS_TOPIC: Final = Right(Operation.ALTER_CONFIGS, ResourceType.TOPIC)
READ_GROUP: Final = Right(Operation.READ, ResourceType.GROUP)
DELETE_GROUP: Final = Right(Operation.DELETE, ResourceType.GROUP)
DESCRIBE_GROUP: Final = Right(Operation.DESCRIBE, ResourceType.GROUP)
DESCRIBE_CONFIGS_GROUP: Final = Right(Operation.DESCRIBE_CONFIGS, ResourceType.GROUP)
ALTER_CONFIGS_GROUP: Final = Right(Operation.ALTER_CONFIGS, ResourceType.GROUP)
WRITE_TRANSACTION: Final = Right(Operation.WRITE, ResourceType.TRANSACTIONAL_ID)
DESCRIBE_TRANSACTION: Final = Right(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
CREATE_CLUSTER: Final = Right(Operation.CREATE, ResourceType.CLUSTER)
DELETE_CLUSTER: Final = Right(Operation.DELETE, ResourceType.CLUSTER)
DESCRIBE_CLUSTER: Final = Right(Operation.DESCRIBE, ResourceType.CLUSTER)
ACT_ON_CLUSTER: Final = Right(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
WRITE_IDEMPOTENTLY: Final = Right(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
DESCRIBE_CONFIGS_CLUSTER: Final = Right(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
ALTER_CONFIGS_CLUSTER: Final = Right(Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
CREATE_TOKENS_USER: Final = Right(Operation.CREATE_TOKENS, ResourceType.USER)
DESCRIBE_TOKENS_USER: Final = Right(Operation.DESCRIBE_TOKENS, ResourceType.USER)
DESCRIBE_TOKEN: Final = Right(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredRights:
    """One row: the rights that a request of one API needs."""

    cluster: tuple[Operation, ...] = ()
    """One of these operations on the cluster, for the request as a whole; none where it is empty."""
    cluster_since: int = 0
    """The first version whose requests need it."""
    resources: tuple[Right, ...] = ()
    """The rights that the handler asks for by itself."""


NOTHING: Final = RequiredRights()


def _whole(*operations: Operation) -> RequiredRights:
    return RequiredRights(cluster=operations)


def _each(*resources: Right) -> RequiredRights:
    return RequiredRights(resources=resources)


REQUIRED_RIGHTS: Final[Mapping[ApiKey, RequiredRights]] = {
    ApiKey.PRODUCE: _each(WRITE_TRANSACTION, WRITE_TOPIC),
    ApiKey.FETCH: _each(READ_TOPIC, ACT_ON_CLUSTER),
    ApiKey.LIST_OFFSETS: _each(DESCRIBE_TOPIC),
    ApiKey.METADATA: _each(DESCRIBE_TOPIC, CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_CLUSTER),
    ApiKey.OFFSET_COMMIT: _each(READ_GROUP, READ_TOPIC),
    ApiKey.OFFSET_FETCH: _each(DESCRIBE_GROUP, DESCRIBE_TOPIC),
    ApiKey.FIND_COORDINATOR: _each(DESCRIBE_GROUP, DESCRIBE_TRANSACTION),
    ApiKey.JOIN_GROUP: _each(READ_GROUP),
    ApiKey.HEARTBEAT: _each(READ_GROUP),
    ApiKey.LEAVE_GROUP: _each(READ_GROUP),
    ApiKey.SYNC_GROUP: _each(READ_GROUP),
    ApiKey.DESCRIBE_GROUPS: _each(DESCRIBE_GROUP),
    ApiKey.LIST_GROUPS: _each(DESCRIBE_CLUSTER, DESCRIBE_GROUP),
    ApiKey.SASL_HANDSHAKE: NOTHING,
    ApiKey.API_VERSIONS: NOTHING,
    ApiKey.CREATE_TOPICS: _each(CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_CONFIGS_TOPIC),
    ApiKey.DELETE_TOPICS: _each(DELETE_CLUSTER, DELETE_TOPIC, DESCRIBE_TOPIC),
    ApiKey.DELETE_RECORDS: _each(DELETE_TOPIC),
    ApiKey.INIT_PRODUCER_ID: _each(WRITE_TRANSACTION, WRITE_IDEMPOTENTLY, WRITE_TOPIC),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _each(ACT_ON_CLUSTER, DESCRIBE_TOPIC),
    ApiKey.ADD_PARTITIONS_TO_TXN: RequiredRights(
        cluster=(Operation.CLUSTER_ACTION,), cluster_since=4, resources=(WRITE_TRANSACTION, WRITE_TOPIC)
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: _each(WRITE_TRANSACTION, READ_GROUP),
    ApiKey.END_TXN: _each(WRITE_TRANSACTION),
    ApiKey.WRITE_TXN_MARKERS: _whole(Operation.ALTER, Operation.CLUSTER_ACTION),
    ApiKey.TXN_OFFSET_COMMIT: _each(WRITE_TRANSACTION, READ_GROUP, READ_TOPIC),
    ApiKey.DESCRIBE_ACLS: _whole(Operation.DESCRIBE),
    ApiKey.CREATE_ACLS: _whole(Operation.ALTER),
    ApiKey.DELETE_ACLS: _whole(Operation.ALTER),
    ApiKey.DESCRIBE_CONFIGS: _each(DESCRIBE_CONFIGS_TOPIC, DESCRIBE_CONFIGS_GROUP, DESCRIBE_CONFIGS_CLUSTER),
    ApiKey.ALTER_CONFIGS: _each(ALTER_CONFIGS_TOPIC, ALTER_CONFIGS_GROUP, ALTER_CONFIGS_CLUSTER),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _whole(Operation.ALTER),
    ApiKey.DESCRIBE_LOG_DIRS: _whole(Operation.DESCRIBE),
    ApiKey.SASL_AUTHENTICATE: NOTHING,
    ApiKey.CREATE_PARTITIONS: _each(ALTER_TOPIC),
    ApiKey.CREATE_DELEGATION_TOKEN: _each(CREATE_TOKENS_USER),
    ApiKey.RENEW_DELEGATION_TOKEN: NOTHING,
    ApiKey.EXPIRE_DELEGATION_TOKEN: NOTHING,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _each(DESCRIBE_TOKEN, DESCRIBE_TOKENS_USER),
    ApiKey.DELETE_GROUPS: _each(DELETE_GROUP),
    ApiKey.ELECT_LEADERS: _whole(Operation.ALTER),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _each(ALTER_CONFIGS_TOPIC, ALTER_CONFIGS_GROUP, ALTER_CONFIGS_CLUSTER),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _whole(Operation.ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _whole(Operation.DESCRIBE),
    ApiKey.OFFSET_DELETE: _each(DELETE_GROUP, READ_TOPIC),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _whole(Operation.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: _whole(Operation.ALTER_CONFIGS),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _whole(Operation.DESCRIBE),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _whole(Operation.ALTER),
    ApiKey.DESCRIBE_QUORUM: _whole(Operation.DESCRIBE),
    ApiKey.UPDATE_FEATURES: _whole(Operation.ALTER),
    ApiKey.DESCRIBE_CLUSTER: _each(DESCRIBE_CLUSTER),
    ApiKey.DESCRIBE_PRODUCERS: _each(READ_TOPIC),
    ApiKey.DESCRIBE_TRANSACTIONS: _each(DESCRIBE_TRANSACTION, DESCRIBE_TOPIC),
    ApiKey.LIST_TRANSACTIONS: _each(DESCRIBE_TRANSACTION),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _each(READ_GROUP, DESCRIBE_TOPIC),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _each(DESCRIBE_GROUP, DESCRIBE_TOPIC),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: NOTHING,
    ApiKey.PUSH_TELEMETRY: NOTHING,
    ApiKey.LIST_CONFIG_RESOURCES: _whole(Operation.DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _each(DESCRIBE_TOPIC),
}
