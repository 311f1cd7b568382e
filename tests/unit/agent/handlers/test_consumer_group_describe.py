"""ConsumerGroupDescribe of large groups: others have their turn, and what is told is one group all the same."""

import asyncio

import pytest
from msgspec.structs import replace

from agent.request.services import Services
from coordinator.commands.consumer_group_values import ConsumerGroup, ConsumerGroupChange
from protocol.errors import ErrorCode
from protocol.limits import ROWS_PER_TURN
from tests.support.commands.group_commands import GENERATION, JOINED
from tests.support.handlers.classic_groups import CONSUMER_DESCRIBE, serving
from tests.support.handlers.handler_client import ask, turns_of_others
from tests.support.records.kio_messages import KioEntity

IDS = [f"m{number:05}" for number in range(4 * ROWS_PER_TURN)]


def joined(member_ids: list[str]) -> ConsumerGroupChange:
    """A group of so many members, none of which has anything."""
    members = tuple(replace(JOINED.members[0], member_id=member_id, instance_id=None) for member_id in member_ids)
    return replace(JOINED, members=members, assignments=(), targets=())


async def write(services: Services, group_id: str, change: ConsumerGroupChange) -> None:
    await services.group_ledger.claim(group_id)
    await services.group_ledger.write_consumer(group_id, change)


async def described(services: Services, group_id: str) -> KioEntity:
    return await ask(services, CONSUMER_DESCRIBE, 1, group_ids=[group_id], include_authorized_operations=False)


async def test_others_have_their_turn_while_a_large_group_is_told() -> None:
    async with serving() as services:
        turns_counts = []
        for group_id, member_ids in (("small", IDS[:1]), ("large", IDS)):
            await write(services, group_id, joined(member_ids))
            told, turns_count = await turns_of_others(described(services, group_id))
            assert [each.member_id for each in told.groups[0].members] == member_ids
            turns_counts.append(turns_count)
        assert turns_counts[1] >= turns_counts[0] + 4


async def test_a_group_that_is_not_there_is_distinguished_from_one_of_the_other_kind() -> None:
    async with serving() as services:
        await services.group_ledger.claim("classic")
        await services.group_ledger.write("classic", GENERATION)
        told = [(await described(services, group_id)).groups[0] for group_id in ("classic", "nosuch")]
        assert {each.error_code for each in told} == {ErrorCode.group_id_not_found}
        messages = [each.error_message for each in told]
        assert messages == ["Group classic is not a consumer group.", "Group nosuch not found."]


async def test_a_group_that_changes_while_it_is_told_is_told_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as services:
        await write(services, "g", joined(IDS))

        def change_soon(group: ConsumerGroup) -> str:
            value = services.state.groups["g"].value
            assert isinstance(value, ConsumerGroup)
            asyncio.get_running_loop().call_soon(value.members.clear)
            return "uniform"

        monkeypatch.setattr(services.consumer_groups, "preferred_assignor", change_soon)
        told = (await described(services, "g")).groups[0]
        assert (told.error_code, told.assignor_name) == (ErrorCode.none, "uniform")
        assert [each.member_id for each in told.members] == IDS
        assert (await described(services, "g")).groups[0].members == ()
