"""OffsetCommit and OffsetFetch: who may, what each partition is told, and ledgers away, for deletions too."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import UUID

import pytest
from msgspec.structs import replace

from agent.groups.group_ledger import OffsetRow
from agent.handlers import offset_fetch
from agent.handlers.offset_fetch import member_error
from agent.request.offset_commits import commit_offsets, is_too_long
from agent.request.services import Services
from coordinator.commands.consumer_group_values import (
    ClassicProtocols,
    ConsumerGroup,
    ConsumerMember,
    MemberAssignment,
    MemberState,
)
from coordinator.commands.group import ClaimGroups
from coordinator.commands.group_values import ClassicGroup, GroupState
from coordinator.groups.classic_messages import Leaver
from protocol.errors import ErrorCode
from protocol.limits import OFFSET_METADATA_BYTES_MAX, OFFSETS_PER_COMMIT_ENTRY_MAX
from protocol.types import Offset, PartitionIndex, SessionId
from tests.support.agent.data_paths import another_agent, data_paths, services_of
from tests.support.agent.ledger_parts import ManualClock
from tests.support.commands.commands import TOPIC
from tests.support.commands.group_commands import JOINED, generation, member
from tests.support.handlers.committed_offsets import (
    CONSUMER_HEARTBEAT,
    DELETE_GROUPS,
    NO_ID,
    NONE,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SECONDS_MAX,
    SUBSCRIBED,
    closed_gate,
    commit,
    ledger_of,
    offsets_of,
    serving,
    told,
    write,
)
from tests.support.handlers.handler_client import ask
from tests.support.handlers.stalled_ledger import Impatient, never

AWAY = ErrorCode.coordinator_not_available


class TestCommit:
    async def test_partitions_have_their_own_errors_and_the_last_offset_of_one_counts(self) -> None:
        async with serving() as services:
            told_codes = await commit(services, [(0, 1), (7, 2), (0, 3), (-1, 4)])
            unknown = ErrorCode.unknown_topic_or_partition
            assert told_codes == [(0, NONE), (7, unknown), (0, NONE), (-1, unknown)]
            assert offsets_of(await told(services)) == {0: 3}
            assert services.group_ledger.offsets_committed_count == 2

    async def test_topics_have_ids_from_version_10_on(self) -> None:
        async with serving() as services:
            assert await commit(services, {1: 5}, version=10, topic=UUID(bytes=TOPIC)) == [(1, NONE)]
            for unknown in (NO_ID, None):
                assert await commit(services, {1: 5}, version=10, topic=unknown) == [(1, ErrorCode.unknown_topic_id)]
            partition = await commit(services, {9: 5}, version=10, topic=UUID(bytes=TOPIC))
            assert partition == [(9, ErrorCode.unknown_topic_or_partition)]
            assert offsets_of(await told(services)) == {1: 5}

    async def test_more_rows_than_an_entry_has_are_all_committed(self) -> None:
        async with serving() as services:
            rows = [(number % 3, number) for number in range(2 * OFFSETS_PER_COMMIT_ENTRY_MAX + 3)]
            codes = await commit(services, rows)
            assert [index for index, _ in codes] == [index for index, _ in rows]
            assert all((code is NONE) == (index < 2) for index, code in codes)
            assert offsets_of(await told(services)) == {0: rows[-1][1], 1: rows[-3][1]}

    async def test_a_note_that_is_too_long_is_its_rows_error_unless_the_group_has_one(self) -> None:
        async with serving() as services:
            long = "x" * 4_097
            alone = await commit(services, {0: 1}, note=long, group="h")
            assert alone == [(0, ErrorCode.offset_metadata_too_large)]
            await write(services, generation(3, SUBSCRIBED))
            assert await commit(services, {0: 1}, note=long) == [(0, ErrorCode.unknown_member_id)]
            mine = await commit(services, {0: 1}, note=long, generation=3, member="m1")
            assert mine == [(0, ErrorCode.offset_metadata_too_large)]

    async def test_members_are_judged_by_the_coordinator_of_their_kind(self) -> None:
        async with serving() as services:
            await write(services, generation(3, SUBSCRIBED))
            assert await commit(services, {0: 1}, generation=3, member="m1") == [(0, NONE)]
            assert await commit(services, {0: 1}, generation=2, member="m1") == [(0, ErrorCode.illegal_generation)]
            await services.group_ledger.claim("h")
            await services.group_ledger.write_consumer("h", JOINED)
            assert await commit(services, {0: 1}, group="h", generation=0, member="m1") == [(0, NONE)]
            stale = await commit(services, {0: 1}, group="h", generation=1, member="m1")
            assert stale == [(0, ErrorCode.stale_member_epoch)]
            nobody = await commit(services, {0: 1}, group="h")
            assert nobody == [(0, ErrorCode.unknown_member_id)]

    async def test_a_generation_of_a_group_that_is_not_there_writes_nothing(self) -> None:
        async with serving() as services:
            before = services.state.position
            assert await commit(services, {0: 1}, generation=3) == [(0, ErrorCode.group_id_not_found)]
            assert await commit(services, {0: 1}, generation=3, version=8) == [(0, ErrorCode.illegal_generation)]
            assert services.state.position == before

    @pytest.mark.parametrize(("given_ms", "kept_ms"), [(-1, None), (0, 0), (5_000, 5_000), (-7, 0)])
    async def test_old_versions_say_how_long_an_offset_is_kept(self, given_ms: int, kept_ms: int | None) -> None:
        async with serving() as services:
            retention = timedelta(milliseconds=given_ms)
            assert await commit(services, {0: 1}, version=4, retention_time=retention) == [(0, NONE)]
            (found,) = services.state.groups["g"].offsets[TOPIC].values()
            assert found.retention_ms == kept_ms

    async def test_s13_another_agent_commits_nothing_and_tells_nothing(self) -> None:
        async with data_paths() as paths, another_agent(paths) as other, asyncio.TaskGroup() as tasks:
            await paths.parts.ledger.barrier()
            one = services_of(paths, paths.parts.clock, tasks)
            two = services_of(other, other.parts.clock, tasks)
            is_of_one = one.group_ledger.coordinator("g") == one.ledger.session
            mine, others = (one, two) if is_of_one else (two, one)
            assert await commit(mine, {0: 5}) == [(0, NONE)]
            not_coordinator = ErrorCode.not_coordinator
            assert await commit(others, {0: 6}) == [(0, not_coordinator)]
            assert (await told(others)).error_code is not_coordinator
            first = await ask(
                others, OFFSET_FETCH, 1, group_id="g", topics=[{"name": "t", "partition_indexes": [0, 1]}]
            )
            assert [(each.committed_offset, each.error_code) for each in first.topics[0].partitions] == [
                (-1, not_coordinator)
            ] * 2
            deleted = await ask(others, OFFSET_DELETE, 0, group_id="g", topics=[])
            assert deleted.error_code is not_coordinator
            dropped = await ask(others, DELETE_GROUPS, 2, groups_names=["g"])
            assert [each.error_code for each in dropped.results] == [not_coordinator]
            assert offsets_of(await told(mine)) == {0: 5}


async def leaving(services: Services, kind: str) -> None:
    """The one member of the group leaves, which is on its way to the ledger when this returns."""
    if kind == "classic":
        leaving = services.groups.leave("g", [Leaver("m1", None)])
    else:
        leaving = ask(
            services, CONSUMER_HEARTBEAT, 1, group_id="g", member_id="m1", member_epoch=-1, topic_partitions=None
        )
    task = asyncio.ensure_future(leaving)
    while not services.group_ledger.has_unapplied_changes("g"):
        assert not task.done(), task.result()
        await asyncio.sleep(0)
    task.add_done_callback(lambda done: done.exception())


@pytest.mark.parametrize("kind", ["classic", "consumer"])
class TestARefusalThatFollowsFromAChangeOnItsWay:
    @asynccontextmanager
    async def group_and_gate(
        self, kind: str, clock: ManualClock | None = None
    ) -> AsyncIterator[tuple[Services, asyncio.Event]]:
        """With the member `m1`; nothing is appended any more until the gate opens."""
        async with serving(clock=clock) as services, asyncio.timeout(SECONDS_MAX):
            if kind == "classic":
                await write(services, generation(3, SUBSCRIBED))
            else:
                await services.group_ledger.claim("g")
                await services.group_ledger.write_consumer("g", JOINED)
            yield services, closed_gate(services)

    async def test_it_is_told_once_that_is_applied(self, kind: str) -> None:
        async with self.group_and_gate(kind) as (services, gate):
            await leaving(services, kind)
            refused = asyncio.ensure_future(commit(services, {0: 1}, generation=3, member="m1"))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not refused.done()
            gate.set()
            assert await refused == [(0, ErrorCode.unknown_member_id)]
            assert not services.state.groups["g"].has_members

    async def test_it_is_not_told_where_that_never_was(self, kind: str) -> None:
        async with self.group_and_gate(kind) as (services, gate):
            services.ledger.propose(ClaimGroups(group_ids=("g",)))
            await leaving(services, kind)
            refused = asyncio.ensure_future(commit(services, {0: 1}, generation=3, member="m1"))
            await asyncio.sleep(0)
            gate.set()
            assert await refused == [(0, ErrorCode.not_coordinator)]
            assert services.state.groups["g"].has_members

    async def test_it_is_not_waited_for_without_end(self, kind: str) -> None:
        async with self.group_and_gate(kind, Impatient()) as (services, _):
            await leaving(services, kind)
            away = ErrorCode.coordinator_not_available
            assert await commit(services, {0: 1}, generation=3, member="m1") == [(0, away)]

    async def test_so_is_that_of_the_rows_beyond_an_entry(self, kind: str) -> None:
        count = OFFSETS_PER_COMMIT_ENTRY_MAX + 1
        async with self.group_and_gate(kind) as (services, gate):
            rows = [OffsetRow(TOPIC, PartitionIndex(number % 2), Offset(number)) for number in range(count)]
            said = iter([ErrorCode.unknown_member_id])
            task = asyncio.ensure_future(commit_offsets(services, "g", rows, lambda _: next(said)))
            await asyncio.sleep(0)
            await leaving(services, kind)
            gate.set()
            assert await task == [NONE] * (count - 1) + [ErrorCode.unknown_member_id]


class TestALedgerThatIsAway:
    @pytest.mark.parametrize("kind", ["classic", "consumer"])
    async def test_s4_a_member_is_not_told_that_it_is_none(self, kind: str) -> None:
        """It may have joined elsewhere, and would give up what it has."""
        async with serving() as services:
            if kind == "classic":
                await write(services, generation(3, SUBSCRIBED))
            else:
                await services.group_ledger.claim("g")
                await services.group_ledger.write_consumer("g", JOINED)
            unknown = ErrorCode.unknown_member_id
            assert await commit(services, {0: 1}, generation=3, member="m2") == [(0, unknown)]
            ledger_of(services).is_reachable = False
            assert await commit(services, {0: 1}, generation=3, member="m2") == [(0, AWAY)]

    async def test_nothing_is_said_of_what_no_barrier_confirmed(self) -> None:
        async with serving() as services:
            await services.group_ledger.claim("g")
            ledger_of(services).is_reachable = False
            away = ErrorCode.coordinator_not_available
            assert await commit(services, {9: 1}) == [(9, away)]
            assert (await told(services)).error_code is away
            assert (await ask(services, OFFSET_DELETE, 0, group_id="g", topics=[])).error_code is away
            deleted = await ask(services, DELETE_GROUPS, 2, groups_names=["g"])
            assert [each.error_code for each in deleted.results] == [away]

    async def test_what_is_not_applied_in_time_may_be_asked_again(self) -> None:
        async with serving(clock=Impatient()) as services:
            assert await commit(services, {0: 1}) == [(0, NONE)]
            ledger_of(services).fate_of_append = never
            services.group_ledger.commit_timeout_s = 0.01
            away = ErrorCode.coordinator_not_available
            rows = [(number % 2, number) for number in range(OFFSETS_PER_COMMIT_ENTRY_MAX + 1)]
            assert {code for _, code in await commit(services, rows)} == {away}
            assert await commit(services, {0: 1}, group="unclaimed") == [(0, away)]
            named = [{"name": "t", "partitions": [{"partition_index": 0}]}]
            assert (await ask(services, OFFSET_DELETE, 0, group_id="g", topics=named)).error_code is away
            deleted = await ask(services, DELETE_GROUPS, 2, groups_names=["g"])
            assert [each.error_code for each in deleted.results] == [away]


class TestFetch:
    async def test_what_is_not_there_has_no_offset(self) -> None:
        async with serving() as services:
            await commit(services, {0: 5}, note="five")
            topics = [{"name": "t", "partition_indexes": [0, 1, 77]}, {"name": "u", "partition_indexes": [0]}]
            found = await told(services, topics=topics)
            assert [(topic.name, [each.committed_offset for each in topic.partitions]) for topic in found.topics] == [
                ("t", [5, -1, -1]),
                ("u", [-1]),
            ]
            assert {each.error_code for topic in found.topics for each in topic.partitions} == {NONE}
            assert found.topics[0].partitions[0].metadata == "five"

    async def test_topics_have_ids_from_version_10_on(self) -> None:
        async with serving() as services:
            await commit(services, {0: 5})
            topics = [{"topic_id": each, "partition_indexes": [0]} for each in (UUID(bytes=TOPIC), NO_ID, None)]
            answer = await ask(
                services,
                OFFSET_FETCH,
                10,
                groups=[{"group_id": "g", "topics": topics}, {"group_id": "g", "topics": None}],
            )
            asked, everything = answer.groups
            rows = [(topic.partitions[0].committed_offset, topic.partitions[0].error_code) for topic in asked.topics]
            unknown = (-1, ErrorCode.unknown_topic_id)
            assert rows == [(5, NONE), unknown, unknown]
            assert [topic.topic_id for topic in everything.topics] == [UUID(bytes=TOPIC)]

    async def test_one_barrier_serves_all_groups_of_a_request(self) -> None:
        async with serving() as services:
            for group in ("g", "h"):
                await commit(services, {0: 5}, group=group)
            groups = [{"group_id": each, "topics": None} for each in ("g", "h", "nobody", "g")]
            answer = await ask(services, OFFSET_FETCH, 8, groups=groups)
            assert [(each.group_id, offsets_of(each)) for each in answer.groups] == [
                ("g", {0: 5}),
                ("h", {0: 5}),
                ("nobody", {}),
                ("g", {0: 5}),
            ]

    async def test_an_answer_tells_no_more_offsets_than_it_may(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(offset_fetch, "OFFSETS_LISTED_MAX", 4)
        async with serving() as services:
            await commit(services, {0: 5, 1: 6})
            answer = await ask(services, OFFSET_FETCH, 8, groups=[{"group_id": "g", "topics": None}] * 3)
            assert [each.error_code for each in answer.groups] == [NONE] + [ErrorCode.invalid_request] * 2

    @pytest.mark.parametrize(
        ("member_id", "epoch", "error"),
        [
            (None, -1, NONE),
            (None, 3, ErrorCode.unknown_member_id),
            ("", -1, ErrorCode.unknown_member_id),
            ("nobody", 3, ErrorCode.unknown_member_id),
            ("new", 3, NONE),
            ("new", 2, ErrorCode.stale_member_epoch),
            ("old", 3, NONE),
            ("old", 4, ErrorCode.illegal_generation),
        ],
    )
    def test_of_a_consumer_group_its_members_of_now_are_told(
        self, member_id: str | None, epoch: int, error: ErrorCode
    ) -> None:
        assert member_error(group(consumer_group()), member_id, epoch) is error

    def test_of_other_groups_everybody_is(self) -> None:
        for value in (None, generation(1, member())):
            assert member_error(group(value), "nobody", 7) is NONE


def group(value: ClassicGroup | ConsumerGroup | None) -> GroupState:
    return GroupState(group_id="g", claim_epoch=1, claimed_by=SessionId(1), value=value)


def consumer_group() -> ConsumerGroup:
    """Two members at epoch 3, one of which speaks JoinGroup."""
    (first,) = JOINED.members
    classic = ClassicProtocols(session_timeout_ms=1, protocols=())
    members: list[ConsumerMember] = [
        replace(first, member_id="new"),
        replace(first, member_id="old", classic=classic),
    ]
    stands = MemberAssignment(epoch=3, previous_epoch=2, state=MemberState.STABLE, assigned=(), revoking=())
    return ConsumerGroup(
        members={each.member_id: each for each in members}, assignments={each.member_id: stands for each in members}
    )


@pytest.mark.parametrize(
    ("note", "is_long"),
    [
        ("", False),
        ("x" * 4_096, False),
        ("x" * 4_097, True),
        ("\N{GRINNING FACE}" * 2_048, False),
        ("\N{GRINNING FACE}" * 2_049, True),
        ("\N{EURO SIGN}" * 4_096, False),
    ],
)
def test_a_note_counts_by_utf_16_units(note: str, is_long: bool) -> None:
    assert is_too_long(note, 4_096) is is_long


def test_no_note_is_longer_than_answers_hold() -> None:
    assert not is_too_long("x" * OFFSET_METADATA_BYTES_MAX, 1 << 20)
    assert is_too_long("x" * (OFFSET_METADATA_BYTES_MAX + 1), 1 << 20)
    assert is_too_long("\N{EURO SIGN}" * 11_000, 1 << 20)
