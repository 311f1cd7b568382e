"""Signed URLs are those that botocore makes for the same request, and no secret is shown."""

from datetime import UTC, datetime
from importlib import import_module
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.credentials import Credentials

from storage.object_store import ObjectRejected
from storage.s3.settings import S3Settings
from storage.s3.signed_ranges import BucketAddress, SigningKeys, range_header, signed_url

AUTH: Any = import_module("botocore.auth")  # neither module has types
REQUESTS: Any = import_module("botocore.awsrequest")
NOW_MS = 1_700_000_000_123
KEYS = SigningKeys(access_key_id="AKID", secret_access_key="the secret")
BUCKET = BucketAddress(url="http://minio:9000/bucket", prefix="a b/c~d", region="eu-central-1")
SETTINGS = S3Settings(bucket="bucket", prefix="a b/c~d", endpoint="http://minio:9000", region="eu-central-1")


@pytest.mark.parametrize("token", [None, "a/session+token="])
@pytest.mark.parametrize(
    "settings",
    [
        SETTINGS,
        S3Settings(bucket="bucket", region="us-east-1"),
        S3Settings(bucket="bucket", prefix="p", endpoint="https://s3.example", is_virtual_hosted=True),
        S3Settings(bucket="bucket", prefix="p", endpoint="https://s3.example:443"),
        S3Settings(bucket="bucket", prefix="p", endpoint="http://proxy.example/s3"),
    ],
)
def test_a_url_is_the_one_of_botocore(settings: S3Settings, token: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.fromtimestamp(NOW_MS // 1000, UTC)
    monkeypatch.setattr(AUTH, "get_current_datetime", lambda: now)
    byte_range = range_header(10, 15)
    path = "/".join(filter(None, (settings.prefix.replace(" ", "%20"), "intake/1/2")))
    request = REQUESTS.AWSRequest(method="GET", url=f"{settings.bucket_url}/{path}", headers={"Range": byte_range})
    credentials = Credentials("AKID", "the secret", token)
    AUTH.S3SigV4QueryAuth(credentials, "s3", settings.region, expires=300).add_auth(request)

    keys = SigningKeys(access_key_id="AKID", secret_access_key="the secret", session_token=token)
    bucket = BucketAddress(url=settings.bucket_url, prefix=settings.prefix, region=settings.region)
    url = signed_url(bucket, keys, "intake/1/2", byte_range, now_ms=NOW_MS, seconds=300)
    assert parse_qs(urlsplit(url).query) == parse_qs(urlsplit(str(request.url)).query)
    assert urlsplit(url).path == urlsplit(f"{settings.bucket_url}/{path}").path
    assert ":443" not in url


def test_a_range_is_written_as_http_has_it() -> None:
    assert range_header(10, 15) == "bytes=10-24"
    assert range_header(0, 1) == "bytes=0-0"


def test_no_secret_is_shown() -> None:
    keys = SigningKeys(access_key_id="AKID", secret_access_key="the secret", session_token="the token")
    assert "the " not in repr(keys)
    assert "secret" not in signed_url(BUCKET, KEYS, "intake/1/2", "bytes=0-0", now_ms=NOW_MS, seconds=1)


def test_a_key_that_is_none_is_not_signed() -> None:
    with pytest.raises(ObjectRejected):
        signed_url(BUCKET, KEYS, "intake/../ledger", "bytes=0-0", now_ms=NOW_MS, seconds=1)
