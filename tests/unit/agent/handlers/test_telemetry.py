"""The requests about clients' metrics, from what a client says in ApiVersions to what it pushes."""

import asyncio
from datetime import timedelta

from agent.telemetry.client_info import ConnectedClient
from protocol.errors import ErrorCode
from tests.support.agent.data_paths import data_paths, services_of
from tests.support.handlers.handler_client import ask

API_VERSIONS, GET_SUBSCRIPTIONS, PUSH = 18, 71, 72


async def test_a_client_without_an_id_is_told_one_and_that_there_is_nothing_to_push() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        answer = await ask(services, GET_SUBSCRIPTIONS, 0, client_instance_id=None)
        again = await ask(services, GET_SUBSCRIPTIONS, 0, client_instance_id=answer.client_instance_id)
    assert answer.error_code is ErrorCode.none
    assert answer.client_instance_id is not None
    assert list(answer.accepted_compression_types) == [4, 3, 1, 2]
    assert answer.push_interval == timedelta(minutes=5)
    assert (answer.delta_temporality, answer.requested_metrics) == (True, ())
    assert answer.telemetry_max_bytes == services.telemetry.bytes_max
    assert again.error_code is ErrorCode.throttling_quota_exceeded


async def test_what_a_client_says_of_itself_is_known_to_its_later_requests() -> None:
    client = ConnectedClient()
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        for version, name in ((0, "unknown"), (3, "java")):
            said = {} if version == 0 else {"client_software_name": name, "client_software_version": "4.3.1"}
            await ask(services, API_VERSIONS, version, client, **said)
            assert client.software_name == name
        refused = {"client_software_name": "-", "client_software_version": "1"}
        await ask(services, API_VERSIONS, 3, client, **refused)
        assert (client.software_name, client.software_version) == ("java", "4.3.1")
        long = {"client_software_name": "j" * 5_000, "client_software_version": "1" * 5_000}
        await ask(services, API_VERSIONS, 3, client, **long)
    assert (len(client.software_name), len(client.software_version)) == (200, 200)


async def test_a_push_is_answered_with_how_it_went() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        asked = await ask(services, GET_SUBSCRIPTIONS, 0, client_instance_id=None)
        said = {"terminating": False, "compression_type": 0, "metrics": b""}
        codes = []
        for subscription in (asked.subscription_id, asked.subscription_id + 1):
            instance_id = asked.client_instance_id
            answer = await ask(services, PUSH, 0, client_instance_id=instance_id, subscription_id=subscription, **said)
            codes.append(answer.error_code)
    assert codes == [ErrorCode.none, ErrorCode.throttling_quota_exceeded]
