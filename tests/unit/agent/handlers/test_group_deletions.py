"""OffsetDelete and DeleteGroups: what stays because of members, and groups that are not there."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from agent.request.services import Services
from coordinator.commands.commands import Command, Done
from coordinator.commands.group import ClaimGroups, DeleteGroup, DeleteOffsets, WriteClassicGroup, WriteConsumerGroup
from coordinator.ledger.memory import AppendFate
from coordinator.ledger.port import LedgerEntry
from protocol.errors import ErrorCode
from protocol.limits import OFFSETS_PER_COMMIT_ENTRY_MAX
from protocol.types import SessionId
from tests.support.commands.entries import decode_entry
from tests.support.commands.group_commands import JOINED, generation, member
from tests.support.handlers.committed_offsets import (
    A_JOIN,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    NONE,
    OFFSET_DELETE,
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


def begin(services: Services, kind: str) -> None:
    """A first member, which is on its way to the ledger when this returns; it subscribes to `t` unless it connects."""
    if kind == "consumer":
        services.group_ledger.write_consumer("g", JOINED)
    else:
        protocol_type = "consumer" if kind == "classic" else kind
        services.group_ledger.write("g", structs.replace(generation(1, SUBSCRIBED), protocol_type=protocol_type))


class TestDelete:
    async def test_what_members_subscribe_to_stays_and_the_rest_goes(self) -> None:
        async with serving() as services:
            await commit(services, {0: 5, 1: 6})
            named = [
                {"name": "t", "partitions": [{"partition_index": 0}, {"partition_index": 9}]},
                {"name": "u", "partitions": [{"partition_index": 0}]},
            ]
            await write(services, generation(1, SUBSCRIBED))
            answer = await ask(services, OFFSET_DELETE, 0, group_id="g", topics=named)
            unknown = ErrorCode.unknown_topic_or_partition
            assert codes_of(answer) == [ErrorCode.group_subscribed_to_topic, unknown, unknown]
            await write(
                services, generation(2, structs.replace(SUBSCRIBED, protocols=(("range", bytes(6) + b"\xff" * 4),)))
            )
            assert codes_of(await ask(services, OFFSET_DELETE, 0, group_id="g", topics=named)) == [
                NONE,
                unknown,
                unknown,
            ]
            assert offsets_of(await told(services)) == {1: 6}

    async def test_while_a_change_of_the_group_is_on_its_way_nothing_goes(self) -> None:
        async with serving(clock=Impatient()) as services:
            await commit(services, {0: 5})
            ledger_of(services).fate_of_append = never
            services.group_ledger.write("g", generation(1, SUBSCRIBED))
            named = [{"name": "t", "partitions": [{"partition_index": 0}]}]
            answer = await ask(services, OFFSET_DELETE, 0, group_id="g", topics=named)
            assert (answer.error_code, answer.topics) == (ErrorCode.coordinator_load_in_progress, ())

    @pytest.mark.parametrize("is_taken", [True, False])
    async def test_a_change_of_the_group_that_is_on_its_way_is_waited_for(self, *, is_taken: bool) -> None:
        async with serving() as services, asyncio.timeout(SECONDS_MAX):
            await commit(services, {0: 5})
            gate = closed_gate(services)
            if not is_taken:
                services.ledger.propose(ClaimGroups(group_ids=("g",)))
            services.group_ledger.write("g", generation(1, SUBSCRIBED))
            named = [{"name": "t", "partitions": [{"partition_index": 0}]}]
            asked = asyncio.ensure_future(ask(services, OFFSET_DELETE, 0, group_id="g", topics=named))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not asked.done()
            gate.set()
            if is_taken:
                assert codes_of(await asked) == [ErrorCode.group_subscribed_to_topic]
            else:
                assert (await asked).error_code is ErrorCode.not_coordinator
            assert offsets_of(await told(services)) == {0: 5}

    @pytest.mark.parametrize("is_deleted", [True, False])
    async def test_s13_a_claim_that_is_over_once_a_change_is_applied_ends_the_wait_for_it(
        self, *, is_deleted: bool
    ) -> None:
        async with serving() as services, asyncio.timeout(SECONDS_MAX):
            await commit(services, {0: 5})
            gate = closed_gate(services)
            change = services.group_ledger.write("g", generation(1))
            services.ledger.propose(ClaimGroups(group_ids=("g",)))
            if is_deleted:
                claim_epoch = services.state.group_claims_count + 1
                services.ledger.propose(DeleteGroup(group_id="g", claim_epoch=claim_epoch))
                services.ledger.propose(ClaimGroups(group_ids=("g",)))
            named = [{"name": "t", "partitions": [{"partition_index": 1}]}]
            asked = asyncio.ensure_future(ask(services, OFFSET_DELETE, 0, group_id="g", topics=named))
            for _ in range(20):
                await asyncio.sleep(0)
            gate.set()
            assert (await asked).error_code is ErrorCode.not_coordinator
            assert (await change, services.state.groups["g"].version) == (Done(), 0 if is_deleted else 1)

    @pytest.mark.parametrize(
        ("protocol_type", "subscribed", "told_code"),
        [
            ("consumer", b"t", ErrorCode.group_subscribed_to_topic),
            ("consumer", b"u", ErrorCode.group_subscribed_to_topic),
            ("connect", b"t", ErrorCode.non_empty_group),
        ],
    )
    async def test_while_its_first_members_join_a_group_keeps_the_offsets_of_every_topic(
        self, protocol_type: str, subscribed: bytes, told_code: ErrorCode
    ) -> None:
        async with serving() as services:
            await commit(services, {0: 5})
            protocols = tuple((name, metadata.replace(b"t", subscribed)) for name, metadata in A_JOIN.protocols)
            await services.groups.join("g", replace(A_JOIN, protocol_type=protocol_type, protocols=protocols))
            named = [{"name": "t", "partitions": [{"partition_index": 0}]}]
            answer = await ask(services, OFFSET_DELETE, 0, group_id="g", topics=named)
            codes = [answer.error_code, *(each.error_code for topic in answer.topics for each in topic.partitions)]
            assert [code for code in codes if code is not NONE] == [told_code]
            assert offsets_of(await told(services)) == {0: 5}

    async def test_a_group_of_another_protocol_keeps_its_offsets_while_it_has_members(self) -> None:
        async with serving() as services:
            await commit(services, {0: 5})
            await write(services, structs.replace(generation(1, member()), protocol_type="connect"))
            named = [{"name": "t", "partitions": [{"partition_index": 0}]}]
            answer = await ask(services, OFFSET_DELETE, 0, group_id="g", topics=named)
            assert (answer.error_code, answer.topics) == (ErrorCode.non_empty_group, ())
            await write(services, structs.replace(generation(2), protocol_type="connect"))
            assert codes_of(await ask(services, OFFSET_DELETE, 0, group_id="g", topics=named)) == [NONE]
            assert offsets_of(await told(services)) == {}

    async def test_a_group_whose_last_offset_was_deleted_is_still_there(self) -> None:
        async with serving() as services:
            await commit(services, {0: 5})
            named = [{"name": "t", "partitions": [{"partition_index": 0}]}]
            for _ in range(2):
                assert codes_of(await ask(services, OFFSET_DELETE, 0, group_id="g", topics=named)) == [NONE]
            deleted = await ask(services, DELETE_GROUPS, 2, groups_names=["g", "g", "h"])
            assert [(each.group_id, each.error_code) for each in deleted.results] == [
                ("g", NONE),
                ("h", ErrorCode.group_id_not_found),
            ]
            again = await ask(services, OFFSET_DELETE, 0, group_id="g", topics=named)
            assert again.error_code is ErrorCode.group_id_not_found

    async def test_a_group_that_is_only_a_claim_does_not_exist(self) -> None:
        async with serving() as services:
            await services.group_ledger.claim("g")
            before = services.state.position
            not_found = ErrorCode.group_id_not_found
            assert (await ask(services, OFFSET_DELETE, 0, group_id="g", topics=[])).error_code is not_found
            deleted = await ask(services, DELETE_GROUPS, 2, groups_names=["g"])
            assert [each.error_code for each in deleted.results] == [not_found]
            for version, (state, error_code) in {5: ("Dead", NONE), 6: ("Dead", not_found)}.items():
                (group,) = (
                    await ask(services, DESCRIBE_GROUPS, version, groups=["g"], include_authorized_operations=False)
                ).groups
                assert (group.group_state, group.error_code) == (state, error_code)
            assert (await ask(services, LIST_GROUPS, 5, states_filter=[], types_filter=[])).groups == ()
            found = await told(services, member_id="m1", member_epoch=3)
            assert (found.error_code, found.topics) == (NONE, ())
            assert await commit(services, {0: 1}, generation=3) == [(0, not_found)]
            assert services.state.position == before

    async def test_a_group_whose_first_members_join_is_there(self) -> None:
        async with serving() as services:
            await services.groups.join("g", A_JOIN)
            assert (await ask(services, OFFSET_DELETE, 0, group_id="g", topics=[])).error_code is NONE
            deleted = await ask(services, DELETE_GROUPS, 2, groups_names=["g"])
            assert [each.error_code for each in deleted.results] == [ErrorCode.non_empty_group]
            assert await commit(services, {0: 1}, generation=3) == [(0, ErrorCode.unknown_member_id)]

    async def test_more_partitions_than_an_entry_has_go_by_several(self) -> None:
        count = OFFSETS_PER_COMMIT_ENTRY_MAX + 1
        async with serving(partitions=count) as services:
            await commit(services, dict.fromkeys(range(count), 5))
            before = services.ledger.apply_loop.entries_applied_count
            named = [{"name": "t", "partitions": [{"partition_index": index} for index in range(count)]}]
            answer = await ask(services, OFFSET_DELETE, 0, group_id="g", topics=named)
            assert set(codes_of(answer)) == {NONE}
            assert services.ledger.apply_loop.entries_applied_count == before + 2
            assert offsets_of(await told(services)) == {}

    @pytest.mark.parametrize("kind", ["classic", "consumer", "connect"])
    async def test_who_joins_while_the_first_of_several_entries_is_on_its_way_keeps_the_rest(self, kind: str) -> None:
        count = 2 * OFFSETS_PER_COMMIT_ENTRY_MAX + 1
        async with serving(partitions=count) as services, asyncio.timeout(SECONDS_MAX):
            await commit(services, dict.fromkeys(range(count), 5))
            appended: list[Command] = []

            async def joined(session: SessionId, entries: Sequence[LedgerEntry]) -> AppendFate:
                if not appended:
                    begin(services, kind)
                appended.extend(decode_entry(session, entry).command for entry in entries)
                return AppendFate.APPLIED

            ledger_of(services).fate_of_append = joined
            named = [{"name": "t", "partitions": [{"partition_index": index} for index in range(count)]}]
            answer = await ask(services, OFFSET_DELETE, 0, group_id="g", topics=named)
            change = WriteConsumerGroup if kind == "consumer" else WriteClassicGroup
            left = count - OFFSETS_PER_COMMIT_ENTRY_MAX
            if kind == "connect":
                assert (answer.error_code, answer.topics) == (ErrorCode.non_empty_group, ())
            else:
                kept = ErrorCode.group_subscribed_to_topic
                assert codes_of(answer) == [NONE] * OFFSETS_PER_COMMIT_ENTRY_MAX + [kept] * left
            assert list(map(type, appended)) == [DeleteOffsets, change]
            assert len(offsets_of(await told(services))) == left

    async def test_a_group_with_members_is_not_deleted_and_many_groups_are_at_once(self) -> None:
        async with serving() as services:
            for name in ("h", "i"):
                await commit(services, {0: 5}, group=name)
            await write(services, generation(1, SUBSCRIBED))
            deleted = await ask(services, DELETE_GROUPS, 2, groups_names=["g", "h", "i"])
            assert [each.error_code for each in deleted.results] == [ErrorCode.non_empty_group, NONE, NONE]
            assert list(services.state.groups) == ["g"]
