"""CreateDelegationToken 1-3: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as in Kafka on a listener without authentication.

Source: org.apache.kafka.server.KafkaApis.allowTokenRequests (Kafka 4.3), KIP-48, KIP-373.
"""

from collections.abc import Sequence

from agent.request.messages import answer, request_body
from agent.request.no_delegation_tokens import NO_TIMESTAMP, NOT_ALLOWED
from agent.request.services import Request, Services
from storage.object_store import Buffer

API_KEY = 38
PRINCIPAL_TYPE, PRINCIPAL_NAME = "User", "ANONYMOUS"
"""Whoever is not authenticated."""


async def handle(services: Services, request: Request) -> Sequence[Buffer]:
    request_body(request.frame)
    return answer(
        request.frame,
        {
            **NOT_ALLOWED,
            "principal_type": PRINCIPAL_TYPE,
            "principal_name": PRINCIPAL_NAME,
            "token_requester_principal_type": PRINCIPAL_TYPE,
            "token_requester_principal_name": PRINCIPAL_NAME,
            "issue_timestamp": NO_TIMESTAMP,
            "expiry_timestamp": NO_TIMESTAMP,
            "max_timestamp": NO_TIMESTAMP,
            "token_id": "",
            "hmac": b"",
        },
    )
