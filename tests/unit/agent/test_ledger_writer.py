"""What cannot be written to the ledger is refused to whoever submitted it, and to nobody else."""

from random import Random

from coordinator.commands import AllocateProducerIds, CreateTopic, Done, ProducerIdsAllocated, Refused
from protocol.errors import ErrorCode
from protocol.limits import LEDGER_ENTRY_BYTES_MAX
from tests.made_commands import Batch, Chunk, commit, create
from tests.unit.agent.ledger_parts import running_parts

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
        before = parts.writer.submit(create("before"))
        unreadable = parts.writer.submit(UNREADABLE)
        after = parts.writer.submit(AllocateProducerIds(count=5))
        refused = await unreadable
        assert isinstance(refused, Refused)
        assert refused.error_code is ErrorCode.unknown_server_error
        assert "producer id below -1" in refused.reason
        assert await before == Done()
        assert isinstance(await after, ProducerIdsAllocated)


async def test_a_group_of_nothing_but_unreadable_commands_appends_nothing_and_the_writer_goes_on() -> None:
    async with running_parts() as parts:
        head = await parts.ledger.head()
        assert isinstance(await parts.writer.submit(UNREADABLE), Refused)
        assert await parts.ledger.head() == head
        assert await parts.writer.submit(create()) == Done()


async def test_a_command_whose_entry_would_be_too_large_is_refused() -> None:
    async with running_parts() as parts:
        refused = await parts.writer.submit(TOO_LARGE)
        assert isinstance(refused, Refused)
        assert refused.error_code is ErrorCode.invalid_request
        assert f"{LEDGER_ENTRY_BYTES_MAX} is the most" in refused.reason
        assert await parts.writer.submit(create()) == Done()
