"""Newer rules come into force once every live agent knows them, and not before (safety rule S3)."""

import pytest

from agent.rules_upkeep import RulesUpkeep
from coordinator import follower
from coordinator.memory_log import MemoryLedger, MemoryLedgerCore
from tests.made_commands import start
from tests.unit.agent.ledger_parts import Parts, running_parts


def upkeep(parts: Parts) -> RulesUpkeep:
    return RulesUpkeep(metadata=parts.metadata, writer=parts.writer, clock=parts.clock)


@pytest.fixture(autouse=True)
def newer_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents of these tests know rules 2."""
    monkeypatch.setattr(follower, "RULES_VERSION", 2)


async def test_s3_rules_that_all_know_are_put_in_force_by_one_agent() -> None:
    core = MemoryLedgerCore()
    async with (
        running_parts(MemoryLedger(core), start("a", node=1, rules=2)) as first,
        running_parts(MemoryLedger(core), start("b", node=2, rules=2)) as second,
    ):
        await first.metadata.barrier()
        assert sorted([await upkeep(first).look(), await upkeep(second).look()]) == [False, True]
        await first.metadata.barrier()
        assert first.metadata.state.rules_version == 2
        assert [await upkeep(first).look(), await upkeep(second).look()] == [False, False]


async def test_s3_one_agent_that_does_not_know_them_keeps_them_back() -> None:
    core = MemoryLedgerCore()
    async with (
        running_parts(MemoryLedger(core), start("a", node=1, rules=2)) as first,
        running_parts(MemoryLedger(core), start("b", node=2, rules=1)) as second,
    ):
        await first.metadata.barrier()
        assert [await upkeep(first).look(), await upkeep(second).look()] == [False, False]
        assert first.metadata.state.rules_version == 1
