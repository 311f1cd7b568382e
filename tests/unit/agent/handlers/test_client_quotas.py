"""Quotas are set and described."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from agent.request.services import Services
from coordinator.ledger.port import LedgerUnavailable
from protocol.errors import ErrorCode
from tests.support.agent.data_paths import data_paths, services_of
from tests.support.agent.ledger_parts import ManualClock
from tests.support.handlers.handler_client import ask
from tests.support.handlers.stalled_ledger import Impatient, stalled

DESCRIBE, ALTER = 48, 49
Entity = dict[str, str | None]


@asynccontextmanager
async def serving() -> AsyncIterator[Services]:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        yield services_of(paths, ManualClock(), tasks)


async def alter(
    services: Services, *entries: tuple[Entity, list[tuple[str, float | None]]], version: int = 1, dry: bool = False
) -> list[tuple[int, list[tuple[str, str | None]]]]:
    """Sets quotas, or removes those that are None; error codes with the entities that they are about."""
    rows = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
            "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in quotas],
        }
        for entity, quotas in entries
    ]
    answer = await ask(services, ALTER, version, entries=rows, validate_only=dry)
    return [(row.error_code, [(each.entity_type, each.entity_name) for each in row.entity]) for row in answer.entries]


async def described(services: Services, *components: tuple[str, int, str | None], version: int = 1) -> object:
    rows = [{"entity_type": kind, "match_type": match, "match": name} for kind, match, name in components]
    answer = await ask(services, DESCRIBE, version, components=rows, strict=False)
    if answer.error_code is not ErrorCode.none:
        assert answer.entries is None
        return answer.error_code
    return [
        ({each.entity_type: each.entity_name for each in row.entity}, {each.key: each.value for each in row.values})
        for row in answer.entries
    ]


ANN: Entity = {"user": "ann"}
BOTH: Entity = {"user": None, "client-id": "c"}


@pytest.mark.parametrize("version", [0, 1])
async def test_what_is_set_is_described_until_it_is_removed(version: int) -> None:
    async with serving() as services:
        told = await alter(
            services,
            (ANN, [("producer_byte_rate", 1024.0), ("request_percentage", 12.5)]),
            (BOTH, [("consumer_byte_rate", 1.0)]),
            version=version,
        )
        assert told == [(ErrorCode.none, [("user", "ann")]), (ErrorCode.none, [("client-id", "c"), ("user", None)])]
        assert await described(services, version=version) == [
            (BOTH, {"consumer_byte_rate": 1.0}),
            (ANN, {"producer_byte_rate": 1024.0, "request_percentage": 12.5}),
        ]
        assert await described(services, ("user", 0, "ann")) == [
            (ANN, {"producer_byte_rate": 1024.0, "request_percentage": 12.5})
        ]
        await alter(services, (ANN, [("producer_byte_rate", None), ("request_percentage", None)]), (BOTH, []))
        assert await described(services) == [(BOTH, {"consumer_byte_rate": 1.0})]


async def test_a_request_that_only_validates_sets_nothing() -> None:
    async with serving() as services:
        assert (await alter(services, (ANN, [("producer_byte_rate", 1.0)]), dry=True))[0][0] is ErrorCode.none
        assert (await alter(services, (ANN, [("producer_byte_rate", -1.0)]), dry=True))[0][0] == 42
        assert services.state.client_quotas == {}


async def test_one_that_cannot_be_is_refused_and_the_others_are_set() -> None:
    async with serving() as services:
        told = await alter(
            services,
            ({"planet": "earth"}, [("producer_byte_rate", 1.0)]),
            (ANN, [("producer_byte_rate", 1.0)]),
            ({"ip": "::1"}, [("producer_byte_rate", 1.0)]),
            (BOTH, [("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)]),
        )
        assert [code for code, _ in told] == [42, 0, 42, 42]
        assert services.state.client_quotas == {(("user", "ann"),): {"producer_byte_rate": 1.0}}


async def test_an_entity_that_is_named_twice_is_not_altered_and_told_once() -> None:
    async with serving() as services:
        entry: tuple[Entity, list[tuple[str, float | None]]] = (ANN, [("producer_byte_rate", 1.0)])
        assert await alter(services, entry, entry) == [(ErrorCode.invalid_request, [("user", "ann")])]
        assert services.state.client_quotas == {}


async def test_filters_that_make_no_sense_are_refused() -> None:
    async with serving() as services:
        assert await described(services, ("planet", 0, "earth")) is ErrorCode.unsupported_version
        assert await described(services, ("user", 0, None)) is ErrorCode.invalid_request


async def test_s4_while_the_ledger_is_away_nothing_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away() -> None:
        raise LedgerUnavailable("away")

    async with serving() as services:
        monkeypatch.setattr(services.ledger, "barrier", away)
        assert await described(services) is ErrorCode.request_timed_out


async def test_a_ledger_that_does_not_answer_in_time_is_told() -> None:
    async with stalled(Impatient()) as services:
        assert (await alter(services, (ANN, [("producer_byte_rate", 1.0)])))[0][0] == ErrorCode.request_timed_out
