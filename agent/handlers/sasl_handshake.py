"""SaslHandshake 0-1: ILLEGAL_SASL_STATE, as in Kafka on a listener without authentication.

So a client that was configured to log in says that it need not, instead of losing one connection after the other.
Source: org.apache.kafka.server.KafkaApis.handleSaslHandshakeRequest (Kafka 4.3).
"""

from collections.abc import Sequence

from agent.request.messages import answer, request_body
from agent.request.services import Request, Services
from protocol.errors import ErrorCode
from storage.object_store import Buffer

API_KEY = 17


async def handle(services: Services, request: Request) -> Sequence[Buffer]:
    request_body(request.frame)
    return answer(request.frame, {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": []})
