"""Newer rules come into force once every live agent knows them, and not before (safety rule S3)."""

import asyncio

from agent.ledger.bootstrap import load_state
from agent.maintenance.rules_version import RulesVersionUpgrade
from coordinator.commands.rules import RULES_FIRST, RULES_NEWEST
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from storage.memory_store import MemoryStore
from tests.support.agent.ledger_parts import Parts, running_parts
from tests.support.commands.commands import start


def upkeep(parts: Parts) -> RulesVersionUpgrade:
    return RulesVersionUpgrade(parts.ledger)


async def after_an_older_agent() -> MemoryLedgerCore:
    """A ledger in which an agent of the first rules was, and is no more."""
    core = MemoryLedgerCore()
    async with running_parts(MemoryLedger(core), start("a", node=1, rules=RULES_FIRST)) as older:
        assert older.ledger.state.rules_version == RULES_FIRST
        await older.ledger.close()
    return core


async def test_s3_rules_that_all_know_are_put_in_force_by_one_agent() -> None:
    core = await after_an_older_agent()
    async with (
        running_parts(MemoryLedger(core), start("a", node=1, rules=RULES_NEWEST)) as first,
        running_parts(MemoryLedger(core), start("b", node=2, rules=RULES_NEWEST)) as second,
    ):
        await first.ledger.barrier()
        assert first.ledger.state.rules_version == RULES_FIRST
        assert sorted([await upkeep(first).upgrade(), await upkeep(second).upgrade()]) == [False, True]
        await first.ledger.barrier()
        assert first.ledger.state.rules_version == RULES_NEWEST
        assert [await upkeep(first).upgrade(), await upkeep(second).upgrade()] == [False, False]


async def test_s3_one_agent_that_does_not_know_them_keeps_them_back() -> None:
    core = await after_an_older_agent()
    async with (
        running_parts(MemoryLedger(core), start("a", node=1, rules=RULES_NEWEST)) as first,
        running_parts(MemoryLedger(core), start("b", node=2, rules=RULES_FIRST)) as second,
    ):
        await first.ledger.barrier()
        assert [await upkeep(first).upgrade(), await upkeep(second).upgrade()] == [False, False]
        assert first.ledger.state.rules_version == RULES_FIRST


async def test_s3_a_new_cluster_begins_with_the_newest_rules_of_its_first_agent() -> None:
    async with running_parts(begin=start(rules=RULES_NEWEST)) as parts:
        state = parts.ledger.state
        assert state.rules_version == RULES_NEWEST
        assert (state.appends_count, state.sessions[parts.ledger.session].entry_next) == (1, 2)


async def test_s3_an_older_agent_that_came_first_keeps_a_new_cluster_at_its_own() -> None:
    """Both have seen an empty ledger."""
    core = MemoryLedgerCore()
    follower = (await load_state(MemoryLedger(core), MemoryStore())).follower
    async with running_parts(MemoryLedger(core), start("a", node=1, rules=RULES_FIRST)):
        newer = Parts(MemoryLedger(core), MemoryStore(), follower, start("b", node=2, rules=RULES_NEWEST))
        reading = asyncio.create_task(newer.ledger.apply_loop.run())
        await newer.ledger.open(newer.begin)
        reading.cancel()
    assert newer.ledger.state.rules_version == RULES_FIRST
    assert len(newer.ledger.state.sessions) == 2
