"""Offsets go by a checked clock, with groups of which nothing is left; nothing is written while none is due."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from agent.maintenance.offset_expiry import OffsetExpiry
from coordinator.commands.group import ClaimGroups, CommitOffsets, GroupsClaimed, WriteClassicGroup
from coordinator.commands.group_values import ClassicGroup
from coordinator.commands.transaction import TransactionalOffsetsPending
from protocol.kept_offsets import KEPT_OFFSET
from protocol.limits import (
    EXPIRING_GROUPS_PER_ENTRY_MAX,
    OFFSETS_PER_COMMIT_ENTRY_MAX,
    VACANT_GROUP_SECONDS,
    VACANT_GROUPS_LOOK_SECONDS_MAX,
)
from protocol.types import Milliseconds
from tests.support.agent.ledger_parts import BEGAN_MS, Parts, running_parts
from tests.support.commands.commands import TOPIC, create
from tests.support.commands.group_commands import generation, member
from tests.support.commands.transaction_commands import begin, pending

RETENTION_S = 60
CHECK_S = 10.0
SETTINGS = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "10000"}


def expiry(parts: Parts, more: Mapping[str, str] | None = None) -> OffsetExpiry:
    return OffsetExpiry(
        parts.context(broker_configs={**SETTINGS, **(more or {})}), maintenance_leader=parts.maintenance_leader
    )


@asynccontextmanager
async def cluster(partitions: int = 1) -> AsyncIterator[Parts]:
    """With the topic `t`."""
    async with running_parts() as parts:
        await parts.ledger.propose(create(partitions=partitions))
        yield parts


async def claim(parts: Parts, *group_ids: str) -> dict[str, int]:
    """The epochs of the groups' claims."""
    claimed = await parts.ledger.propose(ClaimGroups(group_ids=group_ids))
    assert isinstance(claimed, GroupsClaimed)
    return dict(zip(group_ids, claimed.claim_epochs, strict=True))


async def commit(
    parts: Parts, *group_ids: str, retention_ms: int = -1, partitions: int = 1, metadata: str = ""
) -> None:
    """Offsets of the topic's first partitions, by groups that are claimed for it."""
    epochs = await claim(parts, *group_ids)
    count = len(group_ids) * partitions
    await parts.ledger.propose(
        CommitOffsets(
            groups=tuple(epochs.items()),
            topic_ids=(TOPIC,),
            group=[number for number in range(len(group_ids)) for _ in range(partitions)],
            topic=[0] * count,
            partition=list(range(partitions)) * len(group_ids),
            offset=[5] * count,
            leader_epoch=[-1] * count,
            retention_ms=[retention_ms] * count,
            metadata=(metadata,) * count if metadata else (),
        )
    )


async def write(parts: Parts, group: ClassicGroup) -> None:
    epochs = await claim(parts, "g")
    version = parts.ledger.state.groups["g"].version
    await parts.ledger.propose(WriteClassicGroup(group_id="g", claim_epoch=epochs["g"], version=version, group=group))


async def test_offsets_that_were_kept_for_long_enough_go_and_so_does_their_group() -> None:
    async with cluster() as parts:
        await commit(parts, "g")
        parts.clock.seconds += RETENTION_S - 1
        assert await expiry(parts).expire() == 0
        parts.clock.seconds += 1
        assert await expiry(parts).expire() == 1
        assert parts.ledger.state.groups == {}


async def test_an_offset_that_says_that_it_is_kept_outlives_every_retention() -> None:
    async with cluster() as parts:
        await commit(parts, "sink", metadata=KEPT_OFFSET)
        await commit(parts, "other", metadata="a note")
        parts.clock.seconds += 1_000 * RETENTION_S
        assert await expiry(parts).expire() == 1
        assert set(parts.ledger.state.groups) == {"sink"}
        # As soon as its newest commit does not say so any more it is an offset like others.
        await commit(parts, "sink")
        parts.clock.seconds += RETENTION_S
        assert await expiry(parts).expire() == 1
        assert parts.ledger.state.groups == {}


