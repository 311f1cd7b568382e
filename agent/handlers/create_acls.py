"""CreateAcls: creates access control lists (KIP-11, KIP-140, KIP-290).

- Versions: 1-3.
- Behaviour: each ACL has its own result; one that is there already is a success. Without an authorizer all results are
  SECURITY_DISABLED.
- Differs from Kafka: there are at most 50,000 ACLs, with names of at most 1,024 characters; what is beyond is
  POLICY_VIOLATION. ACLs of one request are created together in runs of at most 2,000.
- Source: org.apache.kafka.server.AclApis.handleCreateAcls, org.apache.kafka.controller.AclControlManager (Kafka 4.3).
"""

from typing import Any

from agent.admin.security_changes import SecurityChanges, entry_batches, row_bytes
from agent.admin.topics import TopicError, deadline_s
from agent.request.acl_rows import NO_AUTHORIZER, AclError, read_acl
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield
from coordinator.security.acls import Acl
from protocol.errors import ErrorCode

API_KEY = 30
SUCCESS: Values = {"error_code": ErrorCode.none, "error_message": None}


async def handle(services: Services, request: Request, body: Any) -> Values:
    if not services.is_authorizer_on:
        return {"results": [_error(ErrorCode.security_disabled, NO_AUTHORIZER)] * len(body.creations)}
    pacer = CooperativeYield(services.clock)
    results = [SUCCESS] * len(body.creations)
    acls: list[tuple[tuple[int, Acl], int]] = []
    for number, row in enumerate(body.creations):
        try:
            acls.append(((number, read_acl(row)), row_bytes(row.principal, row.host, row.resource_name)))
        except AclError as error:
            results[number] = _error(error.error_code, error.message)
        await pacer.step()
    changes = SecurityChanges(services.ledger, services.clock, deadline_s(services.clock))
    for batch in entry_batches(acls):
        try:
            await changes.create_acls([acl for _, acl in batch])
        except TopicError as error:
            for number, _ in batch:
                results[number] = _error(error.error_code, error.message)
    return {"results": results}


def _error(error_code: ErrorCode, message: str | None) -> Values:
    return {"error_code": error_code, "error_message": message}
