"""Where engines find the bucket, and whether keys are made for them."""

from agent.config.settings import CliCommand, load_settings
from agent.http.iceberg.catalog_config import CatalogParts, catalog_parts
from tests.support.agent.ledger_parts import ManualClock

KEYS = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "eu-central-1"}
MINIO = {**KEYS, "AWS_ENDPOINT_URL": "http://127.0.0.1:9000", "AWS_ALLOW_HTTP": "true"}
ROLE = "arn:aws:iam::123456789012:role/readers"


def parts(store: str, environment: dict[str, str] | None = None, **given: str) -> CatalogParts:
    options = {"ledger": "memory:", "store": store, **{name.replace("_", "-"): text for name, text in given.items()}}
    environment = environment or {}
    return catalog_parts(load_settings(CliCommand.AGENT, options, environment=environment), ManualClock(), environment)


def test_the_root_is_that_which_tables_name() -> None:
    assert parts("s3://lake/a/b/").root_uri == "s3://lake/a/b"
    assert parts("file:///srv/store/").root_uri == "file:///srv/store"


def test_files_are_opened_without_properties_and_keys() -> None:
    found = parts("file:///srv/store")
    assert found.file_io == {"io-impl": "org.apache.iceberg.hadoop.HadoopFileIO"}
    assert found.credentials is None
    assert parts("memory:").credentials is None


def test_a_store_like_s3_is_found_by_its_endpoint() -> None:
    found = parts("s3://lake/kafka", MINIO)
    assert found.file_io == {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "client.region": "eu-central-1",
        "s3.region": "eu-central-1",
        "s3.endpoint": "http://127.0.0.1:9000",
        "s3.path-style-access": "true",
    }
    assert found.credentials is not None
    assert not found.credentials.is_required


def test_engines_may_find_it_elsewhere() -> None:
    found = parts("s3://lake", MINIO, catalog_s3_endpoint="https://s3.example")
    assert found.file_io["s3.endpoint"] == "https://s3.example"


def test_amazons_own_needs_the_region_alone_and_a_role_for_keys() -> None:
    found = parts("s3://lake", KEYS)
    assert "s3.endpoint" not in found.file_io
    assert found.file_io["s3.path-style-access"] == "false"
    assert found.credentials is None
    assert parts("s3://lake", KEYS, catalog_role_arn=ROLE).credentials is not None


def test_an_endpoint_of_a_vpc_is_amazons_too() -> None:
    environment = {**KEYS, "AWS_ENDPOINT_URL_S3": "https://bucket.vpce-1a2b.s3.eu-central-1.vpce.amazonaws.com"}
    assert parts("s3://lake", environment).credentials is None
    assert parts("s3://lake", {**KEYS, "AWS_ENDPOINT_URL": "https://notamazonaws.com"}).credentials is not None


def test_no_keys_are_made_where_that_is_said_and_they_are_required_where_that_is_said() -> None:
    assert parts("s3://lake", MINIO, catalog_vended_credentials="none").credentials is None
    required = parts("s3://lake", MINIO, catalog_vended_credentials="sts").credentials
    assert required is not None
    assert required.is_required


def test_the_agents_own_keys_are_not_among_the_properties() -> None:
    assert not {"k", "s"} & set(parts("s3://lake", MINIO).file_io.values())
