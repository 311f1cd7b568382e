"""The operations that responses list as allowed for the principal of a request.

Source: KIP-430; org.apache.kafka.server.AuthHelper.authorizedOperations (Kafka 4.3).
The bits are those of `protocol.auth.operations`.
"""

from agent.security.rights import Rights
from protocol.auth.operations import CLUSTER_NAME, NOT_ASKED, SUPPORTED_OPERATIONS, Operation, ResourceType

NO_OPERATIONS = 0


def on_topic(rights: Rights, name: str, *, is_asked: bool) -> int:
    """The operations on a topic, as a set of bits."""
    return _supported(rights, ResourceType.TOPIC, name) if is_asked else NOT_ASKED


def on_group(rights: Rights, group_id: str, *, is_asked: bool) -> int:
    """The operations on a group, as a set of bits."""
    return _supported(rights, ResourceType.GROUP, group_id) if is_asked else NOT_ASKED


def on_cluster(rights: Rights, *, is_asked: bool) -> int:
    """The operations on the cluster, as a set of bits: none for a principal that may not describe it."""
    if not is_asked:
        return NOT_ASKED
    if not rights.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return NO_OPERATIONS
    return _supported(rights, ResourceType.CLUSTER, CLUSTER_NAME)


def _supported(rights: Rights, resource_type: ResourceType, name: str) -> int:
    return rights.bits(resource_type, name) & SUPPORTED_OPERATIONS[resource_type]
