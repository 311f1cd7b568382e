"""LeaveGroup: members leave a classic group, or an administrator removes them.

- Versions: 0-5. Up to 2 a request names one member, and its error is the request's. From 3 on it names several, static
  ones by their instance ids alone (KIP-345), each with an error of its own. 5 adds a reason (KIP-800).
- Behaviour: a request with more members than a group may have is INVALID_REQUEST.
- Source: org.apache.kafka.coordinator.group.GroupMetadataManager.classicGroupLeave (Kafka 4.3).
"""

from typing import Any

from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.security.required_rights import READ_GROUP
from coordinator.groups.classic_messages import Leaver
from protocol.errors import ErrorCode
from protocol.limits import CLASSIC_MEMBERS_MAX

API_KEY = 13
FIRST_WITH_MEMBERS = 3
FIRST_WITH_REASON = 5


async def handle(services: Services, request: Request, body: Any) -> Values:
    version = request.frame.api_version
    if not await request.rights.may_behind_barrier(*READ_GROUP, body.group_id):
        return {"error_code": ErrorCode.group_authorization_failed, "members": []}
    if version < FIRST_WITH_MEMBERS:
        error_code, error_codes = await services.groups.leave(body.group_id, [Leaver(body.member_id, None)])
        return {"error_code": error_codes[0] if error_code is ErrorCode.none else error_code}
    if len(body.members) > CLASSIC_MEMBERS_MAX:
        return {"error_code": ErrorCode.invalid_request, "members": []}
    leavers = [
        Leaver(
            member.member_id,
            member.group_instance_id,
            (member.reason if version >= FIRST_WITH_REASON else None) or "no reason given",
        )
        for member in body.members
    ]
    error_code, error_codes = await services.groups.leave(body.group_id, leavers)
    member_errors = zip(leavers, error_codes, strict=True) if error_code is ErrorCode.none else ()
    members = [
        {"member_id": leaver.member_id, "group_instance_id": leaver.group_instance_id, "error_code": member_error}
        for leaver, member_error in member_errors
    ]
    return {"error_code": error_code, "members": members}
