"""The ledger under contract test: one fixture, every backend."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coordinator.ledger.port import Ledger
from tests.support.ledger.backends import BACKENDS, Backend


@pytest.fixture(params=sorted(BACKENDS))
async def backend(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    opened = BACKENDS[request.param]()
    await opened.open(tmp_path, request)
    yield opened
    await opened.close()


@pytest.fixture
async def ledger(backend: Backend) -> Ledger:
    return backend.ledger
