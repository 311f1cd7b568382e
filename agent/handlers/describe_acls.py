"""DescribeAcls: lists the access control lists that a filter fits (KIP-11, KIP-140, KIP-290).

- Versions: 1-3.
- Behaviour: the request takes a barrier first (safety rule S4). ACLs are grouped by their patterns. Without an
  authorizer it is SECURITY_DISABLED.
- Source: org.apache.kafka.server.AclApis.handleDescribeAcls, org.apache.kafka.common.requests.DescribeAclsResponse
  (Kafka 4.3).
"""

from typing import Any

from agent.admin.topics import catch_up, deadline_s
from agent.request.acl_rows import NO_AUTHORIZER, AclError, entry_values, pattern_values, read_filter
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield
from protocol.errors import ErrorCode

API_KEY = 29


async def handle(services: Services, request: Request, body: Any) -> Values:
    if not services.is_authorizer_on:
        return _error(ErrorCode.security_disabled, NO_AUTHORIZER)
    try:
        acl_filter = read_filter(body)
    except AclError as error:
        return _error(error.error_code, error.message)
    unseen = await catch_up(services.ledger, services.clock, deadline_s(services.clock))
    if unseen is not None:
        return _error(unseen.error_code, unseen.message)
    pacer = CooperativeYield(services.clock)
    resources: dict[tuple[object, ...], dict[str, Any]] = {}
    for acl in list(services.state.acls):  # a copy: other entries are applied meanwhile
        if acl_filter.matches(acl):
            key = (acl.resource_type, acl.name, acl.pattern)
            resource = resources.setdefault(key, {**pattern_values(acl), "acls": []})
            resource["acls"].append(entry_values(acl))
        await pacer.step()
    return {"error_code": ErrorCode.none, "error_message": None, "resources": list(resources.values())}


def _error(error_code: ErrorCode, message: str | None) -> Values:
    return {"error_code": error_code, "error_message": message, "resources": ()}
