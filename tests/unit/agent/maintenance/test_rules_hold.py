"""The option --hold-rules is carried out before an agent may raise the rules (safety rule S3)."""

import pytest

from agent.maintenance.rules_hold import RulesHold
from agent.maintenance.rules_version import RulesVersionUpgrade
from coordinator.commands.rules import RULES_FIRST, RULES_NEWEST
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from protocol.limits import CONFIGS_BYTES_MAX
from tests.support.agent.ledger_parts import BEGAN_MS, Parts, running_parts
from tests.support.commands.commands import start


def hold(parts: Parts, *, is_held: bool | None) -> RulesHold:
    return RulesHold(parts.ledger, is_held=is_held, proposed_time=parts.proposed_time)


async def test_a_hold_has_the_time_at_which_it_began() -> None:
    async with running_parts() as parts:
        await hold(parts, is_held=True).carry_out()
        assert parts.ledger.state.rules_hold_since_ms == BEGAN_MS
        parts.clock.seconds += 5
        position = parts.ledger.state.position
        await hold(parts, is_held=True).carry_out()
        assert (parts.ledger.state.rules_hold_since_ms, parts.ledger.state.position) == (BEGAN_MS, position)


async def test_an_option_that_is_not_given_changes_nothing() -> None:
    async with running_parts() as parts:
        await hold(parts, is_held=None).carry_out()
        assert parts.ledger.state.rules_hold_since_ms is None
        await hold(parts, is_held=True).carry_out()
        await hold(parts, is_held=None).carry_out()
        assert parts.ledger.state.rules_hold_since_ms == BEGAN_MS


async def test_a_hold_ends() -> None:
    async with running_parts() as parts:
        await hold(parts, is_held=True).carry_out()
        await hold(parts, is_held=False).carry_out()
        assert parts.ledger.state.rules_hold_since_ms is None
        assert parts.ledger.state.broker_configs == {}


async def test_without_a_believed_clock_it_has_the_ledgers_time() -> None:
    async with running_parts() as parts:
        parts.is_clock_checked = False
        await hold(parts, is_held=True).carry_out()
        assert parts.ledger.state.rules_hold_since_ms == parts.ledger.state.time_ms


async def test_a_hold_that_cannot_be_stored_ends_the_start() -> None:
    async with running_parts() as parts:
        parts.ledger.state.broker_configs = {"": {"x": "y" * CONFIGS_BYTES_MAX}}
        with pytest.raises(RuntimeError, match="--hold-rules cannot be carried out"):
            await hold(parts, is_held=True).carry_out()


async def test_s3_newer_rules_that_all_know_wait_for_the_end_of_a_hold() -> None:
    core = MemoryLedgerCore()
    async with running_parts(MemoryLedger(core), start("a", node=1, rules=RULES_FIRST)) as older:
        await hold(older, is_held=True).carry_out()
        await older.ledger.close()
    async with running_parts(MemoryLedger(core), start("a", node=1, rules=RULES_NEWEST)) as newer:
        await newer.ledger.barrier()
        assert not await RulesVersionUpgrade(newer.ledger).upgrade()
        assert newer.ledger.state.rules_version == RULES_FIRST
        await hold(newer, is_held=False).carry_out()
        assert await RulesVersionUpgrade(newer.ledger).upgrade()
        assert newer.ledger.state.rules_version == RULES_NEWEST


async def test_s3_an_older_agent_that_starts_again_does_not_end_the_hold_of_newer_ones() -> None:
    """In an upgrade with --hold-rules the older agents may still have --no-hold-rules of the upgrade before."""
    core = MemoryLedgerCore()
    async with running_parts(MemoryLedger(core), start("a", node=1, rules=RULES_FIRST)) as older:
        async with running_parts(MemoryLedger(core), start("b", node=2, rules=RULES_NEWEST)) as newer:
            await hold(newer, is_held=True).carry_out()
            await older.ledger.barrier()
            await hold(older, is_held=False).carry_out()
            assert older.ledger.state.rules_hold_since_ms == BEGAN_MS
            await newer.ledger.close()
        await older.ledger.barrier()
        await hold(older, is_held=False).carry_out()
        assert older.ledger.state.rules_hold_since_ms is None


@pytest.mark.parametrize("is_held_before", [False, True])
@pytest.mark.parametrize("is_holding", [False, True])
async def test_s3_the_first_agent_of_a_cluster_that_was_there_before_keeps_a_hold(
    is_held_before: bool, is_holding: bool
) -> None:
    """All of its sessions are forgotten, as in one that stood still for long."""
    core = MemoryLedgerCore()
    async with running_parts(MemoryLedger(core), start("a", node=1, rules=RULES_FIRST)) as older:
        if is_held_before:
            await hold(older, is_held=True).carry_out()
    async with running_parts(MemoryLedger(core), start("b", node=2, rules=RULES_FIRST)) as parts:
        parts.ledger.writer.agent = start("b", node=2, rules=RULES_NEWEST)
        parts.ledger.writer.is_holding_rules = is_holding
        parts.ledger.state.sessions.clear()
        parts.ledger.state.sessions_ended.clear()
        assert parts.ledger.writer._is_first() == (not is_held_before and not is_holding)


async def test_a_new_cluster_begins_with_the_newest_rules_and_is_held_from_then_on() -> None:
    async with running_parts(begin=start(rules=RULES_NEWEST), is_holding_rules=True) as parts:
        await hold(parts, is_held=True).carry_out()
        assert parts.ledger.state.rules_version == RULES_NEWEST
        assert parts.ledger.state.rules_hold_since_ms == BEGAN_MS
