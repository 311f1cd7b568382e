"""DeleteTopics 1-6: by name, or by id from version 6 (KIP-516).

A topic named twice in one request is an error for both mentions, as in Kafka.
Source: org.apache.kafka.server.ControllerApis.deleteTopics (Kafka 4.3).
"""

import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any

from agent.handlers.entities import answer, request_body
from agent.services import Request, Services
from agent.topics import TopicError
from protocol.errors import ErrorCode
from protocol.types import TopicId
from storage.object_store import Buffer

API_KEY = 20


async def handle(services: Services, request: Request) -> Sequence[Buffer]:
    body = request_body(request.frame)
    if request.frame.api_version >= 6:
        wanted = [(topic.name, topic.topic_id) for topic in body.topics]
    else:
        wanted = [(name, None) for name in body.topic_names]
    mentions = Counter(wanted)
    results = [await _delete(services, name, topic_id, count) for (name, topic_id), count in mentions.items()]
    return answer(request.frame, {"responses": results})


async def _delete(services: Services, name: str | None, topic_id: uuid.UUID | None, mentions: int) -> dict[str, Any]:
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
        await services.topics.delete(topic)
    except TopicError as error:
        return result | {"error_code": error.error_code, "error_message": error.message}
    return result | {"name": topic.name, "topic_id": uuid.UUID(bytes=topic.topic_id)}
