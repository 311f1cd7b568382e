"""TxnOffsetCommit: who may, what each partition is told, and who sees the offsets when (KIP-98, KIP-447, KIP-890)."""

import asyncio
import logging
import random
from dataclasses import replace
from uuid import UUID

import pytest
from msgspec import structs

from agent.groups.group_ledger import OffsetRow
from agent.request.connection_epochs import IntroducedEpoch, RelayedEpochs
from agent.request.services import NoAnswerOwed, Services
from coordinator.commands.commands import Proposal
from coordinator.commands.group import ClaimGroups
from coordinator.groups.classic_messages import Leaver
from protocol.errors import ErrorCode
from protocol.limits import (
    GROUP_ID_BYTES_MAX,
    LEDGER_ENTRY_BYTES_MAX,
    OFFSETS_PER_ENTRY_MAX,
    TRANSACTION_MEMBERS_MAX,
    TRANSACTIONAL_METADATA_BYTES_MAX,
)
from protocol.relay import ClientEpoch
from protocol.types import Milliseconds, Offset, PartitionIndex, Position, SessionId
from tests.support.agent.data_paths import another_agent, data_paths, services_of
from tests.support.commands.commands import TOPIC
from tests.support.commands.entries import encode
from tests.support.commands.group_commands import JOINED, generation
from tests.support.commands.transaction_commands import pending
from tests.support.handlers.committed_offsets import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    NONE,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SECONDS_MAX,
    SUBSCRIBED,
    closed_gate,
    codes_of,
    commit,
    ledger_of,
    offsets_of,
    serving,
    told,
    write,
)
from tests.support.handlers.handler_client import ask
from tests.support.handlers.stalled_ledger import Impatient, never
from tests.support.handlers.transactions import Producer, add_group, begun, pend
from tests.support.handlers.transactions import end as end_transaction
from tests.support.records.kio_messages import KioEntity

UNSTABLE = ErrorCode.unstable_offset_commit


async def end(services: Services, producer: Producer, *, is_commit: bool = True, version: int = 5) -> None:
    answer = await end_transaction(services, producer, version, is_commit=is_commit)
    assert answer.error_code is NONE


async def seen(services: Services, *, is_stable: bool, version: int = 9) -> list[tuple[int, int, ErrorCode]]:
    """What OffsetFetch tells of both partitions: offset, and error."""
    topics: list[dict[str, object]] = [{"name": "t", "partition_indexes": [0, 1]}]
    answer = await ask(
        services, OFFSET_FETCH, version, groups=[{"group_id": "g", "topics": topics}], require_stable=is_stable
    )
    return rows_of(answer.groups[0])


def rows_of(group: KioEntity) -> list[tuple[int, int, ErrorCode]]:
    assert group.error_code is NONE
    return [
        (each.partition_index, each.committed_offset, each.error_code)
        for topic in group.topics
        for each in topic.partitions
    ]


class TestOffsetsOfATransaction:
    @pytest.mark.parametrize("version", range(6))
    @pytest.mark.parametrize("is_commit", [True, False])
    async def test_they_are_true_once_it_commits_and_never_if_it_aborts(self, version: int, is_commit: bool) -> None:
        async with serving() as services:
            await commit(services, {0: 2})
            producer = await begun(services)
            if version < 5:
                assert await add_group(services, producer) is NONE
            assert await pend(services, producer, {0: 5}, version=version, note="five") == [(0, NONE)]
            assert await seen(services, is_stable=False) == [(0, 2, NONE), (1, -1, NONE)]
            await end(services, producer, is_commit=is_commit, version=5 if version == 5 else 3)
            assert await seen(services, is_stable=True) == [(0, 5 if is_commit else 2, NONE), (1, -1, NONE)]
            assert services.group_ledger.offsets_committed_count == 2

    async def test_the_last_of_several_commits_counts_and_so_does_one_outside_after_it(self) -> None:
        async with serving() as services:
            producer = await begun(services)
            await pend(services, producer, {0: 5, 1: 7})
            await pend(services, producer, {0: 3})
            await commit(services, {1: 9})
            await end(services, producer)
            assert offsets_of(await told(services)) == {0: 3, 1: 9}

    async def test_kafka_17582_who_looks_after_an_abort_is_where_the_group_was_before(self) -> None:
        async with serving() as services:
            await commit(services, {0: 2, 1: 3})
            producer = await begun(services)
            for _ in range(3):
                await pend(services, producer, {0: 9, 1: 9})
                assert await seen(services, is_stable=False) == [(0, 2, NONE), (1, 3, NONE)]
                await end(services, producer, is_commit=False)
                producer = producer.next
                assert await seen(services, is_stable=True) == [(0, 2, NONE), (1, 3, NONE)]

    async def test_a_group_that_has_nothing_else_is_there_from_then_on(self) -> None:
        async with serving() as services:
            await pend(services, await begun(services), {0: 5})
            listed = await ask(services, LIST_GROUPS, 5, states_filter=[], types_filter=[])
            assert [(each.group_id, each.group_state, each.group_type) for each in listed.groups] == [
                ("g", "Empty", "classic")
            ]
            described = await ask(services, DESCRIBE_GROUPS, 6, groups=["g"], include_authorized_operations=False)
            assert [(each.group_state, each.error_code) for each in described.groups] == [("Empty", NONE)]


