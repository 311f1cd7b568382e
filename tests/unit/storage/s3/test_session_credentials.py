"""What a session may do with the bucket, and what STS answers."""

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest

from storage.object_store import StoreMisconfigured, StoreUnavailable
from storage.s3.session_credentials import SessionCredentials, assume_role, read_policy, session_name
from storage.s3.settings import S3Settings
from tests.support.ports import free_port
from tests.support.services.aws import AwsServices, aws_services

FOLDER = "lake/orders-00ff/"
MINIO = S3Settings(
    bucket="bucket", prefix="a/b", endpoint="http://127.0.0.1:9000", access_key_id="k", secret_access_key="s"
)


@pytest.fixture
def sts() -> Iterator[AwsServices]:
    with aws_services("made-key", "made-secret", "made-token") as running:
        yield running


def ask(endpoint: str, settings: S3Settings = MINIO) -> SessionCredentials:
    return assume_role(settings, role_arn=None, sts_endpoint=endpoint, folder=FOLDER, user="alice", seconds=3600)


def test_a_session_reads_and_lists_one_folder() -> None:
    assert json.loads(read_policy(MINIO, FOLDER)) == {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::bucket/a/b/{FOLDER}*"},
            {
                "Effect": "Allow",
                "Action": "s3:ListBucket",
                "Resource": "arn:aws:s3:::bucket",
                "Condition": {"StringLike": {"s3:prefix": f"a/b/{FOLDER}*"}},
            },
        ],
    }
    at_the_root = json.loads(read_policy(S3Settings(bucket="bucket", endpoint="https://s3.example"), FOLDER))
    assert at_the_root["Statement"][0]["Resource"] == f"arn:aws:s3:::bucket/{FOLDER}*"


@pytest.mark.parametrize(
    ("region", "partition", "service"),
    [
        ("eu-west-1", "aws", "s3.eu-west-1.amazonaws.com"),
        ("cn-north-1", "aws-cn", "s3.cn-north-1.amazonaws.com.cn"),
        ("us-gov-west-1", "aws-us-gov", "s3.us-gov-west-1.amazonaws.com"),
    ],
)
def test_in_aws_what_is_encrypted_by_kms_is_read_too(region: str, partition: str, service: str) -> None:
    policy = json.loads(read_policy(S3Settings(bucket="bucket", region=region), FOLDER))
    assert policy["Statement"][0]["Resource"] == f"arn:{partition}:s3:::bucket/{FOLDER}*"
    assert policy["Statement"][2] == {
        "Effect": "Allow",
        "Action": "kms:Decrypt",
        "Resource": "*",
        "Condition": {"StringEquals": {"kms:ViaService": service}},
    }


def test_a_policy_for_the_longest_topic_is_not_too_long_for_sts() -> None:
    settings = S3Settings(bucket="b" * 63, prefix="p" * 300, region="us-gov-west-1")
    assert len(read_policy(settings, f"lake/{'t' * 249}-{'0' * 32}/")) <= 2048


@pytest.mark.parametrize("prefix", ["a*", "a/b?", "${aws:username}"])
def test_a_name_that_would_mean_something_else_in_a_policy_is_refused(prefix: str) -> None:
    with pytest.raises(StoreMisconfigured, match="no policy can name it"):
        read_policy(S3Settings(bucket="bucket", prefix=prefix), FOLDER)


def test_keys_are_what_sts_made(sts: AwsServices) -> None:
    sts.valid_for = timedelta(hours=1)
    keys = ask(sts.endpoint)
    assert (keys.access_key_id, keys.secret_access_key, keys.session_token) == (
        "made-key",
        "made-secret",
        "made-token",
    )
    assert keys.expires_ms % 1000 == 0
    assert "made-secret" not in repr(keys)
    assert sts.asked["sts"] == 1


def test_an_sts_that_is_away_may_come_back(sts: AwsServices) -> None:
    sts.is_failing = True
    with pytest.raises(StoreUnavailable, match=f"STS at {sts.endpoint}"):
        ask(sts.endpoint)
    with pytest.raises(StoreUnavailable, match="Could not connect"):
        ask(f"http://127.0.0.1:{free_port()}")
    with pytest.raises(StoreUnavailable, match="Invalid endpoint"):
        ask("nowhere")


@pytest.mark.parametrize(
    ("user", "name"),
    [
        ("alice", "penstock-alice"),
        ("CN=bob,O=x", "penstock-CN=bob,O=x"),
        ("a b", "penstock-a_b-c8687a08aa5d"),
        ("a/b", "penstock-a_b-c14cddc033f6"),
        ("\u00e9", "penstock-_-4a99557e4033"),
        ("x" * 55, "penstock-" + "x" * 55),
    ],
)
def test_a_session_has_its_users_name_as_far_as_sts_accepts_it(user: str, name: str) -> None:
    assert session_name(user) == name


def test_long_names_stay_different() -> None:
    names = {session_name("x" * 60 + end) for end in "ab"}
    assert len(names) == 2
    assert {len(name) for name in names} == {64}
