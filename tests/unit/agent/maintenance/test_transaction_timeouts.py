"""Transactions that are open for too long are aborted, by elapsed time since the agent that is the maintenance leader
saw them."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agent.maintenance import transaction_timeouts as timeouts_module
from agent.maintenance.transaction_timeouts import TransactionTimeouts
from coordinator.commands.transaction import TransactionDecided
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.ledger.port import OutcomeUnknown
from coordinator.state.transactions import TransactionEnding
from protocol.errors import ErrorCode
from protocol.limits import LEDGER_COMMANDS_QUEUED_MAX, TRANSACTION_LOOK_SECONDS
from tests.support.agent.ledger_parts import Parts, running_parts, until
from tests.support.commands.commands import create
from tests.support.commands.transaction_commands import ID, TIMEOUT_MS, V1, add, begin, end

TIMEOUT_S = TIMEOUT_MS / 1000
INTERVAL_S = 10.0


def transaction_timeouts(parts: Parts) -> TransactionTimeouts:
    return TransactionTimeouts(parts.context(), maintenance_leader=parts.maintenance_leader)


@asynccontextmanager
async def with_open_transaction(ledger: MemoryLedger | None = None) -> AsyncIterator[Parts]:
    """An agent that is the maintenance leader, and one transaction of a V1 producer, whose epoch stays from one to the
    next."""
    async with running_parts(ledger) as parts:
        await parts.maintenance_leader.claim()
        await parts.ledger.propose(create())
        await parts.ledger.propose(begin())
        await open_one(parts)
        yield parts


async def open_one(parts: Parts) -> None:
    outcome = await parts.ledger.propose(add(0))
    assert isinstance(outcome, TransactionDecided)
    assert outcome.error_code is ErrorCode.none


def is_open(parts: Parts) -> bool:
    return bool(parts.ledger.state.open_transactions)


async def test_a_transaction_is_aborted_once_it_was_seen_open_for_longer_than_its_time_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with with_open_transaction() as parts:
        sees = transaction_timeouts(parts)
        await sees.observe()
        parts.clock.seconds += TIMEOUT_S
        assert await sees.expire() == 0
        parts.clock.seconds += 1
        with caplog.at_level(logging.WARNING):
            assert await sees.expire() == 1
        assert not is_open(parts)
        assert parts.ledger.state.transaction_counts.ended[TransactionEnding.EXPIRED] == 1
        assert parts.ledger.state.transactional_ids[ID].metadata.epoch == 1
        assert await sees.expire() == 0
    (told,) = caplog.records
    assert vars(told) | {"transactional_id": ID, "open_s": 61, "partitions": 1, "groups": 0} == vars(told)


async def test_time_counts_from_when_this_agent_saw_the_transaction_open() -> None:
    async with with_open_transaction() as parts:
        parts.clock.seconds += 2 * TIMEOUT_S
        takes_over = transaction_timeouts(parts)
        await takes_over.observe()
        assert await takes_over.expire() == 0
        parts.clock.seconds += TIMEOUT_S + 1
        await takes_over.observe()
        assert await takes_over.expire() == 1


async def test_the_next_transaction_of_the_same_epoch_has_all_of_its_time() -> None:
    async with with_open_transaction() as parts:
        sees = transaction_timeouts(parts)
        await sees.observe()
        parts.clock.seconds += TIMEOUT_S + 1
        await parts.ledger.propose(end(version=V1))
        await open_one(parts)
        assert await sees.expire() == 0
        await sees.observe()
        assert await sees.expire() == 0
        assert is_open(parts)


async def test_an_agent_that_does_not_keep_house_aborts_nothing_and_forgets_what_it_saw() -> None:
    core = MemoryLedgerCore(cluster_id="c")
    async with with_open_transaction(MemoryLedger(core)) as parts:
        sees = transaction_timeouts(parts)
        await sees.observe()
        parts.clock.seconds += TIMEOUT_S + 1
        core.expire(parts.ledger.session)
        with pytest.raises(OutcomeUnknown):
            await parts.ledger.propose(create())
        assert not parts.maintenance_leader.is_leader
        await sees.observe()
        assert await sees.expire() == 0
        await parts.maintenance_leader.claim()
        await sees.observe()
        assert await sees.expire() == 0
        assert is_open(parts)


async def test_many_are_aborted_a_share_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts_module, "TRANSACTIONS_EXPIRED_TOGETHER_MAX", 2)
    async with with_open_transaction() as parts:
        for producer in range(1, 5):
            await parts.ledger.propose(begin(transactional_id=f"id-{producer}"))
            await parts.ledger.propose(add(0, producer=producer, transactional_id=f"id-{producer}"))
        sees = transaction_timeouts(parts)
        await sees.observe()
        parts.clock.seconds += TIMEOUT_S + 1
        assert await sees.expire() == 5
        assert not is_open(parts)


async def test_nothing_is_written_while_none_is_due() -> None:
    ledger = MemoryLedger()
    async with with_open_transaction(ledger) as parts:
        sees = transaction_timeouts(parts)
        head = await ledger.head()
        await sees.observe()
        assert await sees.expire() == 0
        assert await ledger.head() == head


async def test_the_loop_aborts_within_a_look_and_an_interval_after_the_time_out() -> None:
    async with with_open_transaction() as parts:
        loop = asyncio.ensure_future(parts.repeat(transaction_timeouts(parts).job))
        await until(lambda: not is_open(parts))
        loop.cancel()
        assert TIMEOUT_S < parts.clock.seconds <= TIMEOUT_S + TRANSACTION_LOOK_SECONDS + 2 * INTERVAL_S
        assert set(parts.clock.slept) <= {0, TRANSACTION_LOOK_SECONDS}


async def test_one_that_cannot_be_proposed_now_is_left_for_later(caplog: pytest.LogCaptureFixture) -> None:
    async with with_open_transaction() as parts:
        sees = transaction_timeouts(parts)
        await sees.observe()
        parts.clock.seconds += TIMEOUT_S + 1
        queued = [parts.ledger.propose(create()) for _ in range(LEDGER_COMMANDS_QUEUED_MAX)]
        with caplog.at_level(logging.WARNING):
            assert await sees.expire() == 0
        assert "was not aborted; the next check" in caplog.text
        await asyncio.gather(*queued)
        assert await sees.expire() == 1


async def test_one_whose_outcome_is_unknown_is_left_for_later(caplog: pytest.LogCaptureFixture) -> None:
    core = MemoryLedgerCore(cluster_id="c")
    async with with_open_transaction(MemoryLedger(core)) as parts:
        sees = transaction_timeouts(parts)
        await sees.observe()
        parts.clock.seconds += TIMEOUT_S + 1
        core.expire(parts.ledger.session)
        with caplog.at_level(logging.INFO):
            assert await sees.expire() == 0
        assert "is unknown; the next check" in caplog.text
        assert is_open(parts)
