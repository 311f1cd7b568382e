"""GetTelemetrySubscriptions: the metrics that a client is to push, and their interval (KIP-714).

- Versions: 0.
- Behaviour: CLIENT_METRICS resources name the metrics. Without any, the client pushes nothing and asks again after five
  minutes.
- Source: org.apache.kafka.server.ClientMetricsManager.processGetTelemetrySubscriptionRequest (Kafka 4.3).
"""

import datetime
from typing import Any

from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.telemetry.subscriptions import ACCEPTED_COMPRESSION, TelemetryRejected
from protocol.errors import ErrorCode

API_KEY = 71


async def handle(services: Services, request: Request, body: Any) -> Values:
    try:
        instance = await services.telemetry.subscribe(body.client_instance_id, request.asker)
    except TelemetryRejected as rejected:
        nothing: dict[str, Any] = {
            "client_instance_id": None,
            "subscription_id": 0,
            "accepted_compression_types": [],
            "push_interval": datetime.timedelta(0),
            "telemetry_max_bytes": 0,
            "delta_temporality": False,
            "requested_metrics": [],
        }
        return {"error_code": rejected.error_code, **nothing}
    return {
        "error_code": ErrorCode.none,
        "client_instance_id": instance.instance_id,
        "subscription_id": instance.subscription_id,
        "accepted_compression_types": ACCEPTED_COMPRESSION,
        "push_interval": datetime.timedelta(milliseconds=instance.interval_ms),
        "telemetry_max_bytes": services.telemetry.bytes_max,
        "delta_temporality": True,
        "requested_metrics": instance.metrics,
    }
