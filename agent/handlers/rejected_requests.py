"""The APIs whose requests are always rejected: no listener authenticates its clients, and nothing is authorised.

- Behaviour: a request is decoded, changes nothing, and has the error code that Kafka gives without such a set-up.
- Source: org.apache.kafka.server.KafkaApis.allowTokenRequests (KIP-48, KIP-373), handleSaslHandshakeRequest and
  handleSaslAuthenticateRequest (Kafka 4.3).
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agent.request.messages import Values
from agent.request.services import Request, Services
from protocol.api_versions import ApiKey
from protocol.errors import ErrorCode

NO_TIMESTAMP: Final = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=datetime.UTC)
"""The timestamp -1 ms, which means that there is none."""
ANONYMOUS: Final[Mapping[str, str]] = {
    "principal_type": "User",
    "principal_name": "ANONYMOUS",
    "token_requester_principal_type": "User",
    "token_requester_principal_name": "ANONYMOUS",
}
"""Kafka's principal of a client that is not authenticated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """An API that is always rejected."""

    api_key: ApiKey
    versions: str
    """The versions that are served; a test compares them with `protocol.api_versions`."""
    error_code: ErrorCode
    why: str
    """The reason, for the reader."""
    message: str | None = None
    """The text in the response; None where the response has none."""
    fields: Values = field(default_factory=dict)
    """The other fields of the response."""

    async def handle(self, services: Services, request: Request, body: Any) -> Values:
        """The fields of the response."""
        del services, request, body
        error: dict[str, Any] = {"error_code": self.error_code}
        if self.message is not None:
            error["error_message"] = self.message
        return {**error, **self.fields}


_NO_TOKENS: Final = "Kafka allows delegation tokens only on a connection that is authenticated."
_NO_SASL: Final = "The listener authenticates no clients; a client that tries reads that, instead of a lost connection."

REJECTIONS: Final = (
    Rejection(
        api_key=ApiKey.SASL_HANDSHAKE,
        versions="0-1",
        error_code=ErrorCode.illegal_sasl_state,
        why=_NO_SASL,
        fields={"mechanisms": []},
    ),
    Rejection(
        api_key=ApiKey.SASL_AUTHENTICATE,
        versions="0-2",
        error_code=ErrorCode.illegal_sasl_state,
        why=_NO_SASL,
        message="SaslAuthenticate request received after successful authentication",
        fields={"auth_bytes": b""},
    ),
    Rejection(
        api_key=ApiKey.CREATE_DELEGATION_TOKEN,
        versions="1-3",
        error_code=ErrorCode.delegation_token_request_not_allowed,
        why=_NO_TOKENS,
        fields={
            **ANONYMOUS,
            "issue_timestamp": NO_TIMESTAMP,
            "expiry_timestamp": NO_TIMESTAMP,
            "max_timestamp": NO_TIMESTAMP,
            "token_id": "",
            "hmac": b"",
        },
    ),
    Rejection(
        api_key=ApiKey.RENEW_DELEGATION_TOKEN,
        versions="1-2",
        error_code=ErrorCode.delegation_token_request_not_allowed,
        why=_NO_TOKENS,
        fields={"expiry_timestamp": NO_TIMESTAMP},
    ),
    Rejection(
        api_key=ApiKey.EXPIRE_DELEGATION_TOKEN,
        versions="1-2",
        error_code=ErrorCode.delegation_token_request_not_allowed,
        why=_NO_TOKENS,
        fields={"expiry_timestamp": NO_TIMESTAMP},
    ),
    Rejection(
        api_key=ApiKey.DESCRIBE_DELEGATION_TOKEN,
        versions="1-3",
        error_code=ErrorCode.delegation_token_request_not_allowed,
        why=_NO_TOKENS,
        fields={"tokens": []},
    ),
)