async def test_what_is_committed_for_a_time_goes_by_itself() -> None:
    async with cluster() as parts:
        await commit(parts, "g", retention_ms=2_000)
        parts.clock.seconds += 2
        assert await expiry(parts).expire() == 1
        assert parts.ledger.state.groups == {}


async def test_a_group_with_members_keeps_what_they_may_want() -> None:
    async with cluster() as parts:
        await commit(parts, "g")
        await write(parts, generation(1, member()))
        parts.clock.seconds += 100 * RETENTION_S
        assert await expiry(parts).expire() == 0
        await write(parts, generation(2))
        parts.clock.seconds += RETENTION_S - 1
        assert await expiry(parts).expire() == 0
        parts.clock.seconds += 1
        assert await expiry(parts).expire() == 1
        assert parts.ledger.state.groups == {}


async def test_a_group_that_is_nothing_goes_when_it_is_found_so_twice_without_a_change() -> None:
    async with cluster() as parts:
        looking = expiry(parts)
        await claim(parts, "g")
        assert await looking.expire() == 0
        await claim(parts, "g")
        assert await looking.expire() == 0
        await write(parts, generation(1))
        assert await looking.expire() == 0
        assert await looking.expire() == 1
        assert parts.ledger.state.groups == {}


async def test_a_group_that_is_nothing_goes_without_a_checked_clock_too() -> None:
    async with cluster() as parts:
        parts.is_clock_checked = False
        looking = expiry(parts)
        await claim(parts, "g")
        await commit(parts, "kept")
        assert [await looking.expire(), await looking.expire()] == [0, 1]
        assert list(parts.ledger.state.groups) == ["kept"]


async def test_a_group_that_is_nothing_but_a_claim_goes_soon_and_needs_no_clock() -> None:
    async with cluster() as parts:
        parts.is_clock_checked = False
        looking = expiry(parts)
        await claim(parts, "g", "again")
        await commit(parts, "kept")
        await write(parts, generation(1))
        await claim(parts, "invented")
        assert await looking.drop_vacant() == 0
        parts.clock.seconds += VACANT_GROUP_SECONDS - 1
        await claim(parts, "again")
        assert await looking.drop_vacant() == 0
        parts.clock.seconds += 1
        assert await looking.drop_vacant() == 1
        assert sorted(parts.ledger.state.groups) == ["again", "g", "kept"]


async def test_a_group_whose_first_members_are_waited_for_is_left_alone() -> None:
    delay_s = 2 * VACANT_GROUP_SECONDS
    async with cluster() as parts:
        looking = expiry(parts, {"group.initial.rebalance.delay.ms": str(int(delay_s * 1000))})
        await claim(parts, "g")
        assert await looking.drop_vacant() == 0
        parts.clock.seconds += delay_s - 1
        assert await looking.drop_vacant() == 0
        parts.clock.seconds += 1
        assert await looking.drop_vacant() == 1


async def test_vacant_groups_are_looked_for_at_least_once_a_minute() -> None:
    interval_s = 9.5 * VACANT_GROUPS_LOOK_SECONDS_MAX
    async with cluster() as parts, asyncio.TaskGroup() as tasks:
        assert await parts.maintenance_leader.claim()
        looking = expiry(parts, {"offsets.retention.check.interval.ms": str(int(interval_s * 1000))})
        await claim(parts, "g")
        parts.clock.slept.clear()
        began_s = parts.clock.seconds
        running = tasks.create_task(parts.repeat(looking.job))
        try:
            while parts.ledger.state.groups:
                await parts.clock.sleep(0)
        finally:
            running.cancel()
        assert {slept for slept in parts.clock.slept if slept} == {interval_s / 10}
        assert parts.clock.seconds - began_s < interval_s


async def test_nothing_is_written_while_nothing_is_due() -> None:
    async with cluster() as parts:
        await commit(parts, "g")
        head = await parts.backend.head()
        assert await expiry(parts).expire() == 0
        assert await parts.backend.head() == head


