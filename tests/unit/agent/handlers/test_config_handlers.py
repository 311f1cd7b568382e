"""Configs altered, described and listed, as clients ask for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agent.handlers import describe_configs
from agent.request.services import Services
from coordinator.ledger.port import LedgerUnavailable
from protocol.errors import ErrorCode
from tests.support.agent.data_paths import data_paths, services_of
from tests.support.agent.ledger_parts import ManualClock
from tests.support.commands.commands import TOPIC
from tests.support.handlers.handler_client import ask

DESCRIBE, ALTER, INCREMENTAL, LIST = 32, 33, 44, 74
TOPIC_TYPE, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


@asynccontextmanager
async def serving() -> AsyncIterator[Services]:
    """An agent of node 1 with the topic `t`."""
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        yield services_of(paths, ManualClock(), tasks)


async def alter(
    services: Services, *resources: tuple[int, str, dict[str, str | None]], version: int = 1, dry: bool = False
) -> list[int]:
    """Sets configs, or deletes those that are None; the error codes."""
    rows = [
        {
            "resource_type": kind,
            "resource_name": name,
            "configs": [
                {"name": key, "config_operation": 1 if value is None else 0, "value": value}
                for key, value in configs.items()
            ],
        }
        for kind, name, configs in resources
    ]
    answer = await ask(services, INCREMENTAL, version, resources=rows, validate_only=dry)
    assert [(row.resource_type, row.resource_name) for row in answer.responses] == [each[:2] for each in resources]
    return [row.error_code for row in answer.responses]


async def described(
    services: Services, kind: int, name: str, *keys: str, version: int = 4
) -> tuple[int, dict[str, tuple[str, int]]]:
    """The error code, and values and sources by name."""
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys or None}
    answer = await ask(services, DESCRIBE, version, resources=[resource], include_synonyms=True)
    (result,) = answer.results
    return result.error_code, {row.name: (row.value, row.config_source) for row in result.configs}


@pytest.mark.parametrize("version", [0, 1])
async def test_each_resource_is_altered_by_itself(version: int) -> None:
    async with serving() as services:
        codes = await alter(
            services,
            (TOPIC_TYPE, "t", {"retention.ms": "5"}),
            (TOPIC_TYPE, "u", {"retention.ms": "5"}),
            (GROUP, "g", {"consumer.session.timeout.ms": "50000"}),
            (77, "x", {"a": "b"}),
            version=version,
        )
        assert codes == [
            ErrorCode.none,
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.none,
            ErrorCode.invalid_request,
        ]
        assert services.state.topics[TOPIC].configs["retention.ms"] == "5"
        assert services.state.group_configs == {"g": {"consumer.session.timeout.ms": "50000"}}


async def test_a_resource_that_is_named_twice_is_not_altered() -> None:
    async with serving() as services:
        topic: tuple[int, str, dict[str, str | None]] = (TOPIC_TYPE, "t", {"retention.ms": "5"})
        codes = await alter(services, topic, (BROKER, "", {"background.threads": "3"}), topic)
        assert codes == [ErrorCode.invalid_request, ErrorCode.none, ErrorCode.invalid_request]
        assert services.state.topics[TOPIC].configs == {"message.timestamp.type": "CreateTime"}


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_older_api_replaces_all_configs(version: int) -> None:
    async with serving() as services:
        await alter(services, (TOPIC_TYPE, "t", {"segment.ms": "9"}))
        row = {
            "resource_type": TOPIC_TYPE,
            "resource_name": "t",
            "configs": [{"name": "retention.ms", "value": "6"}],
        }
        for is_validate_only in (True, False):
            answer = await ask(services, ALTER, version, resources=[row], validate_only=is_validate_only)
            assert answer.responses[0].error_code is ErrorCode.none
            assert ("segment.ms" in services.state.topics[TOPIC].configs) is is_validate_only
        assert services.state.topics[TOPIC].configs == {"retention.ms": "6"}


async def test_a_value_that_is_null_is_an_invalid_request() -> None:
    async with serving() as services:
        row = {"resource_type": TOPIC_TYPE, "resource_name": "t", "configs": [{"name": "retention.ms", "value": None}]}
        answer = await ask(services, ALTER, 2, resources=[row], validate_only=False)
        assert answer.responses[0].error_code is ErrorCode.invalid_request


async def test_what_was_altered_is_described_with_its_source() -> None:
    async with serving() as services:
        await alter(services, (TOPIC_TYPE, "t", {"retention.ms": "5"}))
        await alter(services, (BROKER, "1", {"message.max.bytes": "7"}))
        await alter(services, (BROKER, "", {"message.max.bytes": "8", "log.segment.bytes": "2000000"}))
        await alter(services, (GROUP, "g", {"consumer.session.timeout.ms": "50000"}))
        await alter(services, (METRICS, "m", {"interval.ms": "100"}))
        names = ("retention.ms", "max.message.bytes", "segment.bytes", "no.such")
        assert await described(services, TOPIC_TYPE, "t", *names) == (
            ErrorCode.none,
            {"retention.ms": ("5", 1), "max.message.bytes": ("7", 2), "segment.bytes": ("2000000", 3)},
        )
        assert (await described(services, BROKER, "1", "message.max.bytes"))[1] == {"message.max.bytes": ("7", 2)}
        assert (await described(services, BROKER, ""))[1] == {
            "log.segment.bytes": ("2000000", 3),
            "message.max.bytes": ("8", 3),
        }
        assert (await described(services, BROKER, "", "no.such"))[1] == {}
        assert (await described(services, GROUP, "g"))[1]["consumer.session.timeout.ms"] == ("50000", 8)
        assert (await described(services, METRICS, "m"))[1] == {
            "interval.ms": ("100", 7),
            "match": ("", 5),
            "metrics": ("", 5),
        }


@pytest.mark.parametrize("version", [1, 2, 3, 4])
async def test_loggers_are_described_in_every_version(version: int) -> None:
    async with serving() as services:
        error_code, levels = await described(services, LOGGER, "1", "root", version=version)
        assert (error_code, list(levels)) == (ErrorCode.none, ["root"])
        assert levels["root"][1] == 6
        assert "agent.handlers" in (await described(services, LOGGER, "1", version=version))[1]


@pytest.mark.parametrize(
    ("kind", "name", "error_code"),
    [
        (TOPIC_TYPE, "u", ErrorCode.unknown_topic_or_partition),
        (TOPIC_TYPE, "a b", ErrorCode.invalid_topic_exception),
        (BROKER, "2", ErrorCode.invalid_request),
        (LOGGER, "", ErrorCode.invalid_request),
        (LOGGER, "2", ErrorCode.invalid_request),
        (GROUP, "", ErrorCode.invalid_request),
        (METRICS, "", ErrorCode.invalid_request),
        (77, "x", ErrorCode.invalid_request),
    ],
)
async def test_what_cannot_be_described_is_refused(kind: int, name: str, error_code: ErrorCode) -> None:
    async with serving() as services:
        assert await described(services, kind, name) == (error_code, {})


async def test_one_request_describes_no_more_than_an_answer_may_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe_configs, "CONFIG_RESOURCES_DESCRIBED_MAX", 2)
    async with serving() as services:
        resource = {"resource_type": TOPIC_TYPE, "resource_name": "t", "configuration_keys": None}
        answer = await ask(services, DESCRIBE, 4, resources=[resource] * 3, include_synonyms=False)
        assert [row.error_code for row in answer.results] == [0, 0, ErrorCode.policy_violation]
        assert not answer.results[2].configs


async def test_s4_while_the_ledger_is_away_nothing_is_reported_or_altered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away() -> None:
        raise LedgerUnavailable("away")

    async with serving() as services:
        monkeypatch.setattr(services.ledger, "barrier", away)
        assert await described(services, TOPIC_TYPE, "t") == (ErrorCode.request_timed_out, {})
        assert await alter(services, (TOPIC_TYPE, "t", {"retention.ms": "5"})) == [ErrorCode.request_timed_out]
        listed = await ask(services, LIST, 1, resource_types=())
        assert (listed.error_code, listed.config_resources) == (ErrorCode.request_timed_out, ())


class TestResources:
    async def listed(self, services: Services, *types: int) -> list[tuple[int, str]]:
        answer = await ask(services, LIST, 1, resource_types=types)
        assert answer.error_code is ErrorCode.none
        return [(row.resource_type, row.resource_name) for row in answer.config_resources]

    async def test_all_are_listed_that_have_configs_or_can_be_described(self) -> None:
        async with serving() as services:
            await alter(services, (GROUP, "g", {"consumer.session.timeout.ms": "50000"}))
            await alter(services, (METRICS, "m", {"interval.ms": "100"}))
            assert await self.listed(services) == [
                (TOPIC_TYPE, "t"),
                (BROKER, "1"),
                (LOGGER, "1"),
                (METRICS, "m"),
                (GROUP, "g"),
            ]
            assert await self.listed(services, GROUP, TOPIC_TYPE) == [(TOPIC_TYPE, "t"), (GROUP, "g")]

    async def test_the_first_version_lists_telemetry_subscriptions(self) -> None:
        async with serving() as services:
            await alter(services, (METRICS, "m", {"interval.ms": "100"}))
            answer = await ask(services, LIST, 0)
            assert [row.resource_name for row in answer.config_resources] == ["m"]

    async def test_an_unknown_type_is_unsupported(self) -> None:
        async with serving() as services:
            answer = await ask(services, LIST, 1, resource_types=(2, 99))
            assert (answer.error_code, answer.config_resources) == (ErrorCode.unsupported_version, ())
