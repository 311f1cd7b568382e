"""Credentials of every kind open a bucket of a real MinIO, and are renewed before they end.

MinIO hands out session credentials itself (AssumeRole); the services that only AWS has are
`tests.support.services.aws`.
"""

import asyncio
import logging
import os
import shlex
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import botocore.session
import pytest
from botocore.credentials import Credentials

from storage.object_store import StoreMisconfigured, StoreUnavailable
from storage.s3.aws_credentials import AwsCredentials
from storage.s3.settings import S3Settings
from storage.s3.store import S3Store
from tests.support.services.aws import CONTAINER_PATH, CONTAINER_TOKEN, AwsServices, aws_services
from tests.support.services.local_services import Minio

ROLE_ARN = "arn:aws:iam::123456789012:role/penstock"


@pytest.fixture
def bare(minio: Minio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment that leads to MinIO and holds no credentials; files of profiles would be in the folder."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", minio.endpoint)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path


@pytest.fixture(scope="module")
def session_keys(minio: Minio) -> tuple[str, str, str]:
    """Credentials of MinIO that hold with their session token only."""
    client = botocore.session.get_session().create_client(
        "sts",
        region_name="us-east-1",
        endpoint_url=minio.endpoint,
        aws_access_key_id=minio.access_key,
        aws_secret_access_key=minio.secret_key,
    )
    found = client.assume_role(RoleArn=ROLE_ARN, RoleSessionName="test", DurationSeconds=3600)["Credentials"]
    return found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"]


@pytest.fixture
def services(session_keys: tuple[str, str, str]) -> Iterator[AwsServices]:
    with aws_services(*session_keys) as running:
        yield running


def open_bucket(minio: Minio) -> S3Store:
    bucket = minio.data / "credentials"
    bucket.mkdir(exist_ok=True)
    return S3Store(S3Settings.from_environment("s3://credentials", os.environ))


async def use(store: S3Store) -> None:
    """Every kind of request once."""
    await store.put("a", [b"x"])
    assert await store.get("a") == b"x"
    assert [meta.key async for meta in store.list("")] == ["a"]
    await store.delete(["a"])


async def test_keys_in_the_environment(
    minio: Minio, bare: Path, monkeypatch: pytest.MonkeyPatch, session_keys: tuple[str, str, str]
) -> None:
    for name, value in zip(("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"), session_keys, strict=True):
        monkeypatch.setenv(f"AWS_{name}", value)
    await use(open_bucket(minio))


async def test_a_profile_of_the_credentials_file(minio: Minio, bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bare / "credentials").write_text(
        "[default]\naws_access_key_id = nobody\naws_secret_access_key = nobody\n"
        f"[lake]\naws_access_key_id = {minio.access_key}\naws_secret_access_key = {minio.secret_key}\n"
    )
    monkeypatch.setenv("AWS_PROFILE", "lake")
    await use(open_bucket(minio))
    monkeypatch.delenv("AWS_PROFILE")
    with pytest.raises(StoreMisconfigured, match="InvalidAccessKeyId"):
        await use(open_bucket(minio))


def test_the_region_of_a_profile(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bare / "config").write_text("[profile lake]\nregion = eu-central-1\n")
    assert S3Settings.from_environment("s3://b", os.environ).region == "us-east-1"
    monkeypatch.setenv("AWS_PROFILE", "lake")
    assert S3Settings.from_environment("s3://b", os.environ).region == "eu-central-1"
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert S3Settings.from_environment("s3://b", os.environ).region == "eu-west-1"


