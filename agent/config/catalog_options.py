"""The options of the catalog: who may ask it, and what engines are told of the bucket.

Rule: what does not fit together is found here, at the start. Tokens come from a file, never from the command line,
where every user of the machine would see them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from agent.config.addresses import S3Url, read_store_url
from agent.config.http_auth import HttpTokens, read_tokens
from agent.config.option_sources import InvalidSettings, Value

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_STS")


class Credentials(Enum):
    """Which keys engines get with a table."""

    AUTO = "auto"
    """Those of an STS where it can be asked; where it gives none, none."""
    STS = "sts"
    """Those of an STS; where it gives none, no table is told of."""
    NONE = "none"
    """None: engines have their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogAccess:
    tokens: HttpTokens = field(default_factory=HttpTokens)
    credentials: Credentials = Credentials.AUTO
    role_arn: str | None = None
    """The role that is taken for the keys that engines get; an STS beside AWS's may need none."""
    s3_endpoint: str | None = None
    """Where engines find the bucket; None: where the agent does."""


def catalog_access(store_url: str, given: Mapping[str, Value], environment: Mapping[str, str]) -> CatalogAccess:
    """The catalog access that the options and the usual AWS variables describe. Raises `InvalidSettings`."""
    if not isinstance(read_store_url(store_url), S3Url):
        for name in ("catalog-vended-credentials", "catalog-role-arn", "catalog-s3-endpoint"):
            if name in given and given[name] != Credentials.NONE.value:
                raise InvalidSettings(f"--{name} belongs to a store in S3, and --store is {store_url}")
    credentials = Credentials(_text(given, "catalog-vended-credentials") or Credentials.AUTO.value)
    role_arn = _text(given, "catalog-role-arn")
    if role_arn is not None and credentials is Credentials.NONE:
        raise InvalidSettings(
            "--catalog-role-arn and --catalog-vended-credentials none: without credentials there is no role"
        )
    if credentials is Credentials.STS and role_arn is None and not any(environment.get(name) for name in _ENDPOINTS):
        raise InvalidSettings(
            "--catalog-vended-credentials sts: AWS's STS wants a role; name it with --catalog-role-arn"
        )
    endpoint = _text(given, "catalog-s3-endpoint")
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise InvalidSettings(f"--catalog-s3-endpoint {endpoint} must begin with https:// or http://")
    path = _text(given, "http-token-file")
    return CatalogAccess(
        tokens=HttpTokens() if path is None else read_tokens(Path(path).expanduser().absolute()),
        credentials=credentials,
        role_arn=role_arn,
        s3_endpoint=None if endpoint is None else endpoint.rstrip("/"),
    )


def _text(given: Mapping[str, Value], name: str) -> str | None:
    value = given.get(name)
    assert value is None or isinstance(value, str)
    return value or None
