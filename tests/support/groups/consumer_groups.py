"""Consumer groups (KIP-848) as tests talk to them: heartbeats with defaults, and a group whose rows are held to it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from coordinator.commands.commands import Proposal
from coordinator.commands.consumer_group_values import (
    ConsumerGroup,
    ConsumerGroupChange,
    Partitions,
    partitions,
    rejection,
    replay,
    without_epochs,
)
from coordinator.commands.group import WriteConsumerGroup
from coordinator.groups.consumer_group import LiveConsumerGroup
from coordinator.groups.consumer_group_messages import (
    NOT_SAID,
    ConsumerGroupConfig,
    ConsumerHeartbeat,
    GroupRejection,
    HeartbeatAnswer,
)
from coordinator.groups.consumer_group_regexes import room_for
from protocol.errors import ErrorCode
from protocol.types import TopicId
from tests.support.commands.entries import decode, encode

CONFIG = ConsumerGroupConfig(session_timeout_ms=45_000, heartbeat_interval_ms=5_000, max_size=1_000)
REBALANCE_TIMEOUT_MS = 60_000


def topic_id(name: str) -> TopicId:
    """The same id for the same name, and never another topic's."""
    return TopicId(name.encode().ljust(16, b"."))


def owned(**topics: Iterable[int]) -> Partitions:
    """Partitions by topic name."""
    return partitions({topic_id(name): indexes for name, indexes in topics.items()})


def beat(
    member: str,
    epoch: int = 0,
    *,
    names: Iterable[str] | None = None,
    regex: str | None = None,
    said: Partitions | None = None,
    instance: str | None = None,
    rack: str | None = None,
    assignor: str | None = None,
    rebalance_timeout_ms: int | None = None,
) -> ConsumerHeartbeat:
    """A heartbeat; with epoch 0 it has what joining takes: the topic `t`, unless told otherwise."""
    is_join = epoch == 0
    if is_join and names is None and regex is None:
        names = ("t",)
    if rebalance_timeout_ms is None:
        rebalance_timeout_ms = REBALANCE_TIMEOUT_MS if is_join else NOT_SAID
    return ConsumerHeartbeat(
        member_id=member,
        epoch=epoch,
        instance_id=instance,
        rack_id=rack,
        rebalance_timeout_ms=rebalance_timeout_ms,
        names=None if names is None else tuple(names),
        regex=regex,
        server_assignor=assignor,
        owned=() if is_join and said is None else said,
        client_id="client",
        client_host="/127.0.0.1",
    )


@dataclass(slots=True)
class Coordinated:
    """A live group, and the group as the ledger has it: after every step both are the same."""

    topics: dict[str, int]
    live: LiveConsumerGroup = field(default_factory=lambda: LiveConsumerGroup("g", None, 0.0))
    written: ConsumerGroup | None = None
    changes_count: int = 0
    now_s: float = 0.0
    config: ConsumerGroupConfig = CONFIG
    problems: Mapping[str, str] = field(default_factory=dict[str, str])
    """What is wrong with expressions."""

    @property
    def group(self) -> ConsumerGroup:
        return self.live.group

    def find_topic(self, name: str) -> tuple[TopicId, int] | None:
        return (topic_id(name), self.topics[name]) if name in self.topics else None

    def say(self, request: ConsumerHeartbeat) -> HeartbeatAnswer:
        """The answer to a heartbeat. Raises `GroupRejection`, and then nothing has changed."""
        before = self.live.group.copy()
        try:
            answer, change = self.live.heartbeat(request, self.config, self.find_topic, self.problems.get, self.now_s)
        except GroupRejection:
            assert self.live.group == before
            raise
        self.take(change)
        return answer

    def refused(self, request: ConsumerHeartbeat) -> ErrorCode:
        """The error of a heartbeat that is refused."""
        with pytest.raises(GroupRejection, match=r"\S") as caught:
            self.say(request)
        return caught.value.error_code

    def expire(self) -> list[str]:
        """Fence whom the time has come for."""
        gone = self.live.expired(self.config, self.now_s)
        if gone:
            self.take(self.live.fence(gone, self.find_topic))
        return gone

    def resolve(self, found: Mapping[str, tuple[str, ...]], now_s: float | None = None) -> None:
        """Take in what expressions match."""
        live, now_s = self.live, self.now_s if now_s is None else now_s
        room = room_for(found, found.__getitem__, live.group.regexes)
        self.take(*live.regexes.put(live.copy, room, self.find_topic, now_s))

    def take(self, *changes: ConsumerGroupChange | None) -> None:
        """What apply does with the rows, by way of the ledger's bytes."""
        for change in filter(None, changes):
            command = WriteConsumerGroup(group_id="g", claim_epoch=1, version=1, change=change)
            assert decode(encode(Proposal(time_ms=None, command=command))).command == command
            assert rejection(self.written, change) is None
            self.written = replay(self.written, change)
            self.changes_count += 1
        assert self.written == self.live.group

    def move_coordinator(self, heard_s: float = 0.0) -> None:
        """Go on from what the ledger has, as the next coordinator does; the one before may hear members so long."""
        self.live = LiveConsumerGroup("g", self.written, self.now_s + heard_s)

    def has(self, member: str) -> Partitions:
        """What a member may use now."""
        return without_epochs(self.group.assignment(member).assigned)

    def epoch(self, member: str) -> int:
        return self.group.assignment(member).epoch


def subscription(*topics: str, has: Mapping[str, Iterable[int]] | None = None) -> bytes:
    """What a classic consumer says in JoinGroup, version 1."""

    def text(value: str) -> bytes:
        return len(value).to_bytes(2, "big") + value.encode()

    def number(value: int) -> bytes:
        return value.to_bytes(4, "big", signed=True)

    parts = [b"\0\1", number(len(topics)), *map(text, topics), number(-1), number(len(has or {}))]
    for topic, indexes in (has or {}).items():
        rows = list(indexes)
        parts += [text(topic), number(len(rows)), *map(number, rows)]
    return b"".join(parts)


def one(partitions: int = 2) -> Coordinated:
    """The member `a` alone with the topic `t`."""
    group = Coordinated({"t": partitions, "u": 2})
    group.say(beat("a"))
    return group


def two() -> Coordinated:
    """The members `a` and `b`, each with two partitions of `t`."""
    group = one(4)
    group.say(beat("b"))
    group.say(beat("a", 2))
    group.say(beat("a", 2, said=owned(t=[0, 1])))
    group.say(beat("b", 3))
    assert (group.has("a"), group.has("b")) == (owned(t=[0, 1]), owned(t=[2, 3]))
    return group
