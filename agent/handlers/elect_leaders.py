"""ElectLeaders: never needed, because every partition has its preferred leader (KIP-460).

- Versions: 0-2. 1 adds the type of election.
- Behaviour: the request takes a barrier first (safety rule S4). Each partition that is named is ELECTION_NOT_NEEDED,
  which Kafka's tools take as success. A request for all partitions (null) has no rows, as in Kafka.
- Differs from Kafka: leaders follow from the list of live agents. All agents compute the same ones.
- Source: org.apache.kafka.controller.ReplicationControlManager.electLeaders (Kafka 4.3).
"""

from typing import Any

from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield
from protocol.errors import ErrorCode

API_KEY = 43
FIRST_WITH_TYPES = 1
PREFERRED, UNCLEAN = 0, 1


async def handle(services: Services, request: Request, body: Any) -> Values:
    election_type = body.election_type if request.frame.api_version >= FIRST_WITH_TYPES else PREFERRED
    if election_type not in (PREFERRED, UNCLEAN):
        return {"error_code": ErrorCode.invalid_request, "replica_election_results": []}
    await services.ledger.barrier()
    pacer = CooperativeYield(services.clock)
    topics = []
    for wanted in body.topic_partitions or ():
        rows = []
        for index in wanted.partitions:
            rows.append(_result(services, wanted.topic, index))
            await pacer.step()
        topics.append({"topic": wanted.topic, "partition_result": rows})
        await pacer.step()
    return {"error_code": ErrorCode.none, "replica_election_results": topics}


def _result(services: Services, name: str, index: int) -> dict[str, Any]:
    topic = services.topics.known(name)
    if topic is None:
        error_code, message = ErrorCode.unknown_topic_or_partition, f"No such topic as {name}"
    elif not 0 <= index < len(topic.partitions):
        error_code, message = ErrorCode.unknown_topic_or_partition, f"No such partition as {name}-{index}"
    else:
        error_code = ErrorCode.election_not_needed
        message = "Leaders follow from which agents live: every partition has its preferred one."
    return {"partition_id": index, "error_code": error_code, "error_message": message}