class TestStableOffsets:
    """KIP-447: whoever asks for stable ones waits for the transaction."""

    async def test_a_partition_is_unstable_until_its_transaction_ends(self) -> None:
        async with serving() as services:
            await commit(services, {0: 2, 1: 3})
            producer = await begun(services)
            await pend(services, producer, {0: 5})
            assert await seen(services, is_stable=True) == [(0, -1, UNSTABLE), (1, 3, NONE)]
            everything = await ask(
                services, OFFSET_FETCH, 9, groups=[{"group_id": "g", "topics": None}], require_stable=True
            )
            assert rows_of(everything.groups[0]) == [(0, -1, UNSTABLE), (1, 3, NONE)]
            await end(services, producer)
            assert await seen(services, is_stable=True) == [(0, 5, NONE), (1, 3, NONE)]

    async def test_one_that_is_pending_alone_is_not_among_all_that_was_committed(self) -> None:
        async with serving() as services:
            await pend(services, await begun(services), {0: 5})
            everything = await ask(
                services, OFFSET_FETCH, 9, groups=[{"group_id": "g", "topics": None}], require_stable=True
            )
            assert rows_of(everything.groups[0]) == []
            assert await seen(services, is_stable=True) == [(0, -1, UNSTABLE), (1, -1, NONE)]

    async def test_version_7_asks_for_one_group_and_version_10_by_topic_id(self) -> None:
        async with serving() as services:
            await pend(services, await begun(services), {1: 5})
            seven = await ask(
                services,
                OFFSET_FETCH,
                7,
                group_id="g",
                topics=[{"name": "t", "partition_indexes": [0, 1]}],
                require_stable=True,
            )
            assert rows_of(seven) == [(0, -1, NONE), (1, -1, UNSTABLE)]
            by_id = [{"topic_id": UUID(bytes=TOPIC), "partition_indexes": [1]}]
            ten = await ask(
                services, OFFSET_FETCH, 10, groups=[{"group_id": "g", "topics": by_id}], require_stable=True
            )
            assert rows_of(ten.groups[0]) == [(1, -1, UNSTABLE)]

    async def test_it_is_so_as_long_as_any_of_several_transactions_is_open(self) -> None:
        async with serving() as services:
            one, other = await begun(services), await begun(services, "other")
            await pend(services, one, {0: 5})
            await pend(services, other, {0: 6}, transactional_id="other")
            await end(services, one)
            assert await seen(services, is_stable=True) == [(0, -1, UNSTABLE), (1, -1, NONE)]
            assert await seen(services, is_stable=False) == [(0, 5, NONE), (1, -1, NONE)]


