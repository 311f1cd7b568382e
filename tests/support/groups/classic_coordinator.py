"""The coordinator of an agent's classic groups, and the requests of their members."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from agent.groups.classic_coordinator import ClassicGroupCoordinator
from agent.groups.classic_group import next_ticket
from agent.groups.group_ledger import GroupLedger
from agent.runtime.clock import SystemClock
from coordinator.groups.classic_messages import Join, JoinAnswer, Sync, SyncAnswer
from tests.support.agent.ledger_parts import Parts, running_parts

SECONDS_MAX = 10.0
CONFIGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.max.session.timeout.ms": "60000",
}


def coordinator_of(
    parts: Parts, configs: Mapping[str, str] = CONFIGS, clock: SystemClock | None = None
) -> ClassicGroupCoordinator:
    """The coordinator of an agent's classic groups; its timers do not run."""
    ledger = GroupLedger(ledger=parts.ledger, clock=parts.clock)
    return ClassicGroupCoordinator(
        parts.context(clock=clock or SystemClock(), broker_configs=configs), group_ledger=ledger
    )


@asynccontextmanager
async def running(groups: ClassicGroupCoordinator) -> AsyncIterator[ClassicGroupCoordinator]:
    """The coordinator while its timers and its maintenance run."""
    async with asyncio.TaskGroup() as tasks:
        loops = [
            tasks.create_task(groups.run_timers()),
            tasks.create_task(groups.job.run(groups._clock, lambda: False)),
        ]
        try:
            yield groups
        finally:
            for loop in loops:
                loop.cancel()


@asynccontextmanager
async def one_agent(configs: Mapping[str, str] = CONFIGS) -> AsyncIterator[tuple[Parts, ClassicGroupCoordinator]]:
    """The parts of one agent, and its coordinator with running timers; ends after SECONDS_MAX."""
    async with (
        running_parts() as parts,
        asyncio.timeout(SECONDS_MAX),
        running(coordinator_of(parts, configs)) as groups,
    ):
        yield parts, groups


def a_join(
    groups: ClassicGroupCoordinator, member_id: str = "", *, session_ms: int = 10_000, metadata: bytes = b"m"
) -> Join:
    """A JoinGroup of a member that need not know its id beforehand."""
    return Join(
        ticket=next_ticket(),
        member_id=member_id,
        member_id_new=groups.new_member_id("client", None),
        group_instance_id=None,
        client_id="client",
        client_host="/127.0.0.1",
        protocol_type="consumer",
        protocols=(("range", metadata),),
        rebalance_timeout_ms=10_000,
        session_timeout_ms=session_ms,
        needs_known_id=False,
        may_skip_assignment=True,
    )


async def join(groups: ClassicGroupCoordinator, member_id: str = "", *, session_ms: int = 10_000) -> JoinAnswer:
    """Joins the group `g`, and waits for the answer."""
    return await (await groups.join("g", a_join(groups, member_id, session_ms=session_ms)))


async def sync(
    groups: ClassicGroupCoordinator, member_id: str, *given: tuple[str, bytes], generation: int = 1, group_id: str = "g"
) -> SyncAnswer:
    """Syncs, with the given assignments, and waits for the answer."""
    request = Sync(
        ticket=next_ticket(),
        member_id=member_id,
        group_instance_id=None,
        generation=generation,
        protocol_type=None,
        protocol=None,
        assignments=given,
    )
    return await (await groups.sync(group_id, request))


async def stable(groups: ClassicGroupCoordinator, *, session_ms: int = 10_000) -> str:
    """Brings the group `g` to a stable generation 1; its only member's id."""
    member_id = (await join(groups, session_ms=session_ms)).member_id
    assert (await sync(groups, member_id, (member_id, b"part"))).assignment == b"part"
    return member_id
