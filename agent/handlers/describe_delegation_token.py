"""DescribeDelegationToken 1-3: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as in Kafka on a listener without authentication.

Source: org.apache.kafka.server.KafkaApis.allowTokenRequests (Kafka 4.3), KIP-48.
"""

from collections.abc import Sequence

from agent.handlers.entities import answer, request_body
from agent.handlers.no_tokens import NOT_ALLOWED
from agent.services import Request, Services
from storage.object_store import Buffer

API_KEY = 41


async def handle(services: Services, request: Request) -> Sequence[Buffer]:
    request_body(request.frame)
    return answer(request.frame, {**NOT_ALLOWED, "tokens": []})
