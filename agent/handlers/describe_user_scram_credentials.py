"""DescribeUserScramCredentials: the mechanisms and iterations of users' credentials (KIP-554).

- Versions: 0.
- Behaviour: the request takes a barrier first (safety rule S4). A user that is named and has no credential is
  RESOURCE_NOT_FOUND, and one that is named twice DUPLICATE_RESOURCE. No name, or none at all, asks for all users.
  `kafka-configs --describe --entity-type users` sends this after DescribeClientQuotas.
- Source: org.apache.kafka.image.ScramImage.describe (Kafka 4.3).
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from agent.admin.topics import catch_up, deadline_s
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield
from protocol.errors import ErrorCode

API_KEY = 50


async def handle(services: Services, request: Request, body: Any) -> Values:
    unseen = await catch_up(services.ledger, services.clock, deadline_s(services.clock))
    if unseen is not None:
        return {"error_code": unseen.error_code, "error_message": unseen.message, "results": ()}
    pacer = CooperativeYield(services.clock)
    infos: dict[str, list[Values]] = {}
    for (user, mechanism), credential in sorted(services.state.scram.items()):
        infos.setdefault(user, []).append({"mechanism": mechanism, "iterations": credential.iterations})
        await pacer.step()
    mentions = Counter([user.name for user in body.users]) if body.users else Counter(infos.keys())
    results = [_result(name, infos.get(name, ()), is_twice=count > 1) for name, count in mentions.items()]
    return {"error_code": ErrorCode.none, "error_message": None, "results": results}


def _result(name: str, infos: Sequence[Values], *, is_twice: bool) -> Values:
    error_code: ErrorCode = ErrorCode.none
    message = None
    if is_twice:
        error_code = ErrorCode.duplicate_resource
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    elif not infos:
        error_code = ErrorCode.resource_not_found
        message = f"Attempt to describe a user credential that does not exist: {name}"
    found = () if error_code is not ErrorCode.none else infos
    return {"user": name, "error_code": error_code, "error_message": message, "credential_infos": found}
