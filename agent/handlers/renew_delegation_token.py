"""RenewDelegationToken: lets a token last longer, by its owner or a renewer (KIP-48).

- Versions: 1-2.
- Behaviour: the token lasts for the period from now on, or for delegation.token.expiry.time.ms where that is less or
  the period is not positive, and never beyond its longest life. A token that is not known is looked for behind a
  barrier (safety rule S4).
- Source: org.apache.kafka.server.KafkaApis.handleRenewTokenRequest, org.apache.kafka.controller.
  DelegationTokenControlManager.renewDelegationToken (Kafka 4.3).
"""

from typing import Any

from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.request.token_requests import changed_expiry, milliseconds
from coordinator.commands.delegation_tokens import RenewDelegationToken

API_KEY = 39


async def handle(services: Services, request: Request, body: Any) -> Values:
    asked_ms, renewal_ms = milliseconds(body.renew_period), services.delegation_tokens.settings.renewal_ms

    def command(token_id: str) -> RenewDelegationToken:
        return RenewDelegationToken(
            token_id=token_id,
            renewer=str(request.principal),
            period_ms=min(asked_ms, renewal_ms) if asked_ms > 0 else renewal_ms,
        )

    return await changed_expiry(services, request, bytes(body.hmac), command)
