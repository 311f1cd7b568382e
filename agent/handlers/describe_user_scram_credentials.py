"""DescribeUserScramCredentials: there are no credentials (KIP-554).

- Versions: 0.
- Behaviour: as in Kafka before any are set. A request for all users has no rows. A user that is named is
  RESOURCE_NOT_FOUND, and one that is named twice DUPLICATE_RESOURCE. `kafka-configs --describe --entity-type users`
  sends this after DescribeClientQuotas.
- Source: org.apache.kafka.image.ScramImage.describe (Kafka 4.3).
"""

from collections import Counter
from typing import Any

from agent.request.messages import Values
from agent.request.services import Request, Services
from protocol.errors import ErrorCode

API_KEY = 50


async def handle(services: Services, request: Request, body: Any) -> Values:
    mentions = Counter(user.name for user in body.users or ())
    results = [_result(name, is_twice=count > 1) for name, count in mentions.items()]
    return {"error_code": ErrorCode.none, "error_message": None, "results": results}


def _result(name: str, *, is_twice: bool) -> dict[str, Any]:
    if is_twice:
        error_code = ErrorCode.duplicate_resource
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    else:
        error_code = ErrorCode.resource_not_found
        message = f"Attempt to describe a user credential that does not exist: {name}"
    return {"user": name, "error_code": error_code, "error_message": message, "credential_infos": []}