class TestRefusals:
    async def test_partitions_that_are_not_there_have_their_own_errors(self) -> None:
        async with serving() as services:
            producer = await begun(services)
            unknown = ErrorCode.unknown_topic_or_partition
            assert await pend(services, producer, {0: 5, 7: 6, -1: 7}) == [(0, NONE), (7, unknown), (-1, unknown)]
            assert await pend(services, producer, {0: 5}, topic="u") == [(0, unknown)]
            await end(services, producer)
            assert offsets_of(await told(services)) == {0: 5}

    async def test_a_note_that_is_too_long_is_its_rows_error(self) -> None:
        async with serving() as services:
            producer = await begun(services)
            assert await pend(services, producer, {0: 1}, note="x" * 4_097) == [
                (0, ErrorCode.offset_metadata_too_large)
            ]
            assert services.state.groups["g"].is_vacant

    async def test_an_empty_group_id_is_invalid(self) -> None:
        async with serving() as services:
            producer = await begun(services)
            assert await pend(services, producer, {0: 1}, group="") == [(0, ErrorCode.invalid_group_id)]

    @pytest.mark.parametrize(
        ("version", "error_code"),
        [(3, ErrorCode.invalid_txn_state), (4, ErrorCode.transaction_abortable), (5, NONE)],
    )
    async def test_before_version_5_the_group_has_to_be_added(self, version: int, error_code: ErrorCode) -> None:
        async with serving() as services:
            assert await pend(services, await begun(services), {0: 1}, version=version) == [(0, error_code)]

    @pytest.mark.parametrize("version", [3, 5])
    async def test_producers_that_are_not_the_current_one_are_told(self, version: int) -> None:
        async with serving() as services:
            producer = await begun(services)
            assert await add_group(services, producer) is NONE
            late = await pend(services, producer.next, {0: 1}, version=version)
            assert late == [(0, ErrorCode.invalid_producer_epoch)]
            mapping = ErrorCode.invalid_producer_id_mapping
            assert await pend(services, producer.another, {0: 1}, version=version) == [(0, mapping)]
            assert await pend(services, producer, {0: 1}, version=version, transactional_id="u") == [(0, mapping)]

    async def test_more_than_one_entry_holds_is_refused_as_a_whole(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with serving() as services:
            producer = await begun(services)
            too_large = ErrorCode.invalid_commit_offset_size
            monkeypatch.setattr("agent.handlers.txn_offset_commit.OFFSETS_PER_ENTRY_MAX", 1)
            assert await pend(services, producer, {0: 1, 1: 2}) == [(0, too_large), (1, too_large)]
            monkeypatch.setattr("agent.handlers.txn_offset_commit.OFFSETS_PER_ENTRY_MAX", 2)
            monkeypatch.setattr("agent.handlers.txn_offset_commit.TRANSACTIONAL_METADATA_BYTES_MAX", 5)
            assert await pend(services, producer, {0: 1, 1: 2}, note="abc") == [(0, too_large), (1, too_large)]
            assert services.state.groups["g"].is_vacant
            assert await pend(services, producer, {0: 1, 1: 2}, note="ab") == [(0, NONE), (1, NONE)]

    async def test_more_than_a_transaction_may_have_is_told_to_all_rows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async with serving() as services:
            producer = await begun(services)
            assert await add_group(services, producer, group="other") is NONE
            monkeypatch.setattr("coordinator.apply.transactions.TRANSACTION_MEMBERS_MAX", 1)
            assert await pend(services, producer, {0: 1}) == [(0, ErrorCode.policy_violation)]
            assert TRANSACTION_MEMBERS_MAX > 1


def test_the_largest_commit_fits_into_one_entry() -> None:
    rows, chance = OFFSETS_PER_ENTRY_MAX, random.Random(1)
    note_bytes = TRANSACTIONAL_METADATA_BYTES_MAX // rows
    letters = [chr(code) for code in range(0x21, 0x7F)]
    command = replace(
        pending(*(chance.randrange(1 << 40) for _ in range(rows)), group_id="g" * GROUP_ID_BYTES_MAX),
        metadata=tuple("".join(chance.choices(letters, k=note_bytes)) for _ in range(rows)),
    )
    assert len(encode(Proposal(time_ms=Milliseconds(0), command=command))) <= LEDGER_ENTRY_BYTES_MAX


class TestMembers:
    """From version 3 on a request says for which member of the group it is (KIP-447)."""

    async def test_those_of_a_classic_group(self) -> None:
        async with serving() as services:
            producer = await begun(services)
            await write(services, generation(3, structs.replace(SUBSCRIBED, group_instance_id="i")))

            async def by(member: str, number: int, instance: str | None = None) -> ErrorCode:
                told_of = await pend(services, producer, {0: 1}, member=member, generation=number, instance=instance)
                ((_, error_code),) = told_of
                return error_code

            assert await by("m1", 3) is NONE
            assert await by("m1", 3, "i") is NONE
            assert await by("m1", 2) is ErrorCode.illegal_generation
            assert await by("x", 3) is ErrorCode.unknown_member_id
            assert await by("x", 3, "i") is ErrorCode.fenced_instance_id
            assert await by("", -1) is NONE

    async def test_they_commit_while_they_wait_for_their_assignment(self) -> None:
        async with serving() as services:
            producer = await begun(services)
            await write(services, structs.replace(generation(3, SUBSCRIBED), is_synced=False))
            assert await pend(services, producer, {0: 1}, member="m1", generation=3) == [(0, NONE)]
            assert await commit(services, {0: 1}, generation=3, member="m1") == [(0, ErrorCode.rebalance_in_progress)]

    async def test_those_of_a_consumer_group(self) -> None:
        async with serving() as services:
            producer = await begun(services)
            await services.group_ledger.claim("g")
            await services.group_ledger.write_consumer("g", JOINED)

            async def by(member: str, epoch: int, instance: str | None = None) -> ErrorCode:
                told_of = await pend(services, producer, {0: 1}, member=member, generation=epoch, instance=instance)
                ((_, error_code),) = told_of
                return error_code

            assert await by("m1", 0) is NONE
            assert await by("m1", 7) is ErrorCode.illegal_generation
            assert await by("x", 0) is ErrorCode.unknown_member_id
            assert await by("", -1, "i") is ErrorCode.unknown_member_id
            assert await by("", -1) is NONE

    async def test_older_versions_say_nothing_of_members(self) -> None:
        async with serving() as services:
            producer = await begun(services)
            assert await add_group(services, producer) is NONE
            await write(services, generation(3, SUBSCRIBED))
            assert await pend(services, producer, {0: 1}, version=2) == [(0, NONE)]

    async def test_a_generation_of_a_group_that_is_not_there_writes_nothing(self) -> None:
        async with serving() as services:
            producer = await begun(services)
            before = services.state.position
            illegal = ErrorCode.illegal_generation
            assert await pend(services, producer, {0: 1}, generation=1, member="m1") == [(0, illegal)]
            assert services.state.position == before
            await services.group_ledger.claim("g")
            assert await pend(services, producer, {0: 1}, generation=1, member="m1") == [(0, illegal)]

    async def test_a_refusal_that_follows_from_a_change_on_its_way_is_told_once_that_is_applied(self) -> None:
        async with serving() as services, asyncio.timeout(SECONDS_MAX):
            producer = await begun(services)
            await write(services, generation(3, SUBSCRIBED))
            gate = closed_gate(services)
            leaving = asyncio.ensure_future(services.groups.leave("g", [Leaver("m1", None)]))
            for _ in range(20):
                await asyncio.sleep(0)
            assert services.group_ledger.has_unapplied_changes("g")
            refused = asyncio.ensure_future(pend(services, producer, {0: 1}, member="m1", generation=3))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not refused.done()
            gate.set()
            assert await refused == [(0, ErrorCode.unknown_member_id)]
            await leaving


class TestTheLedger:
    async def test_s13_another_agent_keeps_nothing(self) -> None:
        async with data_paths() as paths, another_agent(paths) as other, asyncio.TaskGroup() as tasks:
            await paths.parts.ledger.barrier()
            one = services_of(paths, paths.parts.clock, tasks)
            two = services_of(other, other.parts.clock, tasks)
            producer = await begun(one)
            is_of_one = one.group_ledger.coordinator("g") == one.ledger.session
            mine, others = (one, two) if is_of_one else (two, one)
            not_coordinator = ErrorCode.not_coordinator
            assert await pend(others, producer, {0: 6}) == [(0, not_coordinator)]
            assert await pend(mine, producer, {0: 5}) == [(0, NONE)]
            # Decided through any agent, and true to the group's coordinator from then on (safety rule S4).
            await end(others, producer)
            assert await seen(mine, is_stable=True) == [(0, 5, NONE), (1, -1, NONE)]

    async def test_s13_a_claim_that_was_taken_away_meanwhile_keeps_nothing(self) -> None:
        async with serving() as services:
            producer = await begun(services)
            await services.group_ledger.claim("g")
            services.ledger.propose(ClaimGroups(group_ids=("g",)))
            assert await pend(services, producer, {0: 5}) == [(0, ErrorCode.not_coordinator)]
            assert await pend(services, producer, {0: 5}) == [(0, NONE)]

    async def test_nothing_is_said_of_what_no_barrier_confirmed(self) -> None:
        async with serving() as services:
            producer = await begun(services)
            await services.group_ledger.claim("g")
            ledger_of(services).is_reachable = False
            away = ErrorCode.coordinator_not_available
            assert await pend(services, producer, {9: 1}) == [(9, away)]

    async def test_what_is_not_applied_in_time_may_be_asked_again(self) -> None:
        async with serving(clock=Impatient()) as services:
            producer = await begun(services)
            assert await pend(services, producer, {0: 1}) == [(0, NONE)]
            ledger_of(services).fate_of_append = never
            away = ErrorCode.coordinator_not_available
            assert await pend(services, producer, {0: 2}) == [(0, away)]
            assert services.group_ledger.owns("g")
            assert await pend(services, producer, {0: 1}, group="unclaimed") == [(0, away)]

    async def test_commits_outside_that_came_before_are_before_it_in_the_ledger(self) -> None:
        async with serving() as services:
            producer = await begun(services)
            await services.group_ledger.claim("g")
            services.group_ledger.commit("g", [OffsetRow(TOPIC, PartitionIndex(0), Offset(9))])
            assert await pend(services, producer, {0: 5}) == [(0, NONE)]
            await end(services, producer)
            assert offsets_of(await told(services)) == {0: 5}


async def test_s7_a_request_on_a_connection_that_its_client_gave_up_is_not_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as services:
        producer = await begun(services)
        assert await add_group(services, producer) is NONE
        older, newer = services.connection_epochs.accepted(), services.connection_epochs.accepted()
        for epoch in (older, newer):
            epoch.settle(Position(1), services.clock.monotonic_s())
        assert await pend(services, producer, {0: 5}, version=3, connection_epoch=newer) == [(0, NONE)]
        with caplog.at_level(logging.WARNING), pytest.raises(NoAnswerOwed):
            await pend(services, producer, {0: 4}, version=3, connection_epoch=older)
        assert "closing the connection" in caplog.text
        assert services.metrics.transactions_fenced_requests._value.get() == 1
        await end(services, producer, version=3)
        assert offsets_of(await told(services)) == {0: 5}


async def test_s7_connections_that_another_agent_relays_are_ordered_too() -> None:
    async with serving() as plain:
        services = replace(plain, relayed_epochs=RelayedEpochs())
        producer = await begun(services)
        assert await add_group(services, producer) is NONE
        older, newer, tied = (
            IntroducedEpoch(ClientEpoch(SessionId(session), Position(1), number))
            for session, number in ((71, 0), (71, 1), (72, 0))
        )
        assert await pend(services, producer, {0: 5}, version=3, connection_epoch=newer) == [(0, NONE)]
        for connection in (older, tied, IntroducedEpoch(None)):
            with pytest.raises(NoAnswerOwed):
                await pend(services, producer, {0: 4}, version=3, connection_epoch=connection)
        # The client that goes back to this agent is newer, too.
        own = services.connection_epochs.accepted()
        own.settle(services.state.position, services.clock.monotonic_s())
        assert await pend(services, producer, {0: 6}, version=3, connection_epoch=own) == [(0, NONE)]
        with pytest.raises(NoAnswerOwed):
            await pend(services, producer, {0: 4}, version=3, connection_epoch=newer)


class TestDeletions:
    async def test_offsets_that_are_deleted_do_not_become_true(self) -> None:
        async with serving() as services:
            producer = await begun(services)
            await pend(services, producer, {0: 5, 1: 6})
            named = [{"name": "t", "partitions": [{"partition_index": 0}]}]
            assert codes_of(await ask(services, OFFSET_DELETE, 0, group_id="g", topics=named)) == [NONE]
            await end(services, producer)
            assert offsets_of(await told(services)) == {1: 6}

    async def test_those_of_a_deleted_group_are_gone_and_the_transaction_commits(self) -> None:
        async with serving() as services:
            producer = await begun(services)
            await pend(services, producer, {0: 5})
            deleted = await ask(services, DELETE_GROUPS, 2, groups_names=["g"])
            assert [each.error_code for each in deleted.results] == [NONE]
            await end(services, producer)
            assert "g" not in services.state.groups
