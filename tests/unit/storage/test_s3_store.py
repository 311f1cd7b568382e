"""Settings of the S3 store, and errors told apart. What it does with a bucket: tests/contract/test_object_store.py."""

import pytest

from storage.object_store import StoreMisconfigured, StoreUnavailable
from storage.s3_settings import S3Settings
from storage.s3_store import S3Store
from tests.services import Minio


def test_the_usual_variables_lead_to_the_bucket() -> None:
    settings = S3Settings.from_environment(
        "s3://orders/some/prefix/",
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000/", "AWS_ALLOW_HTTP": "true", "AWS_DEFAULT_REGION": "eu-west-1"},
    )
    assert (settings.bucket, settings.prefix, settings.region) == ("orders", "some/prefix", "eu-west-1")
    assert settings.bucket_url == "http://127.0.0.1:9000/orders"


def test_without_an_endpoint_it_is_amazons() -> None:
    assert S3Settings.from_environment("s3://orders", {}).bucket_url == "https://s3.us-east-1.amazonaws.com/orders"


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9000", "127.0.0.1:9000", "ftp://x"])
def test_an_address_without_encryption_is_refused_unless_allowed(endpoint: str) -> None:
    with pytest.raises(StoreMisconfigured):
        S3Settings.from_environment("s3://orders", {"AWS_ENDPOINT_URL": endpoint})


@pytest.mark.parametrize("url", ["orders", "s3://", "s3://a?b=c", "https://orders"])
def test_what_is_no_bucket_is_refused(url: str) -> None:
    with pytest.raises(StoreMisconfigured):
        S3Settings.from_environment(url, {})


async def test_a_missing_bucket_is_a_matter_of_configuration(minio: Minio) -> None:
    store = S3Store(S3Settings.from_environment("s3://no-such-bucket", minio.settings))
    with pytest.raises(StoreMisconfigured, match="NoSuchBucket"):
        await store.get("a")
    with pytest.raises(StoreMisconfigured, match="NoSuchBucket"):
        [meta async for meta in store.list("")]


async def test_wrong_credentials_are_a_matter_of_configuration(minio: Minio) -> None:
    environment = {**minio.settings, "AWS_SECRET_ACCESS_KEY": "wrong"}
    store = S3Store(S3Settings.from_environment(f"s3://{minio.make_bucket('guarded')}", environment))
    with pytest.raises(StoreMisconfigured, match="SignatureDoesNotMatch"):
        await store.put("a", [b"x"])


async def test_a_server_that_is_away_may_come_back() -> None:
    environment = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ALLOW_HTTP": "1"}
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    store = S3Store(S3Settings.from_environment("s3://orders", environment | keys))
    with pytest.raises(StoreUnavailable):
        await store.put("a", [b"x"])
    with pytest.raises(StoreUnavailable):
        await store.server_time_ms()
