"""What answers told a client: the ids, epochs and offsets by which its next requests get past the first checks.

Rule: bounded, and the newest come first to mind; nothing here knows an API, fields are known by their names.
"""

import random
import uuid
from collections import deque
from dataclasses import dataclass, fields, is_dataclass
from typing import NamedTuple, TypeVar

from tests.support.records.kio_messages import KioEntity

KEPT_MAX = 24
KINDS = {
    "topic_id": "topic_id",
    "session_id": "session_id",
    "base_offset": "offset",
    "offset": "offset",
    "committed_offset": "offset",
    "log_start_offset": "offset",
    "high_watermark": "offset",
    "last_stable_offset": "offset",
    "end_offset": "offset",
    "low_watermark": "offset",
    "leader_epoch": "leader_epoch",
    "client_instance_id": "client_instance_id",
    "subscription_id": "subscription_id",
    "node_id": "broker_id",
    "protocol_name": "protocol_name",
    "cluster_id": "cluster_id",
}
"""Fields of answers whose values are worth keeping, and what they are."""

Told = TypeVar("Told")


class Producer(NamedTuple):
    producer_id: int
    epoch: int
    transactional_id: str | None


class Member(NamedTuple):
    group_id: str
    member_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class Persona:
    """Who sends a request: its fields fit together."""

    producer: Producer
    member: Member


class Learnt:
    """What one client knows."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._pools: dict[str, deque[KioEntity]] = {}
        self._producers: deque[Producer] = deque(maxlen=KEPT_MAX)
        self._members: dict[bool, deque[Member]] = {kind: deque(maxlen=KEPT_MAX) for kind in (True, False)}
        """Of consumer groups (KIP-848), and classic ones."""
        self._sequences: dict[tuple[int, int, str, int], int] = {}

    def learn(self, request: KioEntity, response: KioEntity) -> None:
        """Take in an answer and what was asked."""
        self._walk(response)
        if getattr(response, "producer_id", -1) >= 0:
            transactional_id = getattr(request, "transactional_id", None)
            self._producers.append(Producer(response.producer_id, response.producer_epoch, transactional_id))
        generation = getattr(response, "generation_id", getattr(response, "member_epoch", None))
        if generation is not None and getattr(response, "member_id", None):
            is_consumer = hasattr(response, "member_epoch")
            self._members[is_consumer].append(Member(request.group_id, response.member_id, generation))

    def persona(self, *, is_consumer: bool = False, is_newest: bool = False) -> Persona:
        dice = self._dice
        members = self._members[is_consumer]
        producer = (
            _newest(dice, self._producers, 1.0 if is_newest else 0.6) if self._producers else Producer(-1, -1, None)
        )
        member = _newest(dice, members, 1.0 if is_newest else 0.6) if members else Member("g0", "", -1)
        return Persona(producer, member)

    def any(self, kind: str) -> KioEntity | None:
        pool = self._pools.get(kind)
        return self._dice.choice(pool) if pool else None

    def sequence(self, producer: Producer, topic: str, partition: int, count: int) -> int:
        """The next sequence of the producer in the partition, which then goes on by `count`."""
        key = (producer.producer_id, producer.epoch, topic, partition)
        sequence = self._sequences.get(key, 0)
        self._sequences[key] = sequence + count
        if len(self._sequences) > 1_000:
            del self._sequences[next(iter(self._sequences))]
        return sequence

    def _walk(self, entity: KioEntity) -> None:
        for field in fields(entity):
            value = getattr(entity, field.name)
            if isinstance(value, tuple):
                for each in value[:KEPT_MAX]:
                    if is_dataclass(each):
                        self._walk(each)
            elif is_dataclass(value):
                self._walk(value)
            elif (kind := KINDS.get(field.name)) is not None and isinstance(value, int | str | uuid.UUID):
                self._pools.setdefault(kind, deque(maxlen=KEPT_MAX)).append(value)


def _newest(dice: random.Random, known: deque[Told], chance: float) -> Told:
    """Mostly the newest: the older ones were fenced."""
    return known[-1] if dice.random() < chance else dice.choice(known)
