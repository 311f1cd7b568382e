"""ExpireDelegationToken: ends a token at once, or sets its end, by its owner or a renewer (KIP-48).

- Versions: 1-2.
- Behaviour: a negative period removes the token, so that the end in the answer is now, and ends the connections that it
  authenticated within a second. Any other period sets its end, and never beyond its longest life. A token that is not
  known is looked for behind a barrier (safety rule S4).
- Differs from Kafka: it leaves the connections of a token that is removed until their sessions end.
- Source: org.apache.kafka.server.KafkaApis.handleExpireTokenRequest, org.apache.kafka.controller.
  DelegationTokenControlManager.expireDelegationToken (Kafka 4.3).
"""

from typing import Any

from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.request.token_requests import changed_expiry, milliseconds
from coordinator.commands.delegation_tokens import ExpireDelegationToken
from protocol.types import Milliseconds

API_KEY = 40


async def handle(services: Services, request: Request, body: Any) -> Values:
    period_ms = milliseconds(body.expiry_time_period)

    def command(token_id: str) -> ExpireDelegationToken:
        return ExpireDelegationToken(
            token_id=token_id,
            requester=str(request.principal),
            period_ms=None if period_ms < 0 else Milliseconds(period_ms),
        )

    return await changed_expiry(services, request, bytes(body.hmac), command)
