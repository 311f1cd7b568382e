"""Producer ids: each once, from blocks, whoever asks."""

import asyncio

import pytest

from agent.ledger.producer_ids import BLOCK_COUNT, AllocationRejected, ProducerIdBlock
from coordinator.ledger.memory import MemoryLedger
from protocol.limits import LEDGER_COMMANDS_QUEUED_MAX
from tests.support.agent.ledger_parts import running_parts
from tests.support.commands.commands import create


async def test_ids_follow_each_other_and_take_one_entry_a_block() -> None:
    async with running_parts() as parts:
        block = ProducerIdBlock(ledger=parts.ledger)
        position = parts.ledger.state.position
        assert [await block.take() for _ in range(BLOCK_COUNT)] == list(range(BLOCK_COUNT))
        assert parts.ledger.state.position == position + 1
        assert await block.take() == BLOCK_COUNT
        assert parts.ledger.state.position == position + 2


async def test_those_who_ask_at_once_share_a_block_and_no_id() -> None:
    async with running_parts() as parts:
        block = ProducerIdBlock(ledger=parts.ledger)
        taken = await asyncio.gather(*(block.take() for _ in range(BLOCK_COUNT + 7)))
        assert sorted(taken) == list(range(BLOCK_COUNT + 7))
        assert parts.ledger.state.producer_id_next == 2 * BLOCK_COUNT


async def test_what_is_left_of_a_block_is_never_used_again() -> None:
    ledger = MemoryLedger()
    async with running_parts(ledger) as parts:
        await ProducerIdBlock(ledger=parts.ledger).take()
        await parts.ledger.close()
    async with running_parts(ledger) as parts:
        assert await ProducerIdBlock(ledger=parts.ledger).take() == BLOCK_COUNT


async def test_nobody_gets_an_id_while_too_many_commands_wait_and_everybody_does_afterwards() -> None:
    async with running_parts() as parts:
        block = ProducerIdBlock(ledger=parts.ledger)
        queued = [parts.ledger.propose(create()) for _ in range(LEDGER_COMMANDS_QUEUED_MAX)]
        with pytest.raises(AllocationRejected):
            await block.take()
        await asyncio.gather(*queued)
        assert await block.take() == 0
