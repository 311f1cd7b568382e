"""ListConfigResources: the resources whose configs can be described (KIP-1142).

- Versions: 0-1. 0 lists telemetry subscriptions alone.
- Behaviour: the request takes a barrier first (safety rule S4). An unknown type of resource is UNSUPPORTED_VERSION.
- Source: kafka.server.KafkaApis.handleListConfigResources (Kafka 4.3).
"""

from collections.abc import Iterator, Sequence
from typing import Any

from agent.admin.topics import catch_up, deadline_s
from agent.request.messages import Values
from agent.request.services import Request, Services
from coordinator.commands.admin import ConfigResourceType
from coordinator.state.state import ClusterState
from protocol.errors import ErrorCode

API_KEY = 74


async def handle(services: Services, request: Request, body: Any) -> Values:
    types: Sequence[int] = (ConfigResourceType.CLIENT_METRICS,)
    if request.frame.api_version >= 1:
        types = body.resource_types or tuple(ConfigResourceType)
    if not set(types) <= set(ConfigResourceType):
        return {"error_code": ErrorCode.unsupported_version, "config_resources": []}
    unseen = await catch_up(services.ledger, services.clock, deadline_s(services.clock))
    if unseen is not None:
        return {"error_code": unseen.error_code, "config_resources": []}
    rows = [
        {"resource_type": resource_type.value, "resource_name": name}
        for resource_type in ConfigResourceType
        if resource_type in types
        for name in _names(services, resource_type)
    ]
    return {"error_code": ErrorCode.none, "config_resources": rows}


def _names(services: Services, resource_type: ConfigResourceType) -> Iterator[str]:
    state: ClusterState = services.state
    match resource_type:
        case ConfigResourceType.TOPIC:
            yield from sorted(state.topic_ids)
        case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER:
            yield from (str(session.node_id) for session in state.sessions.values())
        case ConfigResourceType.GROUP:
            yield from sorted(state.group_configs)
        case ConfigResourceType.CLIENT_METRICS:
            yield from sorted(state.client_metrics_configs)
