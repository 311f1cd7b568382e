"""What an agent puts into its bucket, a job without a broker reads out of it, whatever the bucket is."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from iceberg_export.spark.bucket import Bucket
from storage.decorators.routed import RoutedStore
from storage.embedded.local_store import LocalStore
from storage.memory_store import MemoryStore
from storage.object_store import ObjectMissing, ObjectStore
from storage.refs import INTAKE_PREFIX, TAIL_KEY
from storage.s3.settings import S3Settings
from storage.s3.store import S3Store
from tests.support.lake.tail_reading import fresh_bucket
from tests.support.services.local_services import Minio
from tests.support.stores.contract_stores import bucket_numbers, journal_store, with_packs

Place = tuple[ObjectStore, Callable[[], Bucket]]


def in_memory(folder: Path, request: pytest.FixtureRequest) -> Place:
    store = MemoryStore()
    return store, lambda: Bucket(store)


def embedded(folder: Path, request: pytest.FixtureRequest) -> Place:
    return with_packs(folder), lambda: fresh_bucket(folder.as_uri(), {})


async def embedded_with_a_journal(folder: Path, request: pytest.FixtureRequest) -> Place:
    intake = await journal_store(folder / "journal")
    store = RoutedStore(INTAKE_PREFIX, intake, LocalStore(folder / "store"))
    return store, lambda: fresh_bucket((folder / "store").as_uri(), {})


def on_s3(folder: Path, request: pytest.FixtureRequest) -> Place:
    minio = request.getfixturevalue("minio")
    assert isinstance(minio, Minio)
    url = f"s3://{minio.make_bucket(f'tail-{next(bucket_numbers)}')}/some/prefix"
    return S3Store(S3Settings.from_environment(url, minio.settings)), lambda: fresh_bucket(url, minio.settings)


@pytest.fixture(params=[in_memory, embedded, embedded_with_a_journal, on_s3])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[ObjectStore, Bucket]]:
    made = request.param(tmp_path, request)
    store, opened = await made if isinstance(made, Awaitable) else made
    reader: Bucket = opened()
    yield store, reader
    reader.close()
    await store.close()


async def test_what_an_agent_puts_is_read_while_it_goes_on(place: tuple[ObjectStore, Bucket]) -> None:
    store, reader = place
    keys = [TAIL_KEY, "lake/t/data/1.parquet", *(f"intake/{1:016x}/{number:016x}" for number in range(3))]
    for number, key in enumerate(keys):
        with pytest.raises(ObjectMissing):
            await asyncio.to_thread(reader.get, key)
        content = bytes([number]) * 100 + b"end"
        await store.put(key, [content[:50], content[50:]])
        assert await asyncio.to_thread(reader.get, key) == content
        assert await asyncio.to_thread(reader.get_range, key, 98, 4) == content[98:102]
    await store.put(TAIL_KEY, [b"another"])
    assert await asyncio.to_thread(reader.get, TAIL_KEY) == b"another"
