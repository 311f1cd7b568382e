"""Bytes are counted by whether client and agent are in one zone."""

import asyncio

import pytest

from agent.request.zone_traffic import count_zone_bytes
from tests.support.agent.data_paths import data_paths, services_of
from tests.support.handlers.byte_requests import request


@pytest.mark.parametrize(
    ("own", "client_id", "rack", "same"),
    [
        ("a", "zone=a", "", "yes"),
        ("a", "", "a", "yes"),
        ("a", "zone=b,x", "", "no"),
        ("a", "zone=a", "b", "no"),
        ("a", "x", "", "unknown"),
        (None, "zone=a", "", "unknown"),
    ],
)
async def test_a_zone_is_named_by_rack_or_client_id(own: str | None, client_id: str, rack: str, same: str) -> None:
    async with data_paths() as paths, asyncio.TaskGroup() as tasks:
        services = services_of(paths, paths.parts.clock, tasks)
        services.state.sessions[services.ledger.session].zone = own
        asked = request(1, 12, b"")
        asked.frame.client_id = client_id
        count_zone_bytes(services, asked, "out", 100, rack)
        count_zone_bytes(services, asked, "out", 0, rack)
        text = paths.parts.metrics.exposition().decode()
    assert f'penstock_zone_bytes_total{{direction="out",same_zone="{same}"}} 100.0' in text
    assert text.count("penstock_zone_bytes_total{") == 1
