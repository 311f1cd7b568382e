"""DescribeAcls 1-3: SECURITY_DISABLED, as in Kafka without an authorizer."""

from collections.abc import Sequence

from agent.handlers.entities import answer, request_body
from agent.handlers.no_authorizer import SECURITY_DISABLED
from agent.services import Request, Services
from storage.object_store import Buffer

API_KEY = 29


async def handle(services: Services, request: Request) -> Sequence[Buffer]:
    request_body(request.frame)
    return answer(request.frame, {**SECURITY_DISABLED, "resources": []})
