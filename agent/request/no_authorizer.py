"""Answers of the ACL APIs while nothing is authorised: SECURITY_DISABLED, as Kafka does.

Source: org.apache.kafka.server.AclApis without an authorizer (Kafka 4.3).
"""

from collections.abc import Mapping
from typing import Any, Final

from protocol.errors import ErrorCode

SECURITY_DISABLED: Final[Mapping[str, Any]] = {
    "error_code": ErrorCode.security_disabled,
    "error_message": "No Authorizer is configured.",
}
