"""The properties by which engines open files in the bucket."""

from agent.lake.file_io import S3_FILE_IO, s3_file_io, without_bucket
from storage.s3.settings import S3Settings

KEYS = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "eu-central-1"}
BY_HOST = {**KEYS, "AWS_ENDPOINT_URL": "https://lake.s3.example:9000", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"}


def settings(environment: dict[str, str]) -> S3Settings:
    return S3Settings.from_environment("s3://lake", environment)


def test_an_endpoint_that_names_the_bucket_is_given_without_it() -> None:
    assert s3_file_io(settings(BY_HOST), None) == {
        "io-impl": S3_FILE_IO,
        "client.region": "eu-central-1",
        "s3.region": "eu-central-1",
        "s3.endpoint": "https://s3.example:9000",
        "s3.path-style-access": "false",
        "s3.force-virtual-addressing": "true",
    }


def test_an_endpoint_for_engines_replaces_the_agents_and_stays_as_it_is() -> None:
    assert s3_file_io(settings(BY_HOST), "https://lake.example")["s3.endpoint"] == "https://lake.example"


def test_the_host_of_an_endpoint_by_path_and_amazons_own_stay_as_they_are() -> None:
    assert without_bucket(settings({**KEYS, "AWS_ENDPOINT_URL": "https://lake.example"})) == "https://lake.example"
    assert without_bucket(settings(KEYS)) is None
