"""ACLs and filters of requests, and the rows of ACLs in answers.

In: rows with Kafka's codes. Out: values of `coordinator.security.acls`. Codes that are unknown, and ANY where an ACL
needs a value, are errors with the code and the message for the client.
Source: org.apache.kafka.server.AclApis, org.apache.kafka.controller.AclControlManager (Kafka 4.3). Differs from Kafka:
a request with the code 0 (UNKNOWN) gets an error here; Kafka closes the connection.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

from agent.request.messages import Values
from coordinator.configs.config_types import shorten
from coordinator.security.acls import Acl, AclFilter, InvalidAcl, check_acl
from protocol.auth.operations import Operation, PatternType, Permission, ResourceType
from protocol.auth.principals import InvalidPrincipal, read_principal
from protocol.errors import ErrorCode
from protocol.limits import SECURITY_NAME_CHARS_MAX

NO_AUTHORIZER = "No Authorizer is configured."
Code = TypeVar("Code", bound=IntEnum)


@dataclass(frozen=True, slots=True)
class AclError(Exception):
    """The error of one ACL or filter of a request."""

    error_code: ErrorCode
    message: str


def read_acl(row: Any) -> Acl:
    """The ACL of a row of CreateAcls. Raises `AclError`."""
    try:
        acl = Acl(
            principal=read_principal(row.principal),
            host=row.host,
            operation=_code(Operation, row.operation, "operation"),
            permission=_code(Permission, row.permission_type, "permissionType"),
            resource_type=_code(ResourceType, row.resource_type, "resourceType"),
            name=row.resource_name,
            pattern=_code(PatternType, row.resource_pattern_type, "patternType"),
        )
        check_acl(acl)
    except InvalidPrincipal as error:
        reason = "no colon is present separating the principal type from the principal name"
        raise AclError(
            ErrorCode.invalid_request, f"Could not parse principal from `{shorten(row.principal)}` ({reason})"
        ) from error
    except InvalidAcl as error:
        raise AclError(ErrorCode.invalid_request, str(error)) from error
    if not acl.host:  # no address, and no entry can have it
        raise AclError(ErrorCode.invalid_request, "Host should not be empty")
    for what, text in (("principal", row.principal), ("host", row.host), ("resource name", row.resource_name)):
        if len(text) > SECURITY_NAME_CHARS_MAX:
            raise AclError(
                ErrorCode.policy_violation,
                f"The {what} has {len(text)} characters, {SECURITY_NAME_CHARS_MAX} is the most.",
            )
    return acl


def read_filter(row: Any) -> AclFilter:
    """The filter of a row of DeleteAcls, or of DescribeAcls. Raises `AclError`."""
    return AclFilter(
        principal=row.principal_filter,
        host=row.host_filter,
        operation=_code(Operation, row.operation, "operation"),
        permission=_code(Permission, row.permission_type, "permissionType"),
        resource_type=_code(ResourceType, row.resource_type_filter, "resourceType"),
        name=row.resource_name_filter,
        pattern=_code(PatternType, row.pattern_type_filter, "patternType"),
    )


def _code(codes: type[Code], code: int, field: str) -> Code:
    try:
        return codes(code)
    except ValueError as error:
        raise AclError(ErrorCode.invalid_request, f"Invalid {field} UNKNOWN: Kafka has no code {code}") from error


def pattern_values(acl: Acl) -> Values:
    """The fields of an ACL's pattern in an answer."""
    return {"resource_type": acl.resource_type, "resource_name": acl.name, "pattern_type": acl.pattern}


def entry_values(acl: Acl) -> Values:
    """The other fields of an ACL in an answer."""
    return {
        "principal": str(acl.principal),
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }
