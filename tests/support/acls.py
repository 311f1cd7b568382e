"""ACLs for tests, with a principal, a host and a topic where the test names none."""

from typing import Final

from coordinator.security.acls import EVERY_HOST, Acl
from protocol.auth.operations import Operation, PatternType, Permission, ResourceType
from protocol.auth.principals import Principal

ALICE: Final = Principal("User", "alice")
BOB: Final = Principal("User", "bob")
HOST: Final = "10.0.0.1"
OTHER_HOST: Final = "10.0.0.2"


def make_acl(
    operation: Operation = Operation.READ,
    name: str = "orders",
    *,
    principal: Principal = ALICE,
    host: str = EVERY_HOST,
    permission: Permission = Permission.ALLOW,
    resource_type: ResourceType = ResourceType.TOPIC,
    pattern: PatternType = PatternType.LITERAL,
) -> Acl:
    """An ACL that lets Alice read the topic orders, but for what is given."""
    return Acl(
        principal=principal,
        host=host,
        operation=operation,
        permission=permission,
        resource_type=resource_type,
        name=name,
        pattern=pattern,
    )
