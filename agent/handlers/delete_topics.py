"""DeleteTopics: deletes topics.

- Versions: 1-6. From 6 on a topic may be named by its id (KIP-516).
- Behaviour: a topic that a request names twice, even once by name and once by id, is an error and is not deleted.
- Source: org.apache.kafka.server.ControllerApis.deleteTopics (Kafka 4.3).
"""

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from agent.admin.topics import TopicError, before, deadline_s
from agent.request.controller_mutations import count_mutations
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield
from agent.security.required_rights import DELETE_CLUSTER, DELETE_TOPIC, DESCRIBE_TOPIC
from agent.security.rights import Rights
from protocol.auth.operations import CLUSTER_NAME
from protocol.errors import ErrorCode
from protocol.types import TopicId

API_KEY = 20
FIRST_STRICT = 5
"""With a strict quota of controller mutations (KIP-599)."""

Mention = tuple[str | None, uuid.UUID | None]
"""A topic's name or id, as a request gives it."""


async def handle(services: Services, request: Request, body: Any) -> Values:
    end_s = deadline_s(services.clock, body.timeout.total_seconds())
    if request.frame.api_version >= 6:
        wanted = [(topic.name, topic.topic_id) for topic in body.topics]
    else:
        wanted = [(name, None) for name in body.topic_names]
    names_of_ids = await _names_of_ids(services, wanted)
    denied, hidden = await _judge(request.rights, {name for name, _ in wanted if name is not None}, names_of_ids)
    # A client that may not delete a topic is not shown that a name and an id are one topic.
    mentions = merge_mentions(wanted, {key: name for key, name in names_of_ids.items() if name not in denied})
    pacer = CooperativeYield(services.clock)
    results = []
    for (name, topic_id), count in mentions.items():
        topic_name = name if topic_id is None else names_of_ids.get(topic_id)
        denial = _denial(services, name, topic_name, denied, hidden) if count == 1 else None
        if denial is None:
            results.append(await _delete(services, request, (name, topic_id), count, end_s))
        else:
            results.append({"topic_id": topic_id, "error_message": None, **denial})
        await pacer.step()
    # As in Kafka: positions must not show which topics are absent and which may not be seen.
    results.sort(key=lambda _: services.ids.new_uuid())
    return {"responses": results}


async def _judge(
    rights: Rights, names: AbstractSet[str], names_of_ids: Mapping[uuid.UUID, str]
) -> tuple[frozenset[str], frozenset[str]]:
    """The topics that the client may not delete, and of them those that it may not even describe."""
    if rights.may(*DELETE_CLUSTER, CLUSTER_NAME):
        return frozenset(), frozenset()
    every_name = {*names, *names_of_ids.values()}
    denied = await rights.denied_names(*DELETE_TOPIC, every_name)
    if not denied or rights.may(*DELETE_CLUSTER, CLUSTER_NAME):
        return frozenset(), frozenset()
    return denied, frozenset(name for name in denied if not rights.may(*DESCRIBE_TOPIC, name))


def _denial(
    services: Services, name: str | None, topic_name: str | None, denied: AbstractSet[str], hidden: AbstractSet[str]
) -> dict[str, Any] | None:
    """The fields of the answer where the client may not delete the topic, else None.

    A name that it may not describe has the same answer whether or not there is such a topic. A topic that is named by
    id is named in the answer only where the client may describe it.
    """
    if topic_name is None or topic_name not in denied:
        return None
    is_absent = name is not None and topic_name not in hidden and services.topics.known(topic_name) is None
    return (
        None
        if is_absent
        else {
            "name": None if name is None and topic_name in hidden else topic_name,
            "error_code": ErrorCode.topic_authorization_failed,
        }
    )


def merge_mentions(wanted: Sequence[Mention], name_of: Mapping[uuid.UUID, str]) -> Counter[Mention]:
    """The number of mentions of each topic. One that is named both by name and by id has one key with both."""
    mentions = Counter(wanted)
    for topic_id, name in name_of.items():
        if (name, None) in mentions:
            mentions[name, topic_id] = mentions.pop((name, None)) + mentions.pop((None, topic_id))
    return mentions


async def _names_of_ids(services: Services, wanted: Sequence[Mention]) -> dict[uuid.UUID, str]:
    """The names of the topics that exist and are named by id alone."""
    ids = [topic_id for name, topic_id in wanted if topic_id is not None and name is None]
    topics_by_id = {topic_id: await services.topics.by_id(TopicId(topic_id.bytes)) for topic_id in ids}
    return {topic_id: topic.name for topic_id, topic in topics_by_id.items() if topic is not None}


async def _delete(
    services: Services, request: Request, mention: Mention, mentions: int, end_s: float
) -> dict[str, Any]:
    name, topic_id = mention
    result: dict[str, Any] = {"name": name, "topic_id": topic_id, "error_code": ErrorCode.none, "error_message": None}
    try:
        if mentions > 1:
            raise TopicError(ErrorCode.invalid_request, "Duplicate topic name or topic id in the request.")
        if (name is None) == (topic_id is None):
            raise TopicError(ErrorCode.invalid_request, "Give either the topic's name or its id.")
        if name is not None:
            topic = await services.topics.by_name(name)
            unknown = ErrorCode.unknown_topic_or_partition
        else:
            assert topic_id is not None
            topic = await services.topics.by_id(TopicId(topic_id.bytes))
            unknown = ErrorCode.unknown_topic_id
        if topic is None:
            raise TopicError(unknown, "This server does not host this topic.")
        # Rejected or not, the answer has both.
        result |= {"name": topic.name, "topic_id": uuid.UUID(bytes=topic.topic_id)}
        count_mutations(request, len(topic.partitions), is_strict=request.frame.api_version >= FIRST_STRICT)
        deletion = services.topics.delete(topic, is_by_name=name is not None)
        topic = await before(end_s, services.clock, deletion)
    except TopicError as error:
        return result | {"error_code": error.error_code, "error_message": error.message}
    return result | {"name": topic.name, "topic_id": uuid.UUID(bytes=topic.topic_id)}
