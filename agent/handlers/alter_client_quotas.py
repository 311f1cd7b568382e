"""AlterClientQuotas: sets and removes quotas of users, client ids and addresses (KIP-546).

- Versions: 0-1.
- Behaviour: each entity is altered by itself, and not at all where a request names it twice.
- Source: org.apache.kafka.controller.ClientQuotaControlManager.alterClientQuotas (Kafka 4.3).
"""

import logging
from collections.abc import Sequence
from typing import Any

from agent.admin.topics import TopicError, before, deadline_s
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield
from coordinator.apply.client_quotas import InvalidQuota, check_quota, quota_entity_of
from coordinator.commands.admin import AlterClientQuotas
from coordinator.commands.commands import Rejected
from coordinator.configs.config_types import shorten
from coordinator.security.quota_rules import IP
from protocol.errors import ErrorCode

API_KEY = 49

log = logging.getLogger(__name__)


async def handle(services: Services, request: Request, body: Any) -> Values:
    end_s = deadline_s(services.clock)
    pacer = CooperativeYield(services.clock)
    entries: dict[frozenset[Any], list[Any]] = {}
    for entry in body.entries:
        alike_by = frozenset((part.entity_type, part.entity_name) for part in entry.entity)
        entries.setdefault(alike_by, []).append(entry)
        await pacer.step()
    rows = []
    for alike in entries.values():
        named = [(part.entity_type, part.entity_name) for part in alike[0].entity]
        error_code, message = ErrorCode.none, None
        try:
            if len(alike) > 1:
                raise InvalidQuota("Ignoring duplicate entity")
            command = _command(named, alike[0].ops)
            if not body.validate_only:
                await before(end_s, services.clock, _alter(services, command))
        except InvalidQuota as error:
            error_code, message = ErrorCode.invalid_request, str(error)
        except TopicError as error:
            error_code, message = error.error_code, error.message
        entity = [{"entity_type": entity_type, "entity_name": name} for entity_type, name in sorted(named, key=_order)]
        rows.append({"error_code": error_code, "error_message": message, "entity": entity})
        await pacer.step()
    return {"entries": rows}


def _order(part: tuple[str, str | None]) -> tuple[bool, str]:
    """Kafka's order of types in a response: client-id, user, ip."""
    return part[0] == IP, part[0]


def _command(named: Sequence[tuple[str, str | None]], operations: Sequence[Any]) -> AlterClientQuotas:
    entity = quota_entity_of(named)
    quotas: dict[str, float | None] = {}
    for operation in operations:
        if operation.key in quotas:
            raise InvalidQuota(f"Duplicate quota key {shorten(operation.key)} not updating quota for this entity")
        if not operation.remove:
            check_quota(entity, operation.key, operation.value)
        quotas[operation.key] = None if operation.remove else operation.value
    return AlterClientQuotas(entity=entity, quotas=tuple(quotas.items()))


async def _alter(services: Services, command: AlterClientQuotas) -> None:
    outcome = await services.ledger.propose(command)
    if isinstance(outcome, Rejected):
        raise TopicError(outcome.error_code, outcome.reason)
    log.info("altered the quotas of an entity", extra={"entity": dict(command.entity), "quotas": dict(command.quotas)})
