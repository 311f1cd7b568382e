"""Requests of all served APIs and versions, with learnt values where a field wants some."""

import random
import struct
import types
import typing
import uuid
from dataclasses import fields, replace
from datetime import timedelta
from typing import NamedTuple

from kio.index import load_request_schema
from kio.static.primitive import Records

from protocol.api_versions import API_VERSIONS, ApiRange
from tests.faults.hostile_requests import BITS, Hint, RequestMaker
from tests.requests.batches import make_batch
from tests.requests.response_ids import Learnt, Persona
from tests.support.records.kio_messages import KioEntity, kio_write

TOPICS = ("drawn", "rough", "compacted")
GROUPS = ("g0", "g1", "g2", "c0", "c1")
JOIN_GROUP, CREATE_TOPICS, CONSUMER_GROUP_HEARTBEAT = 11, 19, 68
SERVED = [(row, version) for row in API_VERSIONS for version in range(row.version_served_min, row.version_max + 1)]
SUBSCRIPTION = b"\0\0" + b"\0\0\0\1" + b"\0\5drawn" + b"\xff\xff\xff\xff"
"""What a member of type "consumer" must send."""
FAVOURITES = (0, 0, 0, 1, 1, 8, 11, 14, 12, 22, 24, 25, 26, 28, 68)
"""APIs that keep state, which are drawn as often as all others together."""
FOLLOWING = {11: (14, 12, 8), 22: (24, 0, 25, 28, 26), 68: (68, 68, 8), 1: (1,)}
"""What a client usually asks next."""
GENERATIONS = ("generation_id", "generation_id_or_member_epoch", "member_epoch")
PRODUCER_IDS = ("producer_id", "v3_and_below_producer_id")
PRODUCER_EPOCHS = ("producer_epoch", "v3_and_below_producer_epoch")
TRANSACTIONAL_NAMES = ("transactional_id", "v3_and_below_transactional_id")
BY_POOL = {
    "session_id": "session_id",
    "fetch_offset": "offset",
    "committed_offset": "offset",
    "offset": "offset",
    "timestamp": "offset",
    "log_start_offset": "offset",
    "leader_epoch": "leader_epoch",
    "current_leader_epoch": "leader_epoch",
    "last_fetched_epoch": "leader_epoch",
    "committed_leader_epoch": "leader_epoch",
    "client_instance_id": "client_instance_id",
    "subscription_id": "subscription_id",
    "broker_id": "broker_id",
    "protocol_name": "protocol_name",
}
"""Fields of requests that take what answers gave."""


class Drawn(NamedTuple):
    """One request."""

    row: ApiRange
    version: int
    entity: KioEntity
    """None where bytes alone were drawn."""
    data: bytes

    def __str__(self) -> str:
        return f"{self.row.name} {self.version} {self.entity}\n    as hex: {self.data.hex()}"


