"""Unused transactional ids are forgotten by a checked clock, and nothing is written while none is due (S2)."""

import asyncio

import pytest

from agent.maintenance.transactional_id_expiry import TransactionalIdExpiry
from coordinator.ledger.memory import MemoryLedger
from protocol.limits import LEDGER_COMMANDS_QUEUED_MAX
from tests.support.agent.ledger_parts import DAY_MS, Parts, running_parts, until
from tests.support.commands.commands import create
from tests.support.commands.transaction_commands import ID, add, begin

EXPIRATION_S = 7 * DAY_MS / 1000


def expiry(parts: Parts) -> TransactionalIdExpiry:
    return TransactionalIdExpiry(parts.context())


async def test_an_id_is_forgotten_once_it_was_unused_for_longer_than_the_time() -> None:
    async with running_parts() as parts:
        await parts.ledger.propose(begin())
        parts.clock.seconds += EXPIRATION_S
        assert await expiry(parts).expire() == 0
        parts.clock.seconds += 1
        assert await expiry(parts).expire() == 1
        assert parts.ledger.state.transactional_ids == {}


async def test_one_whose_transaction_is_open_stays_and_nothing_is_written() -> None:
    ledger = MemoryLedger()
    async with running_parts(ledger) as parts:
        await parts.ledger.propose(create())
        await parts.ledger.propose(begin())
        await parts.ledger.propose(add(0))
        head = await ledger.head()
        parts.clock.seconds += 2 * EXPIRATION_S
        assert await expiry(parts).expire() == 0
        assert await ledger.head() == head


async def test_s2_an_unchecked_clock_expires_no_transactional_id() -> None:
    async with running_parts() as parts:
        await parts.ledger.propose(begin())
        parts.clock.seconds += 2 * EXPIRATION_S
        parts.is_clock_checked = False
        assert await expiry(parts).expire() == 0
        assert ID in parts.ledger.state.transactional_ids


async def test_the_agent_that_keeps_house_looks_once_an_hour() -> None:
    async with running_parts() as parts:
        await parts.ledger.propose(begin())
        loop = asyncio.ensure_future(parts.repeat(expiry(parts).job))
        await until(lambda: bool(parts.clock.slept))
        assert parts.clock.slept[0] == 3_600
        parts.clock.seconds += 2 * EXPIRATION_S
        await parts.maintenance_leader.claim()
        await until(lambda: not parts.ledger.state.transactional_ids)
        loop.cancel()


async def test_what_cannot_be_proposed_now_is_left_for_later(caplog: pytest.LogCaptureFixture) -> None:
    async with running_parts() as parts:
        await parts.ledger.propose(begin())
        parts.clock.seconds += 2 * EXPIRATION_S
        queued = [parts.ledger.propose(create()) for _ in range(LEDGER_COMMANDS_QUEUED_MAX)]
        assert await expiry(parts).expire() == 0
        assert "were not expired; the next check" in caplog.text
        await asyncio.gather(*queued)
        assert await expiry(parts).expire() == 1
