"""The rights of a request on the topics that it names, by name or by id.

A name is judged whether or not the topic exists. An id is judged by the topic's name once that is known: an unknown id
is no secret, and its request is answered by what the ledger says (UNKNOWN_TOPIC_ID).
Source: org.apache.kafka.server.KafkaApis, for each API (Kafka 4.3).
"""

from collections.abc import Iterable
from typing import TypeVar

from agent.admin.topics import TopicAdmin
from agent.security.required_rights import Right
from agent.security.rights import Rights
from protocol.types import TopicId

Key = TypeVar("Key", bound=str | TopicId)


def name_of(topics: TopicAdmin, key: str | TopicId) -> str | None:
    """The name that a topic is judged by; None for an id that this agent does not know."""
    if isinstance(key, str):
        return key
    topic = topics.known_id(key)
    return None if topic is None else topic.name


async def denied_topics(rights: Rights, right: Right, topics: TopicAdmin, keys: Iterable[Key]) -> frozenset[Key]:
    """The names and known ids among `keys` on which the right is missing, behind one barrier (S16)."""
    named = {key: name for key in keys if (name := name_of(topics, key)) is not None}
    denied = await rights.denied_names(*right, named.values())
    return frozenset(key for key, name in named.items() if name in denied) if denied else frozenset()


async def is_denied(rights: Rights, right: Right, name: str) -> bool:
    """Whether the right on one resource is missing, behind a barrier (S16)."""
    return not await rights.may_behind_barrier(*right, name)
