"""What options say of the catalog, and what does not fit together."""

import pytest

from agent.config.catalog_options import CatalogAccess, Credentials
from agent.config.settings import CliCommand, InvalidSettings, load_settings

ROLE = "arn:aws:iam::123456789012:role/readers"


def load(
    given: dict[str, str] | None = None, *, store: str = "s3://lake/kafka", environment: dict[str, str] | None = None
) -> CatalogAccess:
    options = {"ledger": "memory:", "store": store, **(given or {})}
    return load_settings(CliCommand.AGENT, options, environment=environment or {}).catalog_access


@pytest.mark.parametrize("store", ["memory:", "file:///srv/store", "s3://lake"])
def test_nothing_need_be_said(store: str) -> None:
    assert load(store=store) == CatalogAccess()


def test_a_role_and_an_endpoint_are_taken_up() -> None:
    access = load({"catalog-role-arn": ROLE, "catalog-s3-endpoint": "https://s3.example/"})
    assert (access.role_arn, access.s3_endpoint) == (ROLE, "https://s3.example")
    assert load({"catalog-vended-credentials": "sts", "catalog-role-arn": ROLE}).credentials is Credentials.STS


def test_an_sts_beside_aws_needs_no_role() -> None:
    with pytest.raises(InvalidSettings, match="AWS's STS needs a role"):
        load({"catalog-vended-credentials": "sts"})
    found = load({"catalog-vended-credentials": "sts"}, environment={"AWS_ENDPOINT_URL": "https://minio.example"})
    assert found.credentials is Credentials.STS


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"catalog-vended-credentials": "none", "catalog-role-arn": ROLE}, "exclude each other"),
        ({"catalog-vended-credentials": "some"}, "catalog-vended-credentials"),
        ({"catalog-s3-endpoint": "s3.example"}, "must begin with https:// or http://"),
    ],
)
def test_what_does_not_fit_together_stops_the_start(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSettings, match=message):
        load(given)


@pytest.mark.parametrize(
    "given",
    [{"catalog-vended-credentials": "sts"}, {"catalog-role-arn": ROLE}, {"catalog-s3-endpoint": "https://s3.example"}],
)
def test_a_store_that_is_not_in_s3_has_no_keys_to_hand_out(given: dict[str, str]) -> None:
    with pytest.raises(InvalidSettings, match="needs a store in S3"):
        load(given, store="file:///srv/store")
    assert load({"catalog-vended-credentials": "none"}, store="memory:").credentials is Credentials.NONE
