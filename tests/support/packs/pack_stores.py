"""Stores of packs in a folder."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from storage.embedded.pack_store import PackStore
from tests.support.packs.simulated_disk import PackDisk

SMALL = 1_000
"""Bytes after which a pack is followed by another, here."""
FULL = b"f" * SMALL
"""An object that fills a pack."""
nonce_numbers = count(1)


def open_store(
    folder: Path, disk: PackDisk | None = None, *, pack_bytes_target: int = SMALL, is_writer: bool = True
) -> PackStore:
    return PackStore(
        folder,
        now_ms=lambda: 1_700_000_000_000,
        new_nonce=lambda: next(nonce_numbers).to_bytes(16, "big"),
        files=PackDisk() if disk is None else disk,
        pack_bytes_target=pack_bytes_target,
        is_writer=is_writer,
    )


@asynccontextmanager
async def opened(folder: Path, disk: PackDisk | None = None) -> AsyncIterator[PackStore]:
    """A store that is closed afterwards; nothing is complained of to the loop, and no descriptor is left."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    disk = PackDisk() if disk is None else disk
    store = open_store(folder, disk)
    try:
        yield store
    finally:
        await store.close()
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []
    assert disk.open == set()


async def contents(store: PackStore) -> dict[str, bytes]:
    return {meta.key: await store.get(meta.key) for meta in [meta async for meta in store.list("")]}
