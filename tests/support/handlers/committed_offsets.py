"""Committed offsets as clients ask for them, by the handlers of an agent that has the topic `t`."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

from msgspec.structs import replace

from agent.groups.classic_group import next_ticket
from agent.request.services import Services
from coordinator.commands.group_values import ClassicGroup
from coordinator.groups.classic_messages import Join
from coordinator.ledger.memory import AppendFate, MemoryLedger
from coordinator.ledger.port import LedgerEntry
from protocol.errors import ErrorCode
from protocol.types import SessionId
from tests.support.agent.data_paths import data_paths, services_of
from tests.support.agent.ledger_parts import ManualClock
from tests.support.commands.group_commands import member
from tests.support.handlers.handler_client import ask
from tests.support.records.kio_messages import KioEntity

OFFSET_COMMIT, OFFSET_FETCH, DELETE_GROUPS, OFFSET_DELETE = 8, 9, 42, 47
DESCRIBE_GROUPS, LIST_GROUPS, CONSUMER_HEARTBEAT = 15, 16, 68
NONE = ErrorCode.none
SUBSCRIBED = replace(member(), protocols=(("range", b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"),))
"""To the topic `t`."""
NO_ID = UUID(int=5)
SECONDS_MAX = 10.0
A_JOIN = Join(
    ticket=next_ticket(),
    member_id="",
    member_id_new="new",
    group_instance_id=None,
    client_id="c",
    client_host="/127.0.0.1",
    protocol_type="consumer",
    protocols=SUBSCRIBED.protocols,
    rebalance_timeout_ms=10_000,
    session_timeout_ms=10_000,
    needs_known_id=False,
    may_skip_assignment=True,
)


@asynccontextmanager
async def serving(partitions: int = 2, clock: ManualClock | None = None) -> AsyncIterator[Services]:
    """With the topic `t`, and a session that the agent has had for a while."""
    async with data_paths(partitions=partitions) as paths, asyncio.TaskGroup() as tasks:
        paths.parts.clock.seconds += 60
        yield services_of(paths, clock or paths.parts.clock, tasks)


def ledger_of(services: Services) -> MemoryLedger:
    ledger = services.ledger.backend
    assert isinstance(ledger, MemoryLedger)
    return ledger


def closed_gate(services: Services) -> asyncio.Event:
    """Nothing is appended any more until it is set."""
    gate = asyncio.Event()

    async def gated(_session: SessionId, _entries: Sequence[LedgerEntry]) -> AppendFate:
        await gate.wait()
        return AppendFate.APPLIED

    ledger_of(services).fate_of_append = gated
    return gate


async def commit(
    services: Services,
    offsets: Mapping[int, int] | Sequence[tuple[int, int]],
    *,
    version: int = 9,
    group: str = "g",
    generation: int = -1,
    member: str = "",
    topic: str | UUID | None = "t",
    note: str | None = None,
    **more: object,
) -> list[tuple[int, ErrorCode]]:
    """Partitions and what became of each."""
    rows = [
        {"partition_index": index, "committed_offset": offset, "committed_metadata": note}
        for index, offset in (offsets.items() if isinstance(offsets, Mapping) else offsets)
    ]
    named = {"topic_id": topic} if version >= 10 else {"name": topic}
    answer = await ask(
        services,
        OFFSET_COMMIT,
        version,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[{**named, "partitions": rows}],
        **more,
    )
    return [(each.partition_index, each.error_code) for each in answer.topics[0].partitions]


async def told(services: Services, group: str = "g", **more: object) -> KioEntity:
    """The only group of an answer, of a request for all of its offsets unless it says otherwise."""
    answer = await ask(services, OFFSET_FETCH, 9, groups=[{"group_id": group, "topics": None, **more}])
    return answer.groups[0]


def offsets_of(group: KioEntity) -> dict[int, int]:
    return {each.partition_index: each.committed_offset for topic in group.topics for each in topic.partitions}


async def write(services: Services, group: ClassicGroup) -> None:
    await services.group_ledger.claim("g")
    await services.group_ledger.write("g", group)


def codes_of(answer: KioEntity) -> list[ErrorCode]:
    assert answer.error_code is NONE
    return [each.error_code for topic in answer.topics for each in topic.partitions]
