"""Delegation tokens that have ended are removed by a checked clock, and nothing is written while none has (S2)."""

import asyncio

import pytest
from msgspec import structs

from agent.maintenance import token_expiry
from agent.maintenance.token_expiry import TokenExpiry
from coordinator.commands.rules import RULES_NEWEST
from coordinator.ledger.memory import MemoryLedger
from tests.support.agent.ledger_parts import Parts, running_parts, until
from tests.support.commands.commands import start
from tests.support.commands.every_command import CREATE_TOKEN

BEGIN = start(rules=RULES_NEWEST)


async def create(parts: Parts, *token_ids: str, seconds: int = 1) -> None:
    for token_id in token_ids:
        await parts.ledger.propose(structs.replace(CREATE_TOKEN, token_id=token_id, renewal_ms=seconds * 1_000))


async def test_what_has_ended_is_removed_in_entries_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_expiry, "DELEGATION_TOKENS_EXPIRED_PER_ENTRY_MAX", 2)
    ledger = MemoryLedger()
    async with running_parts(ledger, BEGIN) as parts:
        await create(parts, "A", "B", "C")
        await create(parts, "later", seconds=60)
        head = await ledger.head()
        parts.clock.seconds += 1
        assert await TokenExpiry(parts.context()).remove_expired() == 0
        assert await ledger.head() == head
        parts.clock.seconds += 0.002
        assert await TokenExpiry(parts.context()).remove_expired() == 3
        assert list(parts.ledger.state.tokens) == ["later"]


async def test_s2_an_unchecked_clock_removes_no_token() -> None:
    async with running_parts(begin=BEGIN) as parts:
        await create(parts, "A")
        parts.clock.seconds += 3_600
        parts.is_clock_checked = False
        assert await TokenExpiry(parts.context()).remove_expired() == 0
        assert list(parts.ledger.state.tokens) == ["A"]


async def test_the_maintenance_leader_looks_once_an_hour() -> None:
    async with running_parts(begin=BEGIN) as parts:
        await create(parts, "A")
        loop = asyncio.ensure_future(parts.repeat(TokenExpiry(parts.context()).job))
        await until(lambda: bool(parts.clock.slept))
        assert parts.clock.slept[0] == 3_600
        await parts.maintenance_leader.claim()
        await until(lambda: not parts.ledger.state.tokens)
        loop.cancel()
