"""DescribeAcls 1-3: SECURITY_DISABLED, as in Kafka without an authorizer."""

from collections.abc import Sequence

from agent.request.messages import answer, request_body
from agent.request.no_authorizer import SECURITY_DISABLED
from agent.request.services import Request, Services
from storage.object_store import Buffer

API_KEY = 29


async def handle(services: Services, request: Request) -> Sequence[Buffer]:
    request_body(request.frame)
    return answer(request.frame, {**SECURITY_DISABLED, "resources": []})
