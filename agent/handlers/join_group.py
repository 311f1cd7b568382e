"""JoinGroup: a member joins a classic group, and waits until the others have; then a generation begins.

- Versions: 0-9. In 0 the session's time-out is that of the rebalance, too. From 4 on a dynamic member is given an id
  first and joins with it (KIP-394). 5 adds static members (KIP-345), 7 the type of protocol (KIP-559), 8 a reason
  (KIP-800). From 9 on the leader may have to skip the assignment (KIP-814).
- Behaviour: the response may come minutes later. The connection's next requests are handled meanwhile; responses leave
  in order.
- Differs from Kafka: a second JoinGroup of a waiting member ends the first one with REBALANCE_IN_PROGRESS. Kafka never
  answers the first one.
- Source: org.apache.kafka.coordinator.group.GroupMetadataManager.classicGroupJoin (Kafka 4.3).
"""

from datetime import timedelta
from functools import partial
from typing import Any

from agent.groups.classic_group import next_ticket
from agent.request.deferred import DeferredValues
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.security.required_rights import READ_GROUP
from coordinator.groups.classic_messages import Join, JoinAnswer
from protocol.errors import ErrorCode
from protocol.limits import CLASSIC_PROTOCOLS_MAX

API_KEY = 11
FIRST_WITH_REBALANCE_TIMEOUT = 1
FIRST_WITH_KNOWN_IDS = 4
FIRST_WITH_INSTANCES = 5
FIRST_WITH_PROTOCOL_TYPE = 7
FIRST_WITH_REASON = 8
FIRST_WITH_SKIPPED_ASSIGNMENT = 9
MILLISECOND = timedelta(milliseconds=1)


async def handle(services: Services, request: Request, body: Any) -> Values | DeferredValues[Any]:
    to_values = partial(_values, request.frame.api_version)
    if not await request.rights.may_behind_barrier(*READ_GROUP, body.group_id):
        return to_values(JoinAnswer(error_code=ErrorCode.group_authorization_failed, member_id=""))
    if len(body.protocols) > CLASSIC_PROTOCOLS_MAX:
        return to_values(JoinAnswer(error_code=ErrorCode.inconsistent_group_protocol, member_id=body.member_id))
    joining = await services.groups.join(body.group_id, _join(services, request, body))
    return DeferredValues(joining, to_values)


def _join(services: Services, request: Request, body: Any) -> Join:
    version, client_id = request.frame.api_version, request.frame.client_id
    instance_id = body.group_instance_id if version >= FIRST_WITH_INSTANCES else None
    timeout = body.rebalance_timeout if version >= FIRST_WITH_REBALANCE_TIMEOUT else body.session_timeout
    return Join(
        ticket=next_ticket(),
        member_id=body.member_id,
        member_id_new=services.groups.new_member_id(client_id, instance_id),
        group_instance_id=instance_id,
        client_id=client_id,
        client_host=request.client_host,
        protocol_type=body.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in body.protocols),
        rebalance_timeout_ms=timeout // MILLISECOND,
        session_timeout_ms=body.session_timeout // MILLISECOND,
        needs_known_id=version >= FIRST_WITH_KNOWN_IDS,
        may_skip_assignment=version >= FIRST_WITH_SKIPPED_ASSIGNMENT,
        reason=(body.reason if version >= FIRST_WITH_REASON else None) or "no reason given",
    )


def rejection(api_version: int, error_code: ErrorCode) -> Values:
    """The response to a request that nothing is known of but its version."""
    return _values(api_version, JoinAnswer(error_code=error_code, member_id=""))


def _values(api_version: int, join_answer: JoinAnswer) -> Values:
    is_typed = api_version >= FIRST_WITH_PROTOCOL_TYPE
    return {
        "error_code": join_answer.error_code,
        "generation_id": join_answer.generation,
        "protocol_type": join_answer.protocol_type,
        "protocol_name": join_answer.protocol if is_typed or join_answer.protocol is not None else "",
        "leader": join_answer.leader,
        "skip_assignment": join_answer.skip_assignment,
        "member_id": join_answer.member_id,
        "members": [member._asdict() for member in join_answer.members],
    }
