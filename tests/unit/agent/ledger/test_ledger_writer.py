"""What cannot be written to the ledger is refused to whoever submitted it, and to nobody else."""

import asyncio
import logging
from random import Random

import pytest

from coordinator.commands.commands import AllocateProducerIds, CreateTopic, Done, ProducerIdsAllocated, Rejected
from protocol.errors import ErrorCode
from protocol.limits import LEDGER_COMMANDS_QUEUED_MAX, LEDGER_ENTRY_BYTES_MAX
from tests.support.agent.ledger_parts import running_parts
from tests.support.commands.commands import Batch, Chunk, commit, create

UNREADABLE = commit(1, Chunk(batches=[Batch(producer=-2)]))
TOO_LARGE = CreateTopic(
    name="t",
    topic_id=create().topic_id,
    partition_count=1,
    # Random digits, so that the entry cannot be compressed below the limit.
    configs=(("x", Random(1).randbytes(LEDGER_ENTRY_BYTES_MAX).hex()),),
)


async def test_a_command_that_no_agent_could_read_is_refused_and_the_others_of_its_group_are_applied() -> None:
    async with running_parts() as parts:
        before = parts.ledger.propose(create("before"))
        unreadable = parts.ledger.propose(UNREADABLE)
        after = parts.ledger.propose(AllocateProducerIds(count=5))
        refused = await unreadable
        assert isinstance(refused, Rejected)
        assert refused.error_code is ErrorCode.unknown_server_error
        assert "producer id below -1" in refused.reason
        assert await before == Done()
        assert isinstance(await after, ProducerIdsAllocated)


async def test_a_group_of_nothing_but_unreadable_commands_appends_nothing_and_the_writer_goes_on() -> None:
    async with running_parts() as parts:
        head = await parts.backend.head()
        assert isinstance(await parts.ledger.propose(UNREADABLE), Rejected)
        assert await parts.backend.head() == head
        assert await parts.ledger.propose(create()) == Done()


async def test_a_command_whose_entry_would_be_too_large_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with running_parts() as parts:
        refused = await parts.ledger.propose(TOO_LARGE)
        assert isinstance(refused, Rejected)
        assert refused.error_code is ErrorCode.invalid_request
        assert f"{LEDGER_ENTRY_BYTES_MAX} is the most" in refused.reason
        assert await parts.ledger.propose(create()) == Done()
    # A client can ask for that: it must not fill the log with errors.
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


async def test_a_command_that_finds_the_queue_full_is_refused_at_once_and_those_before_it_are_applied() -> None:
    async with running_parts() as parts:
        queued = [parts.ledger.propose(AllocateProducerIds(count=1)) for _ in range(LEDGER_COMMANDS_QUEUED_MAX)]
        refused = parts.ledger.propose(create())
        assert refused.done()
        outcome = refused.result()
        assert isinstance(outcome, Rejected)
        assert outcome.error_code is ErrorCode.request_timed_out
        assert all(isinstance(outcome, ProducerIdsAllocated) for outcome in await asyncio.gather(*queued))
        assert await parts.ledger.propose(create()) == Done()


async def test_a_session_ends_also_behind_a_full_queue() -> None:
    async with running_parts() as parts:
        queued = [parts.ledger.propose(AllocateProducerIds(count=1)) for _ in range(LEDGER_COMMANDS_QUEUED_MAX)]
        session = parts.ledger.session
        await parts.ledger.close()
        assert session not in parts.ledger.state.sessions
        assert all(future.done() for future in queued)


async def test_a_command_whose_submitter_gave_up_before_it_had_a_number_is_not_appended() -> None:
    async with running_parts() as parts:
        parts.ledger.propose(AllocateProducerIds(count=5)).cancel()
        await parts.ledger.propose(create())
        assert parts.ledger.state.producer_id_next == 0
