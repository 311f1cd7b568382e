"""Operations that responses list as allowed (KIP-430): those of the principal that the resource can have."""

from agent.request.authorized_operations import on_cluster, on_group, on_topic
from agent.security.rights import ALL_RIGHTS, Rights
from protocol.auth.operations import CLUSTER_NAME, Operation, ResourceType, bits
from tests.support.security.fixed_rights import rights_of

NOT_ASKED = -(2**31)


def test_everything_is_allowed_while_the_authorizer_is_off() -> None:
    assert on_topic(ALL_RIGHTS, "t", is_asked=True) == 3576
    assert on_group(ALL_RIGHTS, "g", is_asked=True) == bits(
        Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
    )
    assert on_cluster(ALL_RIGHTS, is_asked=True) == 8096


def test_only_what_the_principal_may_do_and_the_resource_supports_is_listed() -> None:
    rights = rights_of({(ResourceType.TOPIC, "t"): bits(Operation.READ, Operation.DESCRIBE, Operation.CLUSTER_ACTION)})
    assert on_topic(rights, "t", is_asked=True) == bits(Operation.READ, Operation.DESCRIBE)
    assert on_topic(rights, "u", is_asked=True) == 0


def test_operations_on_the_cluster_are_listed_to_those_who_may_describe_it() -> None:
    assert on_cluster(_on_cluster(Operation.ALTER), is_asked=True) == 0
    both = _on_cluster(Operation.ALTER, Operation.DESCRIBE)
    assert on_cluster(both, is_asked=True) == bits(Operation.ALTER, Operation.DESCRIBE)


def test_nothing_is_listed_to_a_client_that_does_not_ask() -> None:
    answers = [
        on_topic(ALL_RIGHTS, "t", is_asked=False),
        on_group(ALL_RIGHTS, "g", is_asked=False),
        on_cluster(ALL_RIGHTS, is_asked=False),
    ]
    assert answers == [NOT_ASKED] * 3


def _on_cluster(*operations: Operation) -> Rights:
    return rights_of({(ResourceType.CLUSTER, CLUSTER_NAME): bits(*operations)})
