"""Idle producers are forgotten by a checked clock, and nothing is written while there are none (safety rule S2)."""

from agent.maintenance.producer_expiry import ProducerExpiry
from coordinator.ledger.memory import MemoryLedger
from tests.support.agent.ledger_parts import DAY_MS, Parts, running_parts
from tests.support.commands.commands import Chunk, commit, create, idempotent
from tests.support.commands.transaction_commands import begin, transactional


def expiry(parts: Parts) -> ProducerExpiry:
    return ProducerExpiry(
        ledger=parts.ledger,
        clock=parts.clock,
        proposed_time=parts.proposed_time,
        expiration_ms=lambda: DAY_MS,
    )


async def produced(parts: Parts) -> None:
    """One batch of an idempotent producer, now."""
    await parts.ledger.propose(create())
    await parts.ledger.propose(commit(0, Chunk(batches=[idempotent(0)]), session=parts.ledger.session))
    assert producers(parts) == 1


def producers(parts: Parts) -> int:
    return sum(len(held.producers) for topic in parts.ledger.state.topics.values() for held in topic.partitions)


async def test_a_producer_is_forgotten_once_it_was_idle_for_longer_than_the_time() -> None:
    async with running_parts() as parts:
        await produced(parts)
        parts.clock.seconds += DAY_MS / 1000
        assert not await expiry(parts).expire()
        parts.clock.seconds += 1
        assert await expiry(parts).expire()
        assert producers(parts) == 0


async def test_nothing_is_written_while_nobody_is_idle() -> None:
    ledger = MemoryLedger()
    async with running_parts(ledger) as parts:
        await produced(parts)
        head = await ledger.head()
        parts.clock.seconds += 600
        assert not await expiry(parts).expire()
        assert await ledger.head() == head


async def test_s2_an_unchecked_clock_expires_nobody() -> None:
    async with running_parts() as parts:
        await produced(parts)
        parts.clock.seconds += DAY_MS
        parts.is_clock_checked = False
        assert not await expiry(parts).expire()
        assert producers(parts) == 1


async def test_nothing_is_written_for_a_producer_whose_transaction_is_open() -> None:
    ledger = MemoryLedger()
    async with running_parts(ledger) as parts:
        await parts.ledger.propose(create())
        await parts.ledger.propose(begin())
        await parts.ledger.propose(commit(0, Chunk(batches=[transactional(0)]), session=parts.ledger.session))
        head = await ledger.head()
        parts.clock.seconds += 2 * DAY_MS / 1000
        assert not await expiry(parts).expire()
        assert (await ledger.head(), producers(parts)) == (head, 1)
