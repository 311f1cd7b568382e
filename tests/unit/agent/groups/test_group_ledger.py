"""What an agent may write about groups: claims, entries under them, and what ends them (safety rule S13)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from agent.groups.group_ledger import GroupLedger, NotCoordinator, OffsetRow
from agent.ledger.ledger_writer import LedgerWriter
from coordinator.codec.codec import decode
from coordinator.commands.commands import Done, EndSession, Rejected, StartDrain
from coordinator.commands.group import ClaimGroups, ExpireOffsets
from coordinator.ledger.memory import AppendFate, MemoryLedger, MemoryLedgerCore
from coordinator.ledger.port import LedgerEntry
from protocol.errors import ErrorCode
from protocol.limits import GROUP_ID_BYTES_MAX, OFFSETS_PER_COMMIT_ENTRY_MAX
from protocol.types import Offset, PartitionIndex, SessionId
from tests.support.agent.ledger_parts import Parts, running_parts
from tests.support.commands.commands import TOPIC, create, start
from tests.support.commands.group_commands import GENERATION, JOINED, generation, member

SECONDS_MAX = 10.0
GROUPS = [f"group-{number}" for number in range(20)]


def group_ledger(parts: Parts) -> GroupLedger:
    return GroupLedger(ledger=parts.ledger, clock=parts.clock)


@asynccontextmanager
async def one_agent() -> AsyncIterator[tuple[Parts, GroupLedger]]:
    async with running_parts() as parts, asyncio.timeout(SECONDS_MAX):
        await parts.ledger.propose(create(partitions=3))
        yield parts, group_ledger(parts)


@asynccontextmanager
async def two_agents() -> AsyncIterator[tuple[Parts, Parts]]:
    core = MemoryLedgerCore()
    async with (
        running_parts(MemoryLedger(core)) as one,
        running_parts(MemoryLedger(core), start("b", node=2)) as other,
        asyncio.timeout(SECONDS_MAX),
    ):
        await one.ledger.propose(create())
        for parts in (one, other):
            await parts.ledger.barrier()
        yield one, other


def closed_gate(parts: Parts) -> asyncio.Event:
    """Nothing is appended any more until it is set."""
    gate = asyncio.Event()

    async def gated(_session: SessionId, _entries: Sequence[LedgerEntry]) -> AppendFate:
        await gate.wait()
        return AppendFate.APPLIED

    assert isinstance(parts.backend, MemoryLedger)
    parts.backend.fate_of_append = gated
    return gate


def row(offset: int, partition: int = 0, metadata: str = "") -> OffsetRow:
    return OffsetRow(TOPIC, PartitionIndex(partition), Offset(offset), metadata=metadata)


async def rejection(groups: GroupLedger, group_id: str = "g") -> ErrorCode:
    with pytest.raises(NotCoordinator) as caught:
        await groups.claim(group_id)
    return caught.value.error_code


async def test_agents_agree_whose_a_group_is_and_only_that_one_gets_the_claim() -> None:
    async with two_agents() as (one, other):
        first, second = group_ledger(one), group_ledger(other)
        owners = {group_id: first.coordinator(group_id) for group_id in GROUPS}
        assert owners == {group_id: second.coordinator(group_id) for group_id in GROUPS}
        assert set(owners.values()) == {one.ledger.session, other.ledger.session}
        for group_id, owner in owners.items():
            mine, others = (first, second) if owner == one.ledger.session else (second, first)
            assert (await mine.claim(group_id)).claimed_by == owner
            assert await rejection(others, group_id) is ErrorCode.not_coordinator
            assert (mine.owns(group_id), others.owns(group_id)) == (True, False)


async def test_claims_of_one_turn_of_the_loop_share_an_entry() -> None:
    async with one_agent() as (parts, groups):
        before = parts.ledger.apply_loop.entries_applied_count
        claimed = await asyncio.gather(*(groups.claim(group_id) for group_id in GROUPS * 2))
        assert parts.ledger.apply_loop.entries_applied_count == before + 1
        assert [group.group_id for group in claimed] == GROUPS * 2


async def test_a_group_that_is_held_costs_no_entry() -> None:
    async with one_agent() as (parts, groups):
        await groups.claim("g")
        before = parts.ledger.state.position
        await groups.claim("g")
        await groups.check_readable("g")
        assert parts.ledger.state.position == before


async def test_writes_follow_one_another_before_the_first_is_applied() -> None:
    async with one_agent() as (parts, groups):
        await groups.claim("g")
        written = [groups.write("g", generation(number, member())) for number in (1, 2, 3)]
        assert await asyncio.gather(*written) == [Done()] * 3
        found = parts.ledger.state.groups["g"]
        assert (found.version, found.value) == (3, generation(3, member()))


async def test_a_write_that_is_refused_ends_the_claim_and_those_after_it() -> None:
    async with one_agent() as (parts, groups):
        await groups.claim("g")
        await groups.write("g", generation(5, member()))
        bad, after = groups.write("g", generation(4, member())), groups.write("g", generation(6, member()))
        assert [type(await bad), type(await after)] == [Rejected, Rejected]
        assert not groups.owns("g")
        await groups.claim("g")
        assert await groups.write("g", generation(6, member())) == Done()
        assert parts.ledger.state.groups["g"].version == 2


async def test_nobody_can_take_a_write_away_once_it_is_made() -> None:
    async with one_agent() as (parts, groups):
        await groups.claim("g")
        groups.write("g", GENERATION).cancel()
        assert await groups.write("g", generation(2, member())) == Done()
        assert parts.ledger.state.groups["g"].version == 2


async def test_a_write_that_is_refused_at_once_does_not_hide_one_that_is_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with one_agent() as (parts, groups):
        await groups.claim("g")
        gate = closed_gate(parts)
        monkeypatch.setattr("agent.ledger.ledger_writer.LEDGER_COMMANDS_QUEUED_MAX", 1)
        sent, overtakes = groups.write("g", generation(1, member())), groups.write("g", generation(2, member()))
        assert isinstance(await overtakes, Rejected)
        settled = groups.until_applied("g")
        assert not settled.done()
        gate.set()
        assert [await sent, await settled] == [Done(), ErrorCode.none]
        assert parts.ledger.state.groups["g"].version == 1
        assert groups._changes == {}


async def test_consumer_groups_are_written_by_rows() -> None:
    async with one_agent() as (parts, groups):
        await groups.claim("g")
        left = replace(JOINED, epoch=3, is_new=False, members=(), removed=("m1",))
        assert (
            await asyncio.gather(groups.write_consumer("g", JOINED), groups.write_consumer("g", left)) == [Done()] * 2
        )
        assert not parts.ledger.state.groups["g"].has_members


async def test_commits_of_one_turn_of_the_loop_share_an_entry() -> None:
    async with one_agent() as (parts, groups):
        for group_id in GROUPS:
            await groups.claim(group_id)
        before = parts.ledger.apply_loop.entries_applied_count
        error_codes = await asyncio.gather(*(groups.commit(group_id, [row(1), row(2, 1)]) for group_id in GROUPS))
        assert [list(codes) for codes in error_codes] == [[ErrorCode.none] * 2] * len(GROUPS)
        assert parts.ledger.apply_loop.entries_applied_count == before + 1
        assert [len(parts.ledger.state.groups[group_id].offsets[TOPIC]) for group_id in GROUPS] == [2] * len(GROUPS)


async def test_a_large_commit_is_several_entries_and_one_answer() -> None:
    async with one_agent() as (parts, groups):
        await groups.claim("g")
        before = parts.ledger.apply_loop.entries_applied_count
        rows = [row(number, number % 4) for number in range(OFFSETS_PER_COMMIT_ENTRY_MAX + 1)]
        codes = await groups.commit("g", rows)
        assert [code is ErrorCode.none for code in codes] == [number % 4 < 3 for number in range(len(rows))]
        assert parts.ledger.apply_loop.entries_applied_count == before + 2


async def test_long_metadata_takes_entries_of_its_own() -> None:
    async with one_agent() as (parts, groups):
        await groups.claim("g")
        before = parts.ledger.apply_loop.entries_applied_count
        assert set(await groups.commit("g", [row(1, 0, "x" * 100_000), row(2, 1, "y" * 100_000)])) == {ErrorCode.none}
        assert parts.ledger.apply_loop.entries_applied_count == before + 2


async def test_long_ids_of_groups_take_entries_of_their_own_and_longer_ones_are_invalid() -> None:
    async with one_agent() as (parts, groups):
        ids = [f"{number:03}" + "x" * (GROUP_ID_BYTES_MAX - 3) for number in range(300)]
        await asyncio.gather(*map(groups.claim, ids))
        before = parts.ledger.apply_loop.entries_applied_count
        error_codes = await asyncio.gather(*(groups.commit(each, [row(1), row(2, 1)]) for each in ids))
        assert [list(codes) for codes in error_codes] == [[ErrorCode.none] * 2] * len(ids)
        assert parts.ledger.apply_loop.entries_applied_count == before + 3
        assert await rejection(groups, "\N{EURO SIGN}" * (GROUP_ID_BYTES_MAX // 3 + 1)) is ErrorCode.invalid_group_id


async def test_a_commit_that_is_not_applied_in_time_is_answered_and_counts_when_it_is() -> None:
    async with one_agent() as (parts, _):
        configs = {"offsets.commit.timeout.ms": "20"}
        groups = GroupLedger(ledger=parts.ledger, clock=parts.clock, broker_configs=configs)
        for group_id in GROUPS:
            await groups.claim(group_id)
        gate = closed_gate(parts)
        error_codes = await asyncio.gather(*(groups.commit(group_id, [row(1), row(2, 9)]) for group_id in GROUPS))
        assert error_codes == [[ErrorCode.coordinator_not_available] * 2] * len(GROUPS)
        assert groups.offsets_committed_count == 0
        gate.set()
        # What comes later is applied later, so the counted ones are there by then.
        assert await groups.commit("group-0", [row(3)]) == [ErrorCode.none]
        assert groups.offsets_committed_count == len(GROUPS) + 1


async def test_a_commit_that_nobody_waits_for_is_made_all_the_same() -> None:
    async with one_agent() as (parts, groups):
        await groups.claim("g")
        groups.commit("g", [row(1)]).cancel()
        assert await groups.commit("g", [row(2, 1)]) == [ErrorCode.none]
        assert sorted(parts.ledger.state.groups["g"].offsets[TOPIC]) == [0, 1]


async def test_a_commit_and_a_write_keep_their_order() -> None:
    async with one_agent() as (parts, groups):
        await groups.claim("g")
        commit, write = groups.commit("g", [row(1)]), groups.write("g", GENERATION)
        await asyncio.gather(commit, write)
        kinds = [type(command).__name__ for command in await commands_of(parts)]
        assert kinds[-2:] == ["CommitOffsets", "WriteClassicGroup"]


async def commands_of(parts: Parts) -> list[object]:
    """What is in the ledger, in order."""
    start = await parts.backend.load()
    return [decode(record).command for record in start.records]


async def test_no_rows_are_no_entry() -> None:
    async with one_agent() as (parts, groups):
        await groups.claim("g")
        before = parts.ledger.state.position
        assert await groups.commit("g", []) == ()
        assert parts.ledger.state.position == before


async def test_a_group_is_gone_once_it_is_deleted() -> None:
    async with one_agent() as (parts, groups):
        await groups.claim("g")
        await groups.commit("g", [row(1), row(1, 1)])
        assert await groups.delete_offsets("g", [(TOPIC, PartitionIndex(0))]) == Done()
        assert list(parts.ledger.state.groups["g"].offsets[TOPIC]) == [1]
        assert await groups.delete_group("g") == Done()
        assert await groups.check_readable("g") is None
        assert not groups.owns("g")


async def test_a_claim_alone_is_no_group() -> None:
    async with one_agent() as (_, groups):
        await groups.claim("g")
        assert await groups.check_readable("g") is None


async def test_s13_a_session_that_was_replaced_holds_no_claim_and_its_commits_are_refused() -> None:
    async with one_agent() as (parts, groups):
        await groups.claim("g")
        parts.backend.core.expire(parts.ledger.session)  # type: ignore[attr-defined]
        assert list(await groups.commit("g", [row(1)])) == [ErrorCode.not_coordinator]
        assert not groups.owns("g")
        assert (await groups.claim("g")).offsets == {}
        assert list(await groups.commit("g", [row(1)])) == [ErrorCode.none]


async def test_s4_a_claim_of_an_agent_that_is_not_confirmed_is_worth_another_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with one_agent() as (parts, groups):
        monkeypatch.setattr(LedgerWriter, "is_confirmed", False)
        assert await rejection(groups) is ErrorCode.coordinator_not_available
        assert parts.ledger.state.groups["g"].claimed_by == parts.ledger.session


async def test_whose_a_group_is_with_an_id_that_is_too_long_is_not_remembered() -> None:
    async with one_agent() as (parts, groups):
        longest = "x" * GROUP_ID_BYTES_MAX
        assert {groups.coordinator(longest + more) for more in ("", "x")} == {parts.ledger.session}
        assert list(groups._owners.cache) == [longest]


async def test_what_is_remembered_of_owners_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.groups.group_owners.COORDINATORS_CACHED_MAX", 2)
    async with one_agent() as (_, groups):
        for group_id in GROUPS:
            groups.coordinator(group_id)
        assert list(groups._owners.cache) == GROUPS[-2:]


async def test_who_lives_is_looked_up_again_only_where_an_entry_was_applied() -> None:
    async with one_agent() as (parts, groups):
        await groups.claim("g")
        sessions = parts.ledger.state.sessions
        parts.ledger.state.sessions = {}
        assert groups.owns("g")
        parts.ledger.state.sessions = sessions
        await parts.ledger.propose(EndSession(session=parts.ledger.session))
        assert groups.coordinator("g") is None


async def test_s13_what_is_written_without_a_claim_is_refused() -> None:
    async with one_agent() as (parts, groups):
        told = [groups.write("g", GENERATION), groups.write_consumer("g", JOINED), groups.delete_group("g")]
        assert [getattr(outcome, "error_code", None) for outcome in await asyncio.gather(*told)] == [
            ErrorCode.not_coordinator
        ] * 3
        assert list(await groups.commit("g", [row(1)])) == [ErrorCode.not_coordinator]
        assert parts.ledger.state.groups == {}
        assert groups._versions == {}


async def test_a_group_that_is_not_deleted_keeps_its_claim_and_one_that_is_leaves_nothing_behind() -> None:
    async with one_agent() as (_, groups):
        await groups.claim("g")
        written, deleted = groups.write("g", generation(1, member())), groups.delete_group("g")
        after = groups.write("g", generation(2))
        outcome = await deleted
        assert isinstance(outcome, Rejected)
        assert outcome.error_code is ErrorCode.non_empty_group
        assert [await written, await after, groups.owns("g")] == [Done(), Done(), True]
        assert await groups.delete_group("g") == Done()
        assert groups._versions == {}


async def test_groups_that_are_gone_or_another_agents_are_forgotten_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agent.groups.group_ledger.GROUP_IDS_PER_CLAIM_MAX", 3)
    async with one_agent() as (parts, groups):
        for group_id in ("a", "b"):
            await groups.claim(group_id)
        await parts.ledger.propose(
            ExpireOffsets(now_ms=parts.clock.now_ms(), retention_ms=1, group_ids=("a",)),
        )
        await parts.ledger.propose(ClaimGroups(group_ids=("b",)))
        assert list(groups._versions) == ["a", "b"]
        await groups.claim("c")
        assert list(groups._versions) == ["c"]
        assert groups.owns("c")


async def test_an_agent_that_drains_hands_its_groups_over_at_once() -> None:
    async with two_agents() as (one, other):
        first, second = group_ledger(one), group_ledger(other)
        mine = next(group_id for group_id in GROUPS if first.coordinator(group_id) == one.ledger.session)
        await first.claim(mine)
        await one.ledger.propose(StartDrain(session=one.ledger.session))
        assert not first.owns(mine)
        assert await rejection(first, mine) is ErrorCode.not_coordinator
        with pytest.raises(NotCoordinator):
            await first.check_readable(mine)
        await other.ledger.barrier()
        assert (await second.claim(mine)).claimed_by == other.ledger.session


async def test_an_agent_whose_session_is_over_is_no_coordinator() -> None:
    async with one_agent() as (parts, groups):
        await parts.ledger.propose(EndSession(session=parts.ledger.session))
        assert groups.coordinator("g") is None
        assert await rejection(groups) is ErrorCode.coordinator_not_available
        with pytest.raises(NotCoordinator):
            await groups.check_readable("g")
