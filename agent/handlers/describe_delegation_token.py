"""DescribeDelegationToken 1-3: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as in Kafka on a listener without authentication.

Source: org.apache.kafka.server.KafkaApis.allowTokenRequests (Kafka 4.3), KIP-48.
"""

from collections.abc import Sequence

from agent.request.messages import answer, request_body
from agent.request.no_delegation_tokens import NOT_ALLOWED
from agent.request.services import Request, Services
from storage.object_store import Buffer

API_KEY = 41


async def handle(services: Services, request: Request) -> Sequence[Buffer]:
    request_body(request.frame)
    return answer(request.frame, {**NOT_ALLOWED, "tokens": []})
