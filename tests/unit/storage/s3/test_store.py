"""Settings of the S3 store, and errors told apart. What it does with a bucket: tests/contract/test_object_store.py."""

import subprocess
import sys
import time

import pytest

from storage.decorators.retrying import RetryingStore, RetryPolicy, RetryPorts
from storage.object_store import StoreMisconfigured, StoreUnavailable
from storage.s3.settings import S3Settings
from storage.s3.store import S3Store
from tests.support.services.local_services import Minio
from tests.support.services.unconditional_s3 import unconditional_s3
from tools.steps import ROOT


async def _refused(pause_s: float) -> None:
    raise AssertionError(f"a pause of {pause_s} s: it was asked again")


NO_PAUSES = RetryPorts(monotonic_s=time.monotonic, sleep=_refused, chance=lambda: 1.0)


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


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("lake//x", "lake//x"),
        ("lake/../x", "lake/../x"),
        ("lake/./x", "lake/./x"),
        ('lake/"a\\\n\nb', r"lake/\"a\\\n\nb"),
        ("lake/a\x7f", r"lake/a\u{7f}"),
    ],
)
async def test_a_key_that_the_client_library_cannot_list_is_named_at_once(key: str, shown: str) -> None:
    """Its page and what is behind it cannot be had, so that it must go; the network is not to blame."""
    with unconditional_s3() as server:
        inner = S3Store(S3Settings.from_environment("s3://orders", server.settings))
        store = RetryingStore(inner, policy=RetryPolicy(), ports=NO_PAUSES)
        server.objects |= {"orders/lake/a": b"1", f"orders/{key}": b"2", "orders/ledger/b": b"3"}
        with pytest.raises(StoreMisconfigured) as raised:
            [meta async for meta in store.list("lake/")]
        assert f'the key "{shown}"' in str(raised.value)
        assert "delete it" in str(raised.value)
        assert "connection" not in str(raised.value)
        assert [meta.key async for meta in store.list("ledger/")] == ["ledger/b"]
        del server.objects[f"orders/{key}"]
        assert [meta.key async for meta in store.list("lake/")] == ["lake/a"]


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("https://s3.example.net:9000", "https://orders.s3.example.net:9000"),
        ("https://orders.s3.example.net", "https://orders.s3.example.net"),
        (None, "https://orders.s3.us-east-1.amazonaws.com"),
    ],
)
def test_the_bucket_may_stand_in_the_host_s_name(endpoint: str | None, url: str) -> None:
    environment = {"AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"} | ({"AWS_ENDPOINT_URL": endpoint} if endpoint else {})
    assert S3Settings.from_environment("s3://orders/p", environment).bucket_url == url


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"AWS_ACCESS_KEY_ID": "a"}, "AWS_SECRET_ACCESS_KEY is not set"),
        ({"AWS_SECRET_ACCESS_KEY": "b"}, "AWS_ACCESS_KEY_ID is not set"),
        ({"AWS_SERVER_SIDE_ENCRYPTION": "sse-c"}, "must be one of AES256"),
        ({"AWS_SSE_KMS_KEY_ID": "key"}, "AWS_SERVER_SIDE_ENCRYPTION=aws:kms"),
        ({"AWS_CA_BUNDLE": "/nowhere/at/all.pem"}, "AWS_CA_BUNDLE=/nowhere/at/all.pem is no file"),
    ],
)
def test_variables_that_do_not_go_together_are_named(environment: dict[str, str], words: str) -> None:
    with pytest.raises(StoreMisconfigured, match=words):
        S3Settings.from_environment("s3://orders", environment)


def test_a_session_token_without_its_keys_is_not_used() -> None:
    assert S3Settings.from_environment("s3://orders", {"AWS_SESSION_TOKEN": "left over"}).session_token is None


def test_the_chain_s_library_is_not_loaded_where_keys_are_given() -> None:
    """A start must not pay for it."""
    program = (
        "import os, sys; from storage.s3.settings import S3Settings; from storage.s3.store import S3Store; "
        "S3Store(S3Settings.from_environment('s3://orders', os.environ)); sys.exit('botocore' in sys.modules)"
    )
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "eu-west-1"}
    assert subprocess.run([sys.executable, "-c", program], env=keys, cwd=ROOT, check=False, timeout=60).returncode == 0
