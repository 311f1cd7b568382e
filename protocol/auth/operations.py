"""Resources, operations and permissions of ACLs, by Kafka's codes; sets of operations are bits, `1 << code`.

Such a set is KIP-430's authorizedOperations. Source, in Kafka 4.3: org.apache.kafka.common.acl.AclOperation and
AclPermissionType; org.apache.kafka.common.resource.ResourceType and PatternType;
org.apache.kafka.security.authorizer.AclEntry.
"""

from enum import IntEnum
from typing import Final

CLUSTER_NAME: Final = "kafka-cluster"
"""The one name of a resource of the type CLUSTER."""
EVERY_NAME: Final = "*"
"""The name of a literal pattern that fits all names."""
NOT_ASKED: Final = -(1 << 31)
"""Instead of a set of operations: the client did not ask for one."""


class Operation(IntEnum):
    """The operations that an ACL allows or denies."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """The types of resources that an ACL can name."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The ways to match a resource's name. ACLs are LITERAL or PREFIXED; filters may have any."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """The effects of an ACL."""

    ANY = 1
    DENY = 2
    ALLOW = 3


def bits(*operations: Operation) -> int:
    """The set of the operations."""
    return sum(1 << operation for operation in operations)


SUPPORTED_OPERATIONS: Final = {
    ResourceType.TOPIC: bits(
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: bits(
        Operation.READ, Operation.DESCRIBE, Operation.DELETE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
    ),
    ResourceType.CLUSTER: bits(
        Operation.CREATE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
        Operation.ALTER,
        Operation.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: bits(Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: bits(Operation.DESCRIBE),
    ResourceType.USER: bits(Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""The operations that answers list for a resource of each type (authorizedOperations)."""
