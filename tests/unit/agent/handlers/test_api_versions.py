"""A client names itself as KIP-511 allows, and is told how to speak of transactions (KIP-584, KIP-890)."""

import asyncio

import pytest

from agent.handlers.api_versions import API_KEY
from coordinator.commands.transaction import SetTransactionVersion
from tests.support.agent.data_paths import data_paths, services_of
from tests.support.handlers.handler_client import ask
from tests.support.records.kio_messages import KioEntity
from txn.transaction_requests import V2_VERSIONS


async def told(version: int, level: int | None = None) -> KioEntity:
    """The answer, after the level was set."""
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        if level is not None:
            await services.ledger.propose(SetTransactionVersion(level=level))
        said = {"client_software_name": "me", "client_software_version": "1"}
        return await ask(services, API_KEY, version, **said)


@pytest.mark.parametrize("version", [3, 4])
async def test_clients_are_told_the_level_of_transactions(version: int) -> None:
    answer = await told(version)
    levels = [(each.name, each.min_version_level, each.max_version_level) for each in answer.finalized_features]
    assert levels == [("transaction.version", 2, 2)]
    assert answer.finalized_features_epoch == 0


async def test_a_level_that_was_lowered_is_told_with_an_epoch_that_rose() -> None:
    answer = await told(4, level=1)
    assert [each.max_version_level for each in answer.finalized_features] == [1]
    assert answer.finalized_features_epoch == 1
    assert (await told(4, level=0)).finalized_features == ()


async def test_features_that_begin_at_level_zero_are_told_from_version_four_on() -> None:
    assert (await told(3)).supported_features == ()
    (feature,) = (await told(4)).supported_features
    assert (feature.name, feature.min_version, feature.max_version) == ("transaction.version", 0, 2)


async def test_what_clients_of_the_second_level_need_is_served_altogether() -> None:
    served = {each.api_key: each.max_version for each in (await told(4)).api_keys}
    assert all(served.get(api_key, -1) >= version for api_key, version in V2_VERSIONS.items())


async def test_an_answer_that_is_kept_is_not_given_after_the_level_has_changed() -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        said = {"client_software_name": "me", "client_software_version": "1"}
        before = await ask(services, API_KEY, 4, **said)
        assert await ask(services, API_KEY, 4, **said) == before
        await services.ledger.propose(SetTransactionVersion(level=1))
        (feature,) = (await ask(services, API_KEY, 4, **said)).finalized_features
        assert feature.max_version_level == 1
