"""FindCoordinator: whose group it is, for as many groups as one request may name."""

import asyncio

from agent.handlers.find_coordinator import API_KEY
from protocol.errors import ErrorCode
from protocol.limits import GROUP_ID_BYTES_MAX, GROUPS_ASKED_MAX, GROUPS_PER_TURN
from tests.unit.agent.data_paths import data_paths, services_of
from tests.unit.agent.handlers.asking import ask, turns_of_others

GROUP, TRANSACTION, SHARE = 0, 1, 2


async def test_many_groups_are_gone_through_in_turns() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        keys = [str(number) for number in range(5 * GROUPS_PER_TURN)]
        asked = ask(services, API_KEY, 4, key_type=GROUP, coordinator_keys=keys)
        told, turns_count = await turns_of_others(asked)
        assert [each.key for each in told.coordinators] == keys
        assert {each.error_code for each in told.coordinators} == {ErrorCode.none}
        assert turns_count >= 5


async def test_more_than_a_request_may_name_are_refused() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        keys = ["k"] * GROUPS_ASKED_MAX + ["more", "yet more"]
        told, turns_count = await turns_of_others(
            ask(services, API_KEY, 4, key_type=TRANSACTION, coordinator_keys=keys)
        )
        assert turns_count > 0
        errors = [each.error_code for each in told.coordinators]
        assert errors == [ErrorCode.none] * GROUPS_ASKED_MAX + [ErrorCode.invalid_request] * 2
        assert told.coordinators[-1].key == "yet more"
        assert told.coordinators[-1].error_message == "Ask for at most 10000 coordinators at once."


async def test_an_id_that_no_group_can_have_has_no_coordinator() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        longest = "ä" * (GROUP_ID_BYTES_MAX // 2)
        told = await ask(services, API_KEY, 4, key_type=GROUP, coordinator_keys=[longest, longest + "a"])
        assert [each.error_code for each in told.coordinators] == [ErrorCode.none, ErrorCode.invalid_group_id]
        assert (await ask(services, API_KEY, 0, key=longest + "a")).error_code is ErrorCode.invalid_group_id
        assert (await ask(services, API_KEY, 1, key_type=TRANSACTION, key=longest + "a")).error_code is ErrorCode.none
        assert (await ask(services, API_KEY, 1, key_type=SHARE, key="g")).error_code is ErrorCode.invalid_request
