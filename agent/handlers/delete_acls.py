"""DeleteAcls 1-3: SECURITY_DISABLED for each filter, as in Kafka without an authorizer."""

from collections.abc import Sequence

from agent.request.messages import answer, request_body
from agent.request.no_authorizer import SECURITY_DISABLED
from agent.request.services import Request, Services
from agent.runtime.yielding import inline_or_in_thread, rows_at_most
from storage.object_store import Buffer

API_KEY = 31


async def handle(services: Services, request: Request) -> Sequence[Buffer]:
    body = await inline_or_in_thread(rows_at_most(request.frame.body), request_body, request.frame)
    count = len(body.filters)
    refused = {**SECURITY_DISABLED, "matching_acls": []}
    return await inline_or_in_thread(count, answer, request.frame, {"filter_results": [refused] * count})
