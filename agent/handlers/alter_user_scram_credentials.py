"""AlterUserScramCredentials: rejects credentials (KIP-554).

- Versions: 0.
- Behaviour: a deletion is RESOURCE_NOT_FOUND, and a user that is named more than once DUPLICATE_RESOURCE, as in Kafka.
- Differs from Kafka: it stores credentials whether a listener uses them or not. Here no listener authenticates clients.
  A password that protects nothing must not look as if it did, so it is UNSUPPORTED_SASL_MECHANISM.
- Source: org.apache.kafka.controller.ScramControlManager.alterCredentials (Kafka 4.3).
"""

from collections import Counter
from typing import Any

from agent.request.messages import Values
from agent.request.services import Request, Services
from protocol.errors import ErrorCode

API_KEY = 51


async def handle(services: Services, request: Request, body: Any) -> Values:
    mentions = Counter(change.name for change in (*body.deletions, *body.upsertions))
    deleted = {deletion.name for deletion in body.deletions}
    results = [_result(name, is_twice=count > 1, is_deleted=name in deleted) for name, count in mentions.items()]
    return {"results": results}


def _result(name: str, *, is_twice: bool, is_deleted: bool) -> dict[str, Any]:
    if is_twice:
        error_code = ErrorCode.duplicate_resource
        message = "A user credential cannot be altered twice in the same request"
    elif is_deleted:
        error_code = ErrorCode.resource_not_found
        message = "Attempt to delete a user credential that does not exist"
    else:
        error_code = ErrorCode.unsupported_sasl_mechanism
        message = "No listener authenticates its clients, so SCRAM credentials would protect nothing"
    return {"user": name, "error_code": error_code, "error_message": message}
