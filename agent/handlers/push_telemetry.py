"""PushTelemetry: a client pushes the metrics that it was asked for (KIP-714).

- Versions: 0.
- Behaviour: /metrics shows them.
- Source: org.apache.kafka.server.ClientMetricsManager.processPushTelemetryRequest (Kafka 4.3).
"""

from typing import Any

from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.telemetry.subscriptions import Push, TelemetryRejected
from protocol.errors import ErrorCode

API_KEY = 72


async def handle(services: Services, request: Request, body: Any) -> Values:
    push = Push(
        subscription_id=body.subscription_id,
        is_terminating=body.terminating,
        compression=body.compression_type,
        metrics=body.metrics,
    )
    try:
        await services.telemetry.push(body.client_instance_id, request.asker, push)
    except TelemetryRejected as rejected:
        return {"error_code": rejected.error_code}
    return {"error_code": ErrorCode.none}
