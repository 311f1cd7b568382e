"""Ledgers that several processes share tell whose session has ended."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.support.ledger.backends import BACKENDS, Backend


@pytest.fixture(params=["etcd-3.6", "memory"])
async def shared(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    backend = BACKENDS[request.param]()
    await backend.open(tmp_path, request)
    yield backend
    await backend.ledger.close()


async def test_a_session_that_ends_by_itself_or_is_closed_is_told_by_its_name(shared: Backend) -> None:
    ledger = shared.ledger
    async with asyncio.timeout(30), aclosing(ledger.released_names()) as names:
        told = asyncio.ensure_future(anext(names))
        number = 0
        while not told.done():  # what ends before the watch has begun is not told
            number += 1
            session = await ledger.open_session(f"early/{number}")
            await shared.end(session)
            await asyncio.wait([told], timeout=0.05)
        assert (await told).startswith("early/")
        last = await ledger.open_session("last")
        await ledger.close_session(last)
        assert [name async for name in _until(names, "last")][-1] == "last"
        kept = await ledger.open_session("kept")
        assert not await ledger.is_session_ended("kept", kept)


async def _until(names: AsyncIterator[str], last: str) -> AsyncIterator[str]:
    async for name in names:
        yield name
        if name == last:
            return
