"""transaction.version can be raised and lowered; no other feature has a level to be changed."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest

from coordinator.ledger.port import LedgerUnavailable
from protocol.errors import ErrorCode
from tests.support.agent.data_paths import data_paths, services_of
from tests.support.handlers.handler_client import TIMEOUT, ask
from tests.support.records.kio_messages import KioEntity

UPDATE_FEATURES = 57
API_VERSIONS = 18
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
LEVELS = "transaction.version"


@dataclass(frozen=True)
class Told:
    answers: Sequence[KioEntity]
    level: int
    epoch: int


async def updated(version: int, *requests: Sequence[Mapping[str, object]], is_validate_only: bool = False) -> Told:
    """What the requests are answered, one after the other, and what clients are told then."""
    more = {} if version == 0 else {"validate_only": is_validate_only}
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        answers = [
            await ask(services, UPDATE_FEATURES, version, timeout=TIMEOUT, feature_updates=list(updates), **more)
            for updates in requests
        ]
        said = {"client_software_name": "me", "client_software_version": "1"}
        told = await ask(services, API_VERSIONS, 4, **said)
        levels = {feature.name: feature.max_version_level for feature in told.finalized_features}
        return Told(answers, levels.get(LEVELS, 0), told.finalized_features_epoch)


def update(version: int, feature: str, level: int, upgrade_type: int = UPGRADE) -> Mapping[str, object]:
    how = {"allow_downgrade": upgrade_type != UPGRADE} if version == 0 else {"upgrade_type": upgrade_type}
    return {"feature": feature, "max_version_level": level, **how}


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_first_feature_that_cannot_be_had_decides_the_answer(version: int) -> None:
    lowered = update(version, LEVELS, 1, SAFE_DOWNGRADE)
    told = await updated(version, [lowered, update(version, "off", 0), update(version, "group.version", 1)])
    (answer,) = told.answers
    assert answer.error_code is ErrorCode.invalid_update_version
    assert answer.error_message == (
        "Invalid update version 1 for feature group.version. No agent supports this feature."
    )
    if version < 2:
        assert answer.results == ()
    assert told.level == 2


@pytest.mark.parametrize(("level", "upgrade_type"), [(-1, 1), (0, 0), (0, 4)])
async def test_what_cannot_be_meant_is_refused(level: int, upgrade_type: int) -> None:
    (answer,) = (await updated(1, [update(1, "group.version", level, upgrade_type)])).answers
    assert answer.error_code is ErrorCode.invalid_update_version


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_feature_that_is_off_may_be_turned_off(version: int) -> None:
    (answer,) = (await updated(version, [update(version, "group.version", 0)])).answers
    assert (answer.error_code, answer.error_message) == (ErrorCode.none, None)
    if version < 2:
        assert [(result.feature, result.error_code) for result in answer.results] == [("group.version", ErrorCode.none)]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_transaction_version_is_lowered_and_raised_and_clients_see_that_it_changed(version: int) -> None:
    lowered = await updated(version, [update(version, LEVELS, 0, SAFE_DOWNGRADE)])
    assert (lowered.answers[0].error_code, lowered.level, lowered.epoch) == (ErrorCode.none, 0, 1)
    raised = await updated(
        version,
        [update(version, LEVELS, 1, SAFE_DOWNGRADE)],
        [update(version, LEVELS, 2)],
        [update(version, LEVELS, 2)],
    )
    assert [answer.error_code for answer in raised.answers] == [ErrorCode.none] * 3
    assert (raised.level, raised.epoch) == (2, 2)


@pytest.mark.parametrize(
    ("level", "upgrade_type", "reason"),
    [
        (1, UPGRADE, "Can't downgrade the version of this feature without setting the upgrade type to a downgrade."),
        (3, UPGRADE, "Agents support the versions 0-2."),
    ],
)
async def test_a_change_that_is_not_meant_so_is_refused(level: int, upgrade_type: int, reason: str) -> None:
    told = await updated(1, [update(1, LEVELS, level, upgrade_type)])
    assert told.answers[0].error_code is ErrorCode.invalid_update_version
    assert told.answers[0].error_message == f"Invalid update version {level} for feature {LEVELS}. {reason}"
    assert (told.level, told.epoch) == (2, 0)


async def test_nobody_downgrades_to_a_newer_version() -> None:
    told = await updated(1, [update(1, LEVELS, 0, UNSAFE_DOWNGRADE)], [update(1, LEVELS, 1, SAFE_DOWNGRADE)])
    assert [answer.error_code for answer in told.answers] == [ErrorCode.none, ErrorCode.invalid_update_version]
    assert told.level == 0


async def test_what_is_only_validated_changes_nothing() -> None:
    told = await updated(1, [update(1, LEVELS, 1, SAFE_DOWNGRADE)], is_validate_only=True)
    assert (told.answers[0].error_code, told.level, told.epoch) == (ErrorCode.none, 2, 0)


async def test_s4_a_level_is_not_judged_by_what_may_be_old(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away() -> None:
        raise LedgerUnavailable("away")

    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        monkeypatch.setattr(services.ledger, "barrier", away)
        answer = await ask(services, UPDATE_FEATURES, 1, timeout=TIMEOUT, feature_updates=[update(1, LEVELS, 2)])
    assert answer.error_code is ErrorCode.request_timed_out
