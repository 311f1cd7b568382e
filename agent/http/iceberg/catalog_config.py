"""The catalog's configuration from an agent's settings: where the bucket is for engines, and who makes keys for them.

Rule: nothing is asked here; what is wrong in the variables was found when the store was opened.
Source: Iceberg's configuration ("Catalog properties"). Properties of the bucket: `agent.lake.file_io`.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from agent.config.addresses import FileUrl, MemoryUrl, S3Url, read_store_url, store_root
from agent.config.catalog_options import CatalogAccess, Credentials
from agent.config.http_auth import HttpTokens
from agent.config.settings import Settings
from agent.http.iceberg.vended_credentials import CredentialVendor
from agent.lake.file_io import LOCAL_FILE_IO, s3_file_io, without_bucket
from agent.runtime.clock import Clock
from protocol.limits import CATALOG_CREDENTIALS_SECONDS
from storage.s3.session_credentials import SessionCredentials, assume_role
from storage.s3.settings import S3Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogParts:
    """`root_uri` is where the bucket begins (`addresses.store_root`). What is in memory nobody else can read."""

    root_uri: str
    tokens: HttpTokens = field(default_factory=HttpTokens)
    file_io: Mapping[str, str] = field(default_factory=dict[str, str])
    """Properties by which engines open what lies below it; no secrets."""
    credentials: CredentialVendor | None = None


def catalog_parts(settings: Settings, clock: Clock, environment: Mapping[str, str] = os.environ) -> CatalogParts:
    """The parts for these settings and the usual AWS variables."""
    access, url = settings.catalog_access, read_store_url(settings.store_url)
    root = store_root(url)
    match url:
        case S3Url():
            s3 = S3Settings.from_environment(settings.store_url, environment)
            return CatalogParts(
                root_uri=root,
                tokens=access.tokens,
                file_io=s3_file_io(s3, access.s3_endpoint),
                credentials=_vendor(s3, access, clock, environment.get("AWS_ENDPOINT_URL_STS")),
            )
        case FileUrl():
            return CatalogParts(root_uri=root, tokens=access.tokens, file_io={"io-impl": LOCAL_FILE_IO})
        case MemoryUrl():
            return CatalogParts(root_uri=root, tokens=access.tokens)


def _vendor(s3: S3Settings, access: CatalogAccess, clock: Clock, sts_endpoint: str | None) -> CredentialVendor | None:
    """None where no keys are handed out: so it is said, or AWS's STS would want a role and none is named."""
    is_asked = access.credentials is Credentials.STS or access.role_arn is not None or not s3.is_amazons
    if access.credentials is Credentials.NONE or not is_asked:
        return None
    ask = partial(_ask, s3, access.role_arn, sts_endpoint or (None if s3.is_amazons else without_bucket(s3)))
    return CredentialVendor(ask=ask, clock=clock, is_required=access.credentials is Credentials.STS)


def _ask(s3: S3Settings, role_arn: str | None, sts_endpoint: str | None, folder: str) -> SessionCredentials:
    return assume_role(
        s3, role_arn=role_arn, sts_endpoint=sts_endpoint, folder=folder, seconds=CATALOG_CREDENTIALS_SECONDS
    )
