"""No feature has a level to be changed."""

import asyncio
from collections.abc import Mapping

import pytest

from protocol.errors import ErrorCode
from tests.property.kio_bytes import KioEntity
from tests.unit.agent.data_paths import data_paths, services_of
from tests.unit.agent.handlers.asking import TIMEOUT, ask

UPDATE_FEATURES = 57


async def updated(version: int, *updates: Mapping[str, object]) -> KioEntity:
    more = {} if version == 0 else {"validate_only": True}
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        return await ask(services, UPDATE_FEATURES, version, timeout=TIMEOUT, feature_updates=list(updates), **more)


def update(version: int, feature: str, level: int, upgrade_type: int = 1) -> Mapping[str, object]:
    how = {"allow_downgrade": False} if version == 0 else {"upgrade_type": upgrade_type}
    return {"feature": feature, "max_version_level": level, **how}


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_first_feature_that_cannot_be_had_decides_the_answer(version: int) -> None:
    answer = await updated(version, update(version, "off", 0), update(version, "group.version", 1))
    assert answer.error_code is ErrorCode.invalid_update_version
    assert answer.error_message == (
        "Invalid update version 1 for feature group.version. No agent supports this feature."
    )
    if version < 2:
        assert answer.results == ()


@pytest.mark.parametrize(("level", "upgrade_type"), [(-1, 1), (0, 0), (0, 4)])
async def test_what_cannot_be_meant_is_refused(level: int, upgrade_type: int) -> None:
    answer = await updated(1, update(1, "group.version", level, upgrade_type))
    assert answer.error_code is ErrorCode.invalid_update_version


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_feature_that_is_off_may_be_turned_off(version: int) -> None:
    answer = await updated(version, update(version, "group.version", 0, 2))
    assert (answer.error_code, answer.error_message) == (ErrorCode.none, None)
    if version < 2:
        assert [(result.feature, result.error_code) for result in answer.results] == [("group.version", ErrorCode.none)]
