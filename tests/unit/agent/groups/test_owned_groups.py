"""Groups that this agent coordinates are loaded without a request, until all of them are."""

import asyncio
from dataclasses import dataclass, field

import pytest

from agent.groups.group_ledger import GroupLedger, NotCoordinator
from agent.groups.owned_groups import OwnedGroups
from coordinator.commands.commands import EndSession
from coordinator.commands.group_values import GroupState
from protocol.errors import ErrorCode
from tests.support.agent.ledger_parts import Parts, running_parts
from tests.support.commands.group_commands import GENERATION

SECONDS_MAX = 10.0


@dataclass
class Loads:
    """A coordinator that loads groups, and fails as often as it is asked to."""

    parts: Parts
    failures: int = 0
    attempts: list[str] = field(default_factory=list[str])
    loaded: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        self.ledger = GroupLedger(ledger=self.parts.ledger, clock=self.parts.clock)
        self.owned = OwnedGroups(
            ledger=self.parts.ledger,
            group_ledger=self.ledger,
            clock=self.parts.clock,
            protocol="classic",
            is_to_load=lambda group: group.has_members and group.group_id not in self.loaded,
            load=self.load,
        )

    def load(self, group: GroupState) -> None:
        self.attempts.append(group.group_id)
        if self.failures:
            self.failures -= 1
            raise NotCoordinator(ErrorCode.coordinator_load_in_progress)
        self.loaded.add(group.group_id)

    async def add_group(self) -> None:
        await self.ledger.claim("g")
        await self.ledger.write("g", GENERATION)


async def test_a_group_with_members_is_loaded_once() -> None:
    async with running_parts() as parts, asyncio.timeout(SECONDS_MAX):
        loads = Loads(parts)
        await loads.add_group()
        for _ in range(3):
            await loads.owned.load_due()
        assert loads.attempts == ["g"]


async def test_a_group_that_could_not_be_loaded_is_tried_again() -> None:
    async with running_parts() as parts, asyncio.timeout(SECONDS_MAX):
        loads = Loads(parts, failures=1)
        await loads.add_group()
        for _ in range(3):
            await loads.owned.load_due()
        assert loads.attempts == ["g", "g"]


async def test_a_group_that_is_unloaded_during_a_load_is_loaded_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_parts() as parts, asyncio.timeout(SECONDS_MAX):
        loads = Loads(parts)
        await loads.add_group()
        claim = loads.ledger.claim

        async def claim_while_unloading(group_id: str) -> GroupState:
            group = await claim(group_id)
            loads.owned.is_load_due = True
            return group

        monkeypatch.setattr(loads.ledger, "claim", claim_while_unloading)
        await loads.owned.load_due()
        assert loads.owned.is_load_due


async def test_a_load_is_done_only_where_the_group_is_another_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_parts() as parts, asyncio.timeout(SECONDS_MAX):
        loads = Loads(parts)

        async def rejected(group_id: str) -> GroupState:
            raise NotCoordinator(ErrorCode.not_coordinator, group_id)

        monkeypatch.setattr(loads.ledger, "claim", rejected)
        assert not await loads.owned._load_one("g")
        await parts.ledger.propose(EndSession(session=parts.ledger.session))
        assert await loads.owned._load_one("g")
