"""ACLs, and the filters by which requests list and delete them.

In: fields of a request or of an entry. Out: values that compare by all their fields.
Rule: an ACL names one pattern (LITERAL or PREFIXED) of one type of resource, one principal, one host (`*` for all), one
operation, and allows or denies it. A filter leaves a field out by None or ANY. Its pattern type says how its name is
compared: ANY, LITERAL and PREFIXED with the pattern's own name, MATCH as the name of a resource that the pattern fits.
Source: org.apache.kafka.common.acl.AclBinding and AccessControlEntryFilter; org.apache.kafka.common.resource
.ResourcePatternFilter; org.apache.kafka.controller.AclControlManager.validateNewAcl; KIP-290 (Kafka 4.3).
"""

from dataclasses import dataclass
from typing import Final

from protocol.auth.operations import CLUSTER_NAME, EVERY_NAME, Operation, PatternType, Permission, ResourceType
from protocol.auth.principals import Principal

EVERY_HOST: Final = "*"


class InvalidAcl(ValueError):
    """The fields make no ACL that could be created. The message says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """One access control entry with its pattern (Kafka: AclBinding)."""

    principal: Principal
    host: str
    """An address as text, or `*`."""
    operation: Operation
    permission: Permission
    resource_type: ResourceType
    name: str
    """The pattern's name: of one resource, of all (LITERAL `*`), or what their names begin with (PREFIXED)."""
    pattern: PatternType

    def __str__(self) -> str:
        """In one line, for logs: `DENY READ to User:alice from * on TOPIC:PREFIXED:orders`."""
        resource = f"{self.resource_type.name}:{self.pattern.name}:{self.name}"
        return f"{self.permission.name} {self.operation.name} to {self.principal} from {self.host} on {resource}"


def check_acl(acl: Acl) -> None:
    """Raises `InvalidAcl` unless the ACL can be created."""
    if acl.resource_type == ResourceType.ANY:
        raise InvalidAcl("Invalid resourceType ANY")
    if acl.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise InvalidAcl(f"Invalid patternType {acl.pattern.name}")
    if acl.operation == Operation.ANY:
        raise InvalidAcl("Invalid operation ANY")
    if acl.permission == Permission.ANY:
        raise InvalidAcl("Invalid permissionType ANY")
    if not acl.name:
        raise InvalidAcl("Resource name should not be empty")
    if acl.resource_type == ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        raise InvalidAcl(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """A condition for ACLs: all fields that are neither None nor ANY have to fit."""

    principal: str | None = None
    """The principal as text. A text that is no principal fits no ACL."""
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY
    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY

    def matches(self, acl: Acl) -> bool:
        """Whether the ACL fits."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
            and self.host in (None, acl.host)
            and self.principal in (None, str(acl.principal))
            and self.matches_pattern(acl.pattern, acl.name)
        )

    def matches_pattern(self, pattern: PatternType, name: str) -> bool:
        """Whether a pattern fits the filter's name and pattern type."""
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, pattern):
            return False
        if self.name is None or self.name == name:
            return True
        if self.pattern != PatternType.MATCH:
            return False
        return name == EVERY_NAME if pattern == PatternType.LITERAL else self.name.startswith(name)
