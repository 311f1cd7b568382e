"""FindCoordinator: whose group or transactional id it is, for as many as one request may name."""

import asyncio

from agent.handlers.find_coordinator import API_KEY
from coordinator.state.rendezvous import owner_of
from protocol.errors import ErrorCode
from protocol.limits import GROUP_ID_BYTES_MAX, GROUPS_ASKED_MAX, GROUPS_PER_TURN
from tests.support.agent.data_paths import another_agent, data_paths, services_of
from tests.support.handlers.handler_client import ask, turns_of_others

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


async def test_a_transactional_id_has_one_coordinator_whoever_is_asked() -> None:
    keys = [f"id-{number}" for number in range(50)]
    async with data_paths() as paths, another_agent(paths) as others, asyncio.TaskGroup() as tasks:
        await paths.parts.ledger.barrier()
        told = [
            await ask(
                services_of(each, each.parts.clock, tasks), API_KEY, 4, key_type=TRANSACTION, coordinator_keys=keys
            )
            for each in (paths, others)
        ]
        sessions = paths.parts.ledger.state.sessions
        owners = [owner_of(b"transaction " + key.encode(), sessions) for key in keys]
        nodes = [None if owner is None else sessions[owner].node_id for owner in owners]
        assert len(set(nodes)) == 2
        for answer in told:
            assert [each.node_id for each in answer.coordinators] == nodes
