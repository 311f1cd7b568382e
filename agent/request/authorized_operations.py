"""The operations that responses list as allowed: all, because nothing is authorised.

Source: KIP-430; org.apache.kafka.server.AuthHelper.authorizedOperations without an authorizer, and the operations of
org.apache.kafka.security.authorizer.AclEntry (Kafka 4.3). The bits are the codes of AclOperation.
"""

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = range(
    3, 13
)
NOT_ASKED = -(1 << 31)


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


ON_TOPIC = _bits(READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
ON_GROUP = _bits(READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
ON_CLUSTER = _bits(CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE)


def on_topic(*, is_asked: bool) -> int:
    """The operations on any topic, as a set of bits."""
    return ON_TOPIC if is_asked else NOT_ASKED


def on_group(*, is_asked: bool) -> int:
    """The operations on any group, as a set of bits."""
    return ON_GROUP if is_asked else NOT_ASKED


def on_cluster(*, is_asked: bool) -> int:
    """The operations on the cluster, as a set of bits."""
    return ON_CLUSTER if is_asked else NOT_ASKED
