"""CreatePartitions: adds partitions to topics.

- Versions: 0-3.
- Behaviour: offsets of a new partition begin at 0; keys may go to other partitions than before. Replica assignments,
  one for each new partition, set which agents clients ask first. Where they name brokers that do not exist, their
  number alone counts.
- Differs from Kafka: agents hold no replicas.
- Source: org.apache.kafka.controller.ReplicationControlManager.createPartitions, kafka.server.ControllerApis (Kafka
  4.3).
"""

from collections import Counter
from typing import Any

from agent.admin.topics import TopicError, before, catch_up, deadline_s
from agent.request.controller_mutations import count_mutations
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield
from agent.security.required_rights import ALTER_TOPIC
from protocol.errors import ErrorCode

API_KEY = 37
FIRST_STRICT = 3
"""With a strict quota of controller mutations (KIP-599)."""


async def handle(services: Services, request: Request, body: Any) -> Values:
    mentions = Counter(topic.name for topic in body.topics)
    end_s = deadline_s(services.clock, body.timeout.total_seconds())
    pacer = CooperativeYield(services.clock)
    denied = await request.rights.denied_names(*ALTER_TOPIC, mentions)
    unseen = await catch_up(services.ledger, services.clock, end_s)
    results = []
    for topic in {topic.name: topic for topic in body.topics}.values():
        error_code, message = ErrorCode.none, None
        try:
            if mentions[topic.name] > 1:
                raise TopicError(ErrorCode.invalid_request, "Duplicate topic name.")
            if topic.name in denied:
                raise TopicError(ErrorCode.topic_authorization_failed, None)
            if unseen is not None:
                raise unseen
            growth = _grow(services, request, topic, is_validate_only=body.validate_only)
            await before(end_s, services.clock, growth)
        except TopicError as error:
            error_code, message = error.error_code, error.message
        results.append({"name": topic.name, "error_code": error_code, "error_message": message})
        await pacer.step()
    return {"results": results}


async def _grow(services: Services, request: Request, topic: Any, *, is_validate_only: bool) -> None:
    topic_state = services.topics.check_growth(topic.name, topic.count)
    added_count = topic.count - len(topic_state.partitions)
    if topic.assignments is not None:
        if len(topic.assignments) != added_count:
            raise TopicError(
                ErrorCode.invalid_replica_assignment,
                f"Attempted to add {added_count} additional partition(s), but only {len(topic.assignments)} "
                "assignment(s) were specified.",
            )
        if not all(assignment.broker_ids for assignment in topic.assignments):
            raise TopicError(
                ErrorCode.invalid_replica_assignment,
                "The manual partition assignment includes an empty replica list.",
            )
    count_mutations(request, added_count, is_strict=request.frame.api_version >= FIRST_STRICT)
    if not is_validate_only:
        replicas = [assignment.broker_ids for assignment in topic.assignments or ()]
        await services.topics.grow(topic_state, topic.count, replicas)