async def test_nothing_is_written_for_a_group_whose_offsets_wait_for_a_transaction() -> None:
    async with cluster() as parts:
        epochs = await claim(parts, "g")
        await parts.ledger.propose(begin())
        outcome = await parts.ledger.propose(pending(5, claim_epoch=epochs["g"]))
        assert isinstance(outcome, TransactionalOffsetsPending)
        assert list(outcome.error_codes) == [0]
        look = expiry(parts)
        parts.clock.seconds += 2 * RETENTION_S
        for _ in range(3):
            before = parts.ledger.state.position
            assert await look.expire() == 0
            assert parts.ledger.state.position == before


async def test_s2_an_unchecked_clock_lets_nothing_go() -> None:
    async with cluster() as parts:
        await commit(parts, "g")
        parts.clock.seconds += 2 * RETENTION_S
        parts.is_clock_checked = False
        assert await expiry(parts).expire() == 0
        assert list(parts.ledger.state.groups) == ["g"]


async def test_s2_what_was_committed_while_nobody_told_the_time_begins_to_age_when_somebody_does() -> None:
    async with cluster() as parts:
        parts.is_clock_checked = False
        await commit(parts, "g")
        parts.is_clock_checked = True
        assert await expiry(parts).expire() == 1
        (found,) = parts.ledger.state.groups["g"].offsets[TOPIC].values()
        assert found.commit_ms == Milliseconds(BEGAN_MS + int(parts.clock.seconds * 1000))
        assert await expiry(parts).expire() == 0
        parts.clock.seconds += RETENTION_S
        assert await expiry(parts).expire() == 1
        assert parts.ledger.state.groups == {}


@pytest.mark.parametrize(
    ("groups", "partitions", "entries"),
    [
        (EXPIRING_GROUPS_PER_ENTRY_MAX, 1, 1),
        (EXPIRING_GROUPS_PER_ENTRY_MAX + 1, 1, 2),
        (2, OFFSETS_PER_COMMIT_ENTRY_MAX // 2, 1),
        (3, OFFSETS_PER_COMMIT_ENTRY_MAX // 2, 2),
        (2, OFFSETS_PER_COMMIT_ENTRY_MAX + 1, 2),
    ],
)
async def test_many_groups_go_by_entries_of_so_many_groups_and_offsets(
    groups: int, partitions: int, entries: int
) -> None:
    async with cluster(partitions) as parts:
        await commit(parts, *(f"g{number}" for number in range(groups)), partitions=partitions)
        parts.clock.seconds += RETENTION_S
        before = parts.ledger.apply_loop.entries_applied_count
        assert await expiry(parts).expire() == groups
        assert parts.ledger.apply_loop.entries_applied_count == before + entries
        assert parts.ledger.state.groups == {}


async def test_groups_with_long_ids_go_by_entries_that_can_be_written() -> None:
    async with cluster() as parts:
        for letter in "abcde":
            await commit(parts, letter * 30_000)
        parts.clock.seconds += RETENTION_S
        before = parts.ledger.apply_loop.entries_applied_count
        assert await expiry(parts).expire() == 5
        assert parts.ledger.apply_loop.entries_applied_count == before + 2
        assert parts.ledger.state.groups == {}


async def test_only_the_maintenance_leader_looks_and_as_often_as_it_is_told() -> None:
    async with cluster() as parts, asyncio.TaskGroup() as tasks:
        await commit(parts, "g")
        running = tasks.create_task(parts.repeat(expiry(parts).job))
        try:
            while parts.clock.slept.count(CHECK_S) < 3 * RETENTION_S / CHECK_S:
                await parts.clock.sleep(0)
            assert list(parts.ledger.state.groups) == ["g"]
            assert await parts.maintenance_leader.claim()
            while parts.ledger.state.groups:
                await parts.clock.sleep(0)
        finally:
            running.cancel()
