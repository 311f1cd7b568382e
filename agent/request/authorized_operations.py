"""The operations that responses list as allowed: all, because nothing is authorised.

Source: KIP-430; org.apache.kafka.server.AuthHelper.authorizedOperations without an authorizer (Kafka 4.3).
The bits are those of `protocol.auth.operations`.
"""

from typing import Final

from protocol.auth.operations import NOT_ASKED, SUPPORTED_OPERATIONS, ResourceType

ON_TOPIC: Final = SUPPORTED_OPERATIONS[ResourceType.TOPIC]
ON_GROUP: Final = SUPPORTED_OPERATIONS[ResourceType.GROUP]
ON_CLUSTER: Final = SUPPORTED_OPERATIONS[ResourceType.CLUSTER]


def on_topic(*, is_asked: bool) -> int:
    """The operations on any topic, as a set of bits."""
    return ON_TOPIC if is_asked else NOT_ASKED


def on_group(*, is_asked: bool) -> int:
    """The operations on any group, as a set of bits."""
    return ON_GROUP if is_asked else NOT_ASKED


def on_cluster(*, is_asked: bool) -> int:
    """The operations on the cluster, as a set of bits."""
    return ON_CLUSTER if is_asked else NOT_ASKED
