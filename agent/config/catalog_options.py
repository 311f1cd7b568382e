"""The options of the Iceberg catalog: the credentials and the endpoint of the bucket that engines get.

All contradictions are found here, at the start.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from agent.config.addresses import S3Url, read_store_url
from agent.config.option_sources import InvalidSettings, Value

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_STS")


class Credentials(Enum):
    """The S3 credentials that engines get with a table."""

    AUTO = "auto"
    """Credentials of an STS, where one is configured; none where it fails."""
    STS = "sts"
    """Credentials of an STS. Where it fails, loading a table is an error."""
    NONE = "none"
    """No credentials: engines have their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogAccess:
    """The access of engines to the bucket."""

    credentials: Credentials = Credentials.AUTO
    role_arn: str | None = None
    """The role that the agent assumes for the credentials of engines. An STS that is not AWS's may need none."""
    s3_endpoint: str | None = None
    """The endpoint of the bucket for engines; None for the agent's own."""


def catalog_access(store_url: str, values: Mapping[str, Value], environment: Mapping[str, str]) -> CatalogAccess:
    """The catalog access that the options and the usual AWS variables describe. Raises `InvalidSettings`."""
    if not isinstance(read_store_url(store_url), S3Url):
        for name in ("catalog-vended-credentials", "catalog-role-arn", "catalog-s3-endpoint"):
            if name in values and values[name] != Credentials.NONE.value:
                raise InvalidSettings(f"--{name} needs a store in S3, and --store is {store_url}")
    credentials = Credentials(_text(values, "catalog-vended-credentials") or Credentials.AUTO.value)
    role_arn = _text(values, "catalog-role-arn")
    if role_arn is not None and credentials is Credentials.NONE:
        raise InvalidSettings(
            "--catalog-role-arn and --catalog-vended-credentials none exclude each other: remove one of them"
        )
    if credentials is Credentials.STS and role_arn is None and not any(environment.get(name) for name in _ENDPOINTS):
        raise InvalidSettings(
            "--catalog-vended-credentials sts: AWS's STS needs a role; give it with --catalog-role-arn"
        )
    endpoint = _text(values, "catalog-s3-endpoint")
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise InvalidSettings(f"--catalog-s3-endpoint {endpoint} must begin with https:// or http://")
    return CatalogAccess(
        credentials=credentials,
        role_arn=role_arn,
        s3_endpoint=None if endpoint is None else endpoint.rstrip("/"),
    )


def _text(values: Mapping[str, Value], name: str) -> str | None:
    value = values.get(name)
    assert value is None or isinstance(value, str)
    return value or None