async def test_a_profile_whose_process_prints_them(minio: Minio, bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = f'{{"Version": 1, "AccessKeyId": "{minio.access_key}", "SecretAccessKey": "{minio.secret_key}"}}'
    (bare / "print.py").write_text(f"print({printed!r})")
    command = shlex.join([sys.executable, str(bare / "print.py")])
    (bare / "config").write_text(f"[profile lake]\ncredential_process = {command}\n")
    monkeypatch.setenv("AWS_PROFILE", "lake")
    await use(open_bucket(minio))


async def test_a_profile_that_takes_a_role(minio: Minio, bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MinIO's own STS."""
    (bare / "config").write_text(f"[profile lake]\nrole_arn = {ROLE_ARN}\nsource_profile = base\n")
    (bare / "credentials").write_text(
        f"[base]\naws_access_key_id = {minio.access_key}\naws_secret_access_key = {minio.secret_key}\n"
    )
    monkeypatch.setenv("AWS_PROFILE", "lake")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", minio.endpoint)
    await use(open_bucket(minio))


def give_web_identity(services: AwsServices, folder: Path, monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    (folder / "token").write_text(token)
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(folder / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", ROLE_ARN)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", services.endpoint)


async def test_a_web_identity(minio: Minio, bare: Path, services: AwsServices, monkeypatch: pytest.MonkeyPatch) -> None:
    give_web_identity(services, bare, monkeypatch, "a-token")
    await use(open_bucket(minio))
    assert services.asked == {"sts": 1}


async def test_a_web_identity_that_is_refused_is_a_matter_of_configuration(
    minio: Minio, bare: Path, services: AwsServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_web_identity(services, bare, monkeypatch, "another-token")
    with pytest.raises(StoreMisconfigured, match="InvalidIdentityToken"):
        await use(open_bucket(minio))


def give_container(services: AwsServices, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", services.endpoint + CONTAINER_PATH)
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", CONTAINER_TOKEN)


async def test_the_container_s_metadata(
    minio: Minio, bare: Path, services: AwsServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_container(services, monkeypatch)
    await use(open_bucket(minio))
    assert services.asked == {"container": 1}


async def test_the_instance_s_metadata(
    minio: Minio, bare: Path, services: AwsServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", services.endpoint)
    await use(open_bucket(minio))
    assert services.asked == {"instance": 1}


async def test_credentials_about_to_end_are_renewed_before_a_request(
    minio: Minio, bare: Path, services: AwsServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_container(services, monkeypatch)
    services.valid_for = timedelta(seconds=30)
    store = open_bucket(minio)
    await store.put("a", [b"x"])
    secret, services.secret_key = services.secret_key, "wrong"
    with pytest.raises(StoreMisconfigured, match="SignatureDoesNotMatch"):
        await store.put("a", [b"x"])
    services.secret_key = secret
    services.valid_for = timedelta(hours=1)
    await store.put("a", [b"x"])
    asked = services.asked["container"]
    await store.put("a", [b"x"])
    assert services.asked["container"] == asked


async def test_while_the_old_ones_hold_a_failed_renewal_stops_nothing(
    minio: Minio,
    bare: Path,
    services: AwsServices,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("AWS_METADATA_SERVICE_NUM_ATTEMPTS", "1")
    give_container(services, monkeypatch)
    services.valid_for = timedelta(minutes=5)
    store = open_bucket(minio)
    await store.put("a", [b"x"])
    services.is_failing = True
    credentials = store._credentials
    assert credentials is not None
    credentials._renew_after_s = 0.0
    with caplog.at_level(logging.WARNING, "storage.s3.aws_credentials"):
        await store.put("a", [b"x"])
        renewal = credentials._renewal
        assert renewal is not None, "a request begins the renewal and does not wait for it"
        with pytest.raises(StoreUnavailable):
            await renewal
        await store.put("a", [b"x"])
    assert [record.message for record in caplog.records] == ["AWS credentials could not be renewed yet"]


async def test_a_source_that_is_away_may_come_back(
    minio: Minio, bare: Path, services: AwsServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_container(services, monkeypatch)
    services.is_failing = True
    store = open_bucket(minio)
    with pytest.raises(StoreUnavailable, match="credentials"):
        await store.put("a", [b"x"])
    services.is_failing = False
    await use(store)


async def test_no_credentials_at_all_name_every_place(minio: Minio, bare: Path) -> None:
    with pytest.raises(StoreMisconfigured, match="AWS_ACCESS_KEY_ID"):
        await use(open_bucket(minio))


@pytest.mark.parametrize("file", ["", "[profile lake\n"])
async def test_a_profile_that_cannot_be_read_is_named(
    minio: Minio, bare: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    (bare / "config").write_text(file)
    monkeypatch.setenv("AWS_PROFILE", "lake")
    with pytest.raises(StoreMisconfigured, match="AWS_PROFILE"):
        await use(open_bucket(minio))


async def test_concurrent_requests_share_one_renewal() -> None:
    found: list[int] = []

    def find(region: str) -> Credentials:
        assert region == "eu-west-1"
        found.append(1)
        return Credentials("a", "b")

    credentials = AwsCredentials("eu-west-1", find)
    await asyncio.gather(*(credentials.ready() for _ in range(20)))
    assert (len(found), credentials()["access_key_id"]) == (1, "a")
