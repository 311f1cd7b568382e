"""Every API of the table has one handler, and the codec is around it."""

import pkgutil
from importlib import import_module

import pytest

import agent.handlers
from agent.handlers.rejected_requests import REJECTIONS
from agent.server.dispatch import HANDLERS, RAW
from protocol.api_versions import API_VERSIONS, range_of
from protocol.errors import MalformedRequest
from tests.support.handlers.byte_requests import request
from tests.support.handlers.handler_client import handled
from tests.support.handlers.stalled_ledger import Impatient, stalled


def test_every_api_that_clients_see_has_a_handler() -> None:
    assert set(HANDLERS) == {int(row.api_key) for row in API_VERSIONS}


def test_no_two_handlers_have_the_same_api() -> None:
    modules = [import_module(f"agent.handlers.{found.name}") for found in pkgutil.iter_modules(agent.handlers.__path__)]
    keys = [module.API_KEY for module in modules if hasattr(module, "API_KEY")]
    keys += [rejection.api_key for rejection in REJECTIONS]
    assert len(keys) == len(set(keys)) == len(HANDLERS)


def test_the_table_of_rejections_has_the_versions_that_are_served() -> None:
    for rejection in REJECTIONS:
        row = range_of(rejection.api_key)
        assert row is not None
        assert rejection.versions == f"{row.version_min}-{row.version_max}", row.name


@pytest.mark.parametrize("api_key", sorted(set(HANDLERS) - RAW))
async def test_a_body_that_cannot_be_decoded_closes_the_connection(api_key: int) -> None:
    row = range_of(api_key)
    assert row is not None
    async with stalled(Impatient()) as services:
        with pytest.raises(MalformedRequest):
            await handled(services, request(api_key, row.version_max, b""))


async def test_bytes_behind_a_body_are_ignored() -> None:
    async with stalled(Impatient()) as services:
        plain = await handled(services, request(17, 0, b"\0\5PLAIN"))
        assert await handled(services, request(17, 0, b"\0\5PLAIN" + b"more")) == plain


async def test_a_decoded_request_releases_its_bytes() -> None:
    sent = request(17, 0, b"\0\5PLAIN")
    async with stalled(Impatient()) as services:
        await handled(services, sent)
    assert not sent.frame.body
