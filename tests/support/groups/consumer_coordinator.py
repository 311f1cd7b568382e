"""The coordinators of consumer groups (KIP-848), of one agent and of two."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agent.groups.classic_coordinator import ClassicGroupCoordinator
from agent.groups.consumer_coordinator import ConsumerGroupCoordinator
from agent.groups.group_ledger import GroupLedger, NotCoordinator
from coordinator.commands.commands import ReportTime
from coordinator.commands.consumer_group_values import ConsumerGroup
from coordinator.groups.consumer_group_messages import ConsumerHeartbeat, GroupRejection, HeartbeatAnswer
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from protocol.errors import ErrorCode
from tests.support.agent.ledger_parts import Parts, running_parts
from tests.support.commands.commands import create, start

SECONDS_MAX = 20.0


class GroupAgent:
    """The groups of one agent: its group ledger, and both coordinators over it."""

    def __init__(self, parts: Parts, **configs: str) -> None:
        self.parts = parts
        self.ledger = GroupLedger(ledger=parts.ledger, clock=parts.clock)
        self.classic = ClassicGroupCoordinator(parts.context(broker_configs=configs), group_ledger=self.ledger)
        self.groups = ConsumerGroupCoordinator(
            parts.context(broker_configs=configs), group_ledger=self.ledger, classic=self.classic
        )
        self.classic.consumer_groups = self.groups

    async def say(self, request: ConsumerHeartbeat, group_id: str = "g") -> HeartbeatAnswer:
        return await self.groups.heartbeat(group_id, request, is_id_required=True)

    async def refused(self, request: ConsumerHeartbeat, group_id: str = "g") -> ErrorCode:
        with pytest.raises((GroupRejection, NotCoordinator)) as caught:
            await self.say(request, group_id)
        assert isinstance(caught.value, GroupRejection | NotCoordinator)
        return caught.value.error_code

    async def wait(self, seconds: float) -> None:
        """Let time pass; the ledger confirms the session after it (safety rule S4)."""
        self.parts.clock.seconds += seconds
        await self.parts.ledger.propose(ReportTime())

    @property
    def group(self) -> ConsumerGroup:
        """As the ledger has it."""
        value = self.parts.ledger.state.groups["g"].value
        assert isinstance(value, ConsumerGroup)
        return value

    @property
    def entries(self) -> int:
        return self.parts.ledger.apply_loop.entries_applied_count


@asynccontextmanager
async def one_agent(**configs: str) -> AsyncIterator[GroupAgent]:
    """An agent with a topic of two partitions; ends after SECONDS_MAX."""
    async with running_parts() as parts, asyncio.timeout(SECONDS_MAX):
        await parts.ledger.propose(create(partitions=2))
        yield GroupAgent(parts, **configs)


@asynccontextmanager
async def two_agents() -> AsyncIterator[tuple[GroupAgent, GroupAgent]]:
    """The agent that coordinates the group `g`, and the other one."""
    core = MemoryLedgerCore()
    async with (
        running_parts(MemoryLedger(core)) as one,
        running_parts(MemoryLedger(core), start("b", node=2)) as other,
        asyncio.timeout(SECONDS_MAX),
    ):
        await one.ledger.propose(create(partitions=2))
        agents = [GroupAgent(parts) for parts in (one, other)]
        for agent in agents:
            await agent.parts.ledger.barrier()
        agents.sort(key=lambda agent: agent.ledger.coordinator("g") != agent.parts.ledger.session)
        yield agents[0], agents[1]


def problems(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The problems that were logged."""
    return [str(vars(record)["problem"]) for record in caplog.records if "problem" in vars(record)]
