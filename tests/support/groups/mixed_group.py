"""A consumer group with members of both protocols, and the JoinGroup of a classic one."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from coordinator.groups import consumer_group_classic as classic
from coordinator.groups.classic_messages import Join, JoinAnswer, Leaver, Sync, SyncAnswer, Ticket
from coordinator.groups.consumer_group_messages import GroupRejection
from protocol.errors import ErrorCode
from protocol.types import TopicId
from tests.support.groups.consumer_groups import Coordinated, subscription, topic_id


class Mixed(Coordinated):
    """A group that members of both protocols talk to."""

    def join(self, request: Join) -> JoinAnswer:
        answer, change = classic.join(self.live, request, self.config, self.find_topic, self.now_s)
        self.take(change)
        return answer

    def join_refused(self, request: Join) -> ErrorCode:
        before = self.group.copy()
        with pytest.raises(GroupRejection) as caught:
            self.join(request)
        assert self.group == before
        return caught.value.error_code

    def sync(self, member_id: str, generation: int, **other: object) -> SyncAnswer:
        request = Sync(
            ticket=Ticket(0),
            member_id=member_id,
            group_instance_id=None,
            generation=generation,
            protocol_type="consumer",
            protocol="range",
            assignments=(),
        )
        return classic.sync(self.live, replace(request, **other), self.name_of, self.now_s)  # type: ignore[arg-type]

    def report(self, member_id: str, generation: int, instance: str | None = None) -> ErrorCode:
        return classic.heartbeat(self.live, member_id, instance, generation, self.now_s)

    def leave(self, *leavers: Leaver) -> tuple[ErrorCode, ...]:
        error_codes, change = classic.leave(self.live, leavers, self.find_topic)
        self.take(change)
        return error_codes

    def name_of(self, identity: TopicId) -> str | None:
        return next((name for name in self.topics if topic_id(name) == identity), None)


def ask(
    member_id: str,
    topics: Iterable[str] = ("t",),
    *,
    has: Mapping[str, Iterable[int]] | None = None,
    instance: str | None = None,
    new_id: str = "new",
    protocols: Iterable[str] = ("range",),
    **other: object,
) -> Join:
    """A JoinGroup of a classic member that subscribes to these topics."""
    metadata = subscription(*topics, has=has)
    request = Join(
        ticket=Ticket(0),
        member_id=member_id,
        member_id_new=new_id,
        group_instance_id=instance,
        client_id="client",
        client_host="/127.0.0.1",
        protocol_type="consumer",
        protocols=tuple((name, metadata) for name in protocols),
        rebalance_timeout_ms=30_000,
        session_timeout_ms=10_000,
        needs_known_id=True,
        may_skip_assignment=True,
    )
    return replace(request, **other)  # type: ignore[arg-type]
