"""Keys of a real MinIO that the catalog hands out: they read one table's files and can do nothing besides."""

from collections.abc import Callable

import pytest

from agent.config.settings import CliCommand, load_settings
from agent.http.iceberg.catalog_config import catalog_parts
from agent.runtime.clock import SystemClock
from storage.object_store import ObjectMissing, StoreDenied, StoreError
from storage.s3.settings import S3Settings
from storage.s3.store import S3Store
from tests.support.services.local_services import Minio

FOLDER, OTHER = "lake/orders-00ff/", "lake/orders-00ff0/"
KEY = f"{FOLDER}data/1-1.parquet"
Attempt = Callable[[S3Store], object]


@pytest.fixture(scope="module", params=["a/prefix", ""])
def store_url(request: pytest.FixtureRequest, minio: Minio) -> str:
    bucket = minio.make_bucket(f"vended-{len(request.param)}")
    return f"s3://{bucket}/{request.param}"


@pytest.fixture
async def own(store_url: str, minio: Minio) -> S3Store:
    """The agent's own access, and objects of two tables."""
    store = S3Store(S3Settings.from_environment(store_url, minio.settings))
    for key in (KEY, f"{OTHER}data/1-1.parquet", "intake/1/1"):
        await store.put(key, [key.encode()])
    return store


@pytest.fixture
async def vended(store_url: str, minio: Minio, own: S3Store) -> S3Store:
    """Access by the keys that engines get for the table."""
    options = {"ledger": "memory:", "store": store_url, "catalog-vended-credentials": "sts"}
    settings = load_settings(CliCommand.AGENT, options, environment=minio.settings)
    parts = catalog_parts(settings, SystemClock(), minio.settings)
    assert parts.credentials is not None
    keys = await parts.credentials.of_folder(FOLDER, "CN=alice, O=example")
    assert keys.access_key_id != minio.access_key
    environment = {
        **minio.settings,
        "AWS_ACCESS_KEY_ID": keys.access_key_id,
        "AWS_SECRET_ACCESS_KEY": keys.secret_access_key,
        "AWS_SESSION_TOKEN": keys.session_token,
    }
    return S3Store(S3Settings.from_environment(store_url, environment))


async def test_they_read_and_list_the_tables_files(vended: S3Store) -> None:
    assert await vended.get(KEY) == KEY.encode()
    assert await vended.get_range(KEY, 0, 4) == b"lake"
    assert (await vended.head(KEY)).size_bytes == len(KEY)
    assert [meta.key async for meta in vended.list(FOLDER)] == [KEY]


@pytest.mark.parametrize("key", [f"{OTHER}data/1-1.parquet", "intake/1/1", "cluster.json"])
async def test_they_read_nothing_else(vended: S3Store, key: str) -> None:
    with pytest.raises(StoreError) as caught:
        await vended.get(key)
    assert not isinstance(caught.value, ObjectMissing)


@pytest.mark.parametrize("prefix", [OTHER, "lake/", "intake/", ""])
async def test_they_list_nothing_else(vended: S3Store, prefix: str) -> None:
    with pytest.raises(StoreDenied):
        _ = [meta async for meta in vended.list(prefix)]


async def test_they_write_and_delete_nothing(vended: S3Store, own: S3Store) -> None:
    for key in (KEY, f"{FOLDER}metadata/mine.avro", "intake/1/2"):
        with pytest.raises(StoreDenied):
            await vended.put(key, [b"mine"])
    for key in (KEY, "intake/1/1"):
        with pytest.raises(StoreError):
            await vended.delete([key])
    assert {meta.key async for meta in own.list("")} == {KEY, f"{OTHER}data/1-1.parquet", "intake/1/1"}
    assert await own.get(KEY) == KEY.encode()
