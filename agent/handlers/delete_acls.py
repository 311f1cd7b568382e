"""DeleteAcls: deletes the access control lists that filters fit (KIP-11, KIP-140, KIP-290).

- Versions: 1-3.
- Behaviour: each filter has its own result, with the ACLs that it removed. They are found where the ledger has the
  deletion, not where the request came. A filter that fits nothing is a success. Without an authorizer all results are
  SECURITY_DISABLED.
- Differs from Kafka: each filter is carried out by itself. So an ACL that two filters fit is in the first one's result
  alone. A filter that fits more than 10,000 ACLs fails and deletes nothing; in Kafka that is the request's number.
- Source: org.apache.kafka.server.AclApis.handleDeleteAcls, org.apache.kafka.controller.AclControlManager (Kafka 4.3).
"""

from typing import Any

from agent.admin.security_changes import SecurityChanges
from agent.admin.topics import TopicError, deadline_s
from agent.request.acl_rows import NO_AUTHORIZER, AclError, entry_values, pattern_values, read_filter
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield
from protocol.errors import ErrorCode

API_KEY = 31
SUCCESS: Values = {"error_code": ErrorCode.none, "error_message": None}


async def handle(services: Services, request: Request, body: Any) -> Values:
    if not services.is_authorizer_on:
        return {"filter_results": [_error(ErrorCode.security_disabled, NO_AUTHORIZER)] * len(body.filters)}
    pacer = CooperativeYield(services.clock)
    changes = SecurityChanges(services.ledger, services.clock, deadline_s(services.clock))
    results: list[Values] = []
    for row in body.filters:
        try:
            deleted = await changes.delete_acls(read_filter(row))
        except (AclError, TopicError) as error:
            results.append(_error(error.error_code, error.message))
        else:
            results.append(
                {
                    **SUCCESS,
                    "matching_acls": [{**SUCCESS, **pattern_values(acl), **entry_values(acl)} for acl in deleted],
                }
            )
        await pacer.step()
    return {"filter_results": results}


def _error(error_code: ErrorCode, message: str | None) -> Values:
    return {"error_code": error_code, "error_message": message, "matching_acls": ()}
