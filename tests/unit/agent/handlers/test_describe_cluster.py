"""The cluster's agents are told, and those that drain to who asks for them."""

import asyncio

import pytest

from coordinator.commands.commands import StartDrain
from protocol.errors import ErrorCode
from tests.support.agent.data_paths import another_agent, data_paths, services_of
from tests.support.handlers.handler_client import ask

DESCRIBE_CLUSTER = 60
BROKERS, CONTROLLERS = 1, 2


async def test_an_agent_that_drains_is_told_as_fenced_to_who_asks() -> None:
    async with data_paths() as paths, another_agent(paths, "b") as other, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        await other.parts.ledger.propose(StartDrain(session=other.parts.ledger.session))
        await services.ledger.barrier()
        told = {}
        for is_wanted in (False, True):
            answer = await ask(
                services,
                DESCRIBE_CLUSTER,
                2,
                include_cluster_authorized_operations=False,
                endpoint_type=BROKERS,
                include_fenced_brokers=is_wanted,
            )
            told[is_wanted] = [(broker.broker_id, broker.is_fenced) for broker in answer.brokers]
    assert told == {False: [(1, False)], True: [(1, False), (ord("b"), True)]}


@pytest.mark.parametrize(
    ("endpoint_type", "error_code"),
    [
        (BROKERS, ErrorCode.none),
        (CONTROLLERS, ErrorCode.mismatched_endpoint_type),
        (3, ErrorCode.unsupported_endpoint_type),
    ],
)
async def test_there_are_no_controllers_to_be_asked_about(endpoint_type: int, error_code: ErrorCode) -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        answer = await ask(
            services,
            DESCRIBE_CLUSTER,
            1,
            include_cluster_authorized_operations=False,
            endpoint_type=endpoint_type,
        )
    assert answer.error_code is error_code
    assert bool(answer.brokers) is (error_code is ErrorCode.none)
