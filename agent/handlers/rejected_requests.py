"""The APIs whose requests are always rejected: those of SASL, on a connection that needs no login, or has one.

- Behaviour: a request is decoded, changes nothing, and has the error code that Kafka gives without such a set-up.
- Source: org.apache.kafka.server.KafkaApis.handleSaslHandshakeRequest and handleSaslAuthenticateRequest (Kafka 4.3).
"""

from dataclasses import dataclass, field
from typing import Any, Final

from agent.request.messages import Values
from agent.request.services import Request, Services
from protocol.api_versions import ApiKey
from protocol.errors import ErrorCode


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
)