class RequestDrawer(RequestMaker):
    """Draws a client's next request. Deterministic from the seed and from what it learnt."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, topic_ids=())
        self._transactional_ids = tuple(f"x{seed % 4}-{number}" for number in range(3))
        """Some are another client's too."""
        self._own_group = f"own{seed % 1_000}"
        self.learnt = Learnt(self._dice)
        self._persona = self.learnt.persona()
        self._topic, self._partition = TOPICS[0], 0
        self._is_joining = False
        self._following: list[int] = []
        """APIs of the requests that go on with what was begun."""
        self._is_coherent = True
        """Whether a member's fields fit together, and its group."""

    def draw(self, number: int) -> Drawn:
        dice = self._dice
        if number % 30 == 0:
            return self.topics_again(number)
        is_following = bool(self._following)
        if is_following or dice.random() < 0.5:
            wanted = self._following.pop(0) if self._following else dice.choice(FAVOURITES)
            row, version = dice.choice([(row, version) for row, version in SERVED if row.api_key == wanted])
        else:
            row, version = dice.choice(SERVED)
        if not is_following and dice.random() < 0.5:
            self._following += FOLLOWING.get(row.api_key, ())
        is_consumer = row.api_key == CONSUMER_GROUP_HEARTBEAT or dice.random() < 0.2
        self._persona = self.learnt.persona(is_consumer=is_consumer, is_newest=is_following)
        self._is_joining = row.api_key == JOIN_GROUP
        self._is_coherent = dice.random() < 0.7
        entity = self._entity(load_request_schema(int(row.api_key), version))
        if dice.random() < 0.5:
            entity = self._sensible(row.api_key, entity)
        data = self.header(row, version, number) + kio_write(entity)
        return Drawn(row, version, entity, self.mutated(data) if dice.random() < 0.03 else data)

    def _sensible(self, api_key: int, entity: KioEntity) -> KioEntity:
        """The request with what its API wants of fields that nobody gave in an answer."""
        has = {each.name for each in fields(entity)}
        values: dict[str, object] = {}
        match api_key:
            case 11:
                protocol = _inner(type(entity), "protocols")(name="range", metadata=SUBSCRIPTION)
                values = {
                    "member_id": self._persona.member.member_id if self._dice.random() < 0.4 else "",
                    "protocol_type": "consumer",
                    "protocols": (protocol,),
                }
            case 68:
                values = {
                    "member_id": str(uuid.UUID(int=self._dice.getrandbits(128))),
                    "member_epoch": 0,
                    "rebalance_timeout": self._inner_hint(entity, "rebalance_timeout").parse(_ms(1_000)),
                    "subscribed_topic_names": TOPICS[:2],
                    "subscribed_topic_regex": None,
                    "server_assignor": "uniform",
                    "topic_partitions": (),
                }
                if self._dice.random() < 0.5:  # the heartbeat of one that has joined
                    values |= {"member_id": self._persona.member.member_id, "topic_partitions": None}
                    values["member_epoch"] = self._persona.member.generation
            case 0:
                values = {"transactional_id": self._persona.producer.transactional_id}
        for name in ("group_instance_id", "instance_id"):
            values[name] = None
        return replace(entity, **{name: value for name, value in values.items() if name in has})

    def _inner_hint(self, entity: KioEntity, name: str) -> Hint:
        return typing.get_type_hints(type(entity))[name]

    def topics_again(self, number: int) -> Drawn:
        """Topics are drawn to be deleted, too."""
        row = next(row for row in API_VERSIONS if row.api_key == CREATE_TOPICS)
        schema: KioEntity = load_request_schema(CREATE_TOPICS, row.version_max)
        topic_schema = _inner(schema, "topics")
        config_schema = _inner(topic_schema, "configs")
        topics = tuple(
            topic_schema(
                name=name,
                num_partitions=3,
                replication_factor=1,
                assignments=(),
                configs=(config_schema(name="cleanup.policy", value="compact"),) if name == "compacted" else (),
            )
            for name in TOPICS
        )
        entity = schema(topics=topics, timeout=_ms(5_000), validate_only=False)
        return Drawn(row, row.version_max, entity, self.header(row, row.version_max, number) + kio_write(entity))

    def header(self, row: ApiRange, version: int, correlation_id: int) -> bytes:
        head = struct.pack(">hhih", row.api_key, version, correlation_id, 5) + b"drawn"
        return head + b"\0" if row.is_flexible(version) else head

    def _value(self, name: str, hint: Hint, kind: str | None) -> object:
        dice = self._dice
        if dice.random() < 0.85:
            value = self._fitting(name, hint, kind)
            if value is not None:
                return value
        if getattr(hint, "__origin__", None) is tuple and dice.random() < 0.01:
            inner = hint.__args__[0]
            if not isinstance(inner, types.UnionType) and not hasattr(inner, "__dataclass_fields__"):
                return tuple(
                    super(RequestDrawer, self)._value(name, inner, kind) for _ in range(dice.choice((200, 2_000)))
                )
        return super()._value(name, hint, kind)

    def _fitting(self, name: str, hint: Hint, kind: str | None) -> object:
        """A value by which the request gets further; None where any will do."""
        if kind == "records":
            return Records(self._records())
        if kind == "uuid":
            found = self.learnt.any(name)
            return found if isinstance(found, uuid.UUID) else None
        if kind is None or getattr(hint, "__origin__", None) is tuple:
            return None
        value = self._by_name(name, self._persona)
        if value is None and name in BY_POOL:
            value = self.learnt.any(BY_POOL[name])
        if kind in BITS and isinstance(value, int) and not isinstance(value, bool):
            return value if -(1 << BITS[kind]) <= value < 1 << BITS[kind] else None
        return value if isinstance(value, str) and kind == "string" else _time(name, hint, kind, self._dice)

    def _by_name(self, name: str, persona: Persona) -> object:
        dice = self._dice
        if name in PRODUCER_IDS:
            return persona.producer.producer_id
        if name in PRODUCER_EPOCHS:
            return persona.producer.epoch
        if name in TRANSACTIONAL_NAMES:
            return persona.producer.transactional_id or dice.choice(self._transactional_ids)
        if name in GENERATIONS:
            return (
                persona.member.generation if self._is_coherent else dice.choice((0, -1, -2, persona.member.generation))
            )
        if name == "protocol_name" or (name == "name" and self._is_joining):
            return dice.choice(("range", "range", "roundrobin"))
        if name == "member_id":
            return persona.member.member_id if self._is_coherent else dice.choice(("", str(uuid.UUID(int=7))))
        if name in ("group_id", "key", "groups"):
            known = persona.member.group_id if self._is_coherent else dice.choice(GROUPS)
            return known if dice.random() < 0.8 else self._own_group
        return self._by_other_name(name)

    def _by_other_name(self, name: str) -> object:
        dice = self._dice
        match name:
            case "name" | "topic" | "topic_name":
                self._topic = dice.choice(TOPICS)
                return self._topic
            case "index" | "partition" | "partition_index" | "partition_indexes":
                self._partition = dice.choice((0, 0, 1, 2))
                return self._partition
            case "acks":
                return dice.choice((-1, -1, -1, 1, 0))
            case "protocol_type":
                return "consumer"
            case "isolation_level":
                return dice.choice((0, 1))
            case "session_epoch":
                return dice.choice((0, 1, 2, 3, -1))
            case "replica_id":
                return -1
            case "server_assignor":
                return dice.choice(("uniform", "range"))
        return None

    def _records(self) -> bytes:
        producer = self._persona.producer if self._dice.random() < 0.6 and self._persona.producer.epoch >= 0 else None
        return make_batch(self._dice, self.learnt, producer, self._topic, self._partition)


def _time(name: str, hint: Hint, kind: str, dice: random.Random) -> object:
    """Times that make members live, and requests wait little."""
    if not kind.startswith("timedelta"):
        return None
    if name.startswith("session"):
        return hint.parse(_ms(dice.choice((6_000, 6_000, 10_000))))
    if name == "timeout":
        return hint.parse(_ms(dice.choice((5_000,) * 8 + (5, 0))))
    if name.startswith(("rebalance", "transaction")):
        return hint.parse(_ms(dice.choice((5, 50, 1_000))))
    return None


def _ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def _inner(schema: type, name: str) -> KioEntity:
    """The schema of a field that is an array of entities."""
    return typing.get_type_hints(schema)[name].__args__[0]
