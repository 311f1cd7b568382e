"""DescribeClientQuotas: the quotas of users, client ids and addresses (KIP-546).

- Versions: 0-1.
- Behaviour: the request takes a barrier first (safety rule S4).
- Source: org.apache.kafka.image.ClientQuotasImage.describe (Kafka 4.3).
"""

from typing import Any

from agent.admin.topics import catch_up, deadline_s
from agent.request.messages import Values
from agent.request.services import Request, Services
from coordinator.apply.client_quotas import InvalidQuota, UnknownEntityType, described, entity_filter
from protocol.errors import ErrorCode

API_KEY = 48


async def handle(services: Services, request: Request, body: Any) -> Values:
    components = [(component.entity_type, component.match_type, component.match) for component in body.components]
    try:
        wanted = entity_filter(components, is_strict=body.strict)
    except InvalidQuota as error:
        is_unknown = isinstance(error, UnknownEntityType)
        error_code = ErrorCode.unsupported_version if is_unknown else ErrorCode.invalid_request
        return {"error_code": error_code, "error_message": str(error), "entries": None}
    unseen = await catch_up(services.ledger, services.clock, deadline_s(services.clock))
    if unseen is not None:
        return {"error_code": unseen.error_code, "error_message": unseen.message, "entries": None}
    entries = [
        {
            "entity": [{"entity_type": entity_type, "entity_name": name} for entity_type, name in entity],
            "values": [{"key": name, "value": value} for name, value in quotas.items()],
        }
        for entity, quotas in described(services.state.client_quotas, wanted)
    ]
    return {"error_code": ErrorCode.none, "error_message": None, "entries": entries}
