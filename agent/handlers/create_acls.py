"""CreateAcls 1-3: SECURITY_DISABLED for each, as in Kafka without an authorizer."""

from collections.abc import Sequence

from agent.request.messages import answer, request_body
from agent.request.no_authorizer import SECURITY_DISABLED
from agent.request.services import Request, Services
from agent.runtime.yielding import inline_or_in_thread, rows_at_most
from storage.object_store import Buffer

API_KEY = 30


async def handle(services: Services, request: Request) -> Sequence[Buffer]:
    body = await inline_or_in_thread(rows_at_most(request.frame.body), request_body, request.frame)
    count = len(body.creations)
    return await inline_or_in_thread(count, answer, request.frame, {"results": [SECURITY_DISABLED] * count})
