"""CreateTopics: creates topics.

- Versions: 2-7. From 5 on the response has the configs, from 7 on the topic id.
- Behaviour: a request for more than 10,000 partitions in all creates nothing, as in Kafka (KAFKA-17870): a response
  describes every topic with all its configs. Replica assignments give the number of partitions, and set which agents
  clients ask first; where they name brokers that do not exist, their number alone counts. From 6 on a
  topic is rejected while its client is above its quota of mutations (KIP-599).
- Differs from Kafka: any replication factor is accepted, because the bucket replicates, and is reported as 1.
  The topic of the audit log is TOPIC_AUTHORIZATION_FAILED: agents create it (`--audit-log topic`).
- Source: org.apache.kafka.controller.ReplicationControlManager.createTopics (Kafka 4.3).
"""

import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from agent.admin.topics import TopicError, before, deadline_s
from agent.request.config_entries import created_topic_configs
from agent.request.controller_mutations import count_mutations
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield
from agent.security.audit.audit_subject import AGENTS_ALONE, record_denials
from agent.security.required_rights import CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_CONFIGS_TOPIC
from agent.security.rights import Rights
from coordinator.configs.topic_configs import broker_value
from coordinator.configs.topic_names import AUDIT_TOPIC
from protocol.auth.operations import CLUSTER_NAME
from protocol.errors import ErrorCode
from protocol.limits import CREATIONS_PER_TURN, PARTITIONS_CREATED_PER_REQUEST_MAX

API_KEY = 19
REPLICATION_FACTOR = 1
USE_DEFAULT = -1
FIRST_WITH_CONFIGS = 5
FIRST_STRICT = 6
"""With a strict quota of controller mutations (KIP-599)."""
HIDDEN: Final = {
    "topic_config_error_code": ErrorCode.topic_authorization_failed,
    "num_partitions": -1,
    "replication_factor": -1,
    "configs": [],
}
"""The fields of a created topic for a client that may not see its configs."""


async def handle(services: Services, request: Request, body: Any) -> Values:
    mentions = Counter(topic.name for topic in body.topics)
    is_validate_only = body.validate_only
    end_s = deadline_s(services.clock, body.timeout.total_seconds())
    denied = await _denied(request.rights, mentions)
    # Asked for together with the right to create: a client that may not see configs gets the topic without them.
    hidden = await request.rights.denied_names(*DESCRIBE_CONFIGS_TOPIC, mentions)
    is_excessive = _partitions_wanted(services, body.topics) > PARTITIONS_CREATED_PER_REQUEST_MAX
    pacer = CooperativeYield(services.clock, CREATIONS_PER_TURN)
    results = []
    for topic in {topic.name: topic for topic in body.topics}.values():
        try:
            if is_excessive:
                raise TopicError(ErrorCode.policy_violation, "Excessively large number of partitions per request.")
            if mentions[topic.name] > 1:
                raise TopicError(ErrorCode.invalid_request, "Duplicate topic name.")
            if topic.name in denied:
                raise TopicError(ErrorCode.topic_authorization_failed, "Authorization failed.")
            if topic.name == AUDIT_TOPIC:  # its records would look like those of agents
                record_denials(services.audit_log, *CREATE_TOPIC, (AUDIT_TOPIC,), rule=AGENTS_ALONE)
                raise TopicError(ErrorCode.topic_authorization_failed, f"Agents alone create '{AUDIT_TOPIC}'.")
            creation = _create(services, request, topic, is_validate_only=is_validate_only)
            row = await before(end_s, services.clock, creation)
            results.append(row | HIDDEN if topic.name in hidden else row)
        except TopicError as error:
            results.append(
                {
                    "name": topic.name,
                    "topic_id": None,
                    "error_code": error.error_code,
                    "error_message": error.message,
                    "topic_config_error_code": ErrorCode.none,
                    "num_partitions": -1,
                    "replication_factor": -1,
                    "configs": [],
                }
            )
        await pacer.step()
    return {"topics": results}


async def _denied(rights: Rights, names: Iterable[str]) -> frozenset[str]:
    """The topics that the client may not create: neither any topic nor one of that name."""
    if rights.may(*CREATE_CLUSTER, CLUSTER_NAME):
        return frozenset()
    denied = await rights.denied_names(*CREATE_TOPIC, names)
    return frozenset() if denied and rights.may(*CREATE_CLUSTER, CLUSTER_NAME) else denied


def _partitions_wanted(services: Services, topics: Sequence[Any]) -> int:
    """The number of partitions that a request would create. A topic that is rejected by itself counts nothing."""
    default = int(broker_value(services.broker_configs, "num.partitions"))
    return sum(
        len(topic.assignments) or (default if topic.num_partitions == USE_DEFAULT else max(topic.num_partitions, 0))
        for topic in topics
    )


async def _create(services: Services, request: Request, topic: Any, *, is_validate_only: bool) -> dict[str, Any]:
    version = request.frame.api_version
    partition_count = _partition_count(services, topic)
    configs = {config.name: config.value for config in topic.configs}
    topic_id = None
    layers = services.broker_configs.layers
    await services.topics.check(topic.name, partition_count=partition_count, configs=configs)
    count_mutations(request, partition_count, is_strict=version >= FIRST_STRICT)
    if not is_validate_only:
        assigned = sorted(topic.assignments, key=_partition_index)
        replicas = [assignment.broker_ids for assignment in assigned]
        created = await services.topics.create(
            topic.name, partition_count=partition_count, configs=configs, replicas=replicas
        )
        topic_id = uuid.UUID(bytes=created.topic_id)
    return {
        "name": topic.name,
        "topic_id": topic_id,
        "error_code": ErrorCode.none,
        "error_message": None,
        "topic_config_error_code": ErrorCode.none,
        "num_partitions": partition_count,
        "replication_factor": REPLICATION_FACTOR,
        "configs": created_topic_configs(configs, layers) if version >= FIRST_WITH_CONFIGS else [],
    }


def _partition_index(assignment: Any) -> int:
    return int(assignment.partition_index)


def _partition_count(services: Services, topic: Any) -> int:
    if topic.assignments:
        if topic.num_partitions != USE_DEFAULT or topic.replication_factor != USE_DEFAULT:
            raise TopicError(
                ErrorCode.invalid_request,
                "A manual partition assignment was specified, but numPartitions or replicationFactor was not -1.",
            )
        indexes = sorted(assignment.partition_index for assignment in topic.assignments)
        if indexes != list(range(len(indexes))):
            raise TopicError(
                ErrorCode.invalid_replica_assignment,
                "partitions should be a consecutive 0-based integer sequence.",
            )
        return len(indexes)
    if topic.replication_factor == 0 or topic.replication_factor < USE_DEFAULT:
        raise TopicError(
            ErrorCode.invalid_replication_factor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions == USE_DEFAULT:
        return int(broker_value(services.broker_configs, "num.partitions"))
    return int(topic.num_partitions)
