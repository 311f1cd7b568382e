"""The catalog's configuration from an agent's settings: engines' access to the bucket, and the credential vendor.

Rule: no I/O here. Opening the store has already checked the AWS variables.
Source: Iceberg's configuration ("Catalog properties"). Properties of the bucket: `agent.lake.file_io`.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from agent.config.addresses import FileUrl, MemoryUrl, S3Url, read_store_url, store_root
from agent.config.catalog_options import Credentials
from agent.config.settings import Settings
from agent.http.iceberg.vended_credentials import CredentialVendor
from agent.lake.file_io import LOCAL_FILE_IO, s3_file_io, without_bucket
from agent.runtime.clock import Clock
from storage.s3.session_credentials import assume_role
from storage.s3.settings import S3Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogParts:
    """`root_uri` is the URI of the bucket's root (`addresses.store_root`). Engines cannot read a store in memory."""

    root_uri: str
    file_io: Mapping[str, str] = field(default_factory=dict[str, str])
    """Properties with which engines open objects below it; no secrets."""
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
                file_io=s3_file_io(s3, access.s3_endpoint),
                credentials=_vendor(s3, settings, clock, environment.get("AWS_ENDPOINT_URL_STS")),
            )
        case FileUrl():
            return CatalogParts(root_uri=root, file_io={"io-impl": LOCAL_FILE_IO})
        case MemoryUrl():
            return CatalogParts(root_uri=root)


def _vendor(s3: S3Settings, settings: Settings, clock: Clock, sts_endpoint: str | None) -> CredentialVendor | None:
    """None where the catalog vends no credentials: by the option, or because AWS's STS needs a role and none is set."""
    access, seconds = settings.catalog_access, settings.catalog_credentials_s
    is_enabled = access.credentials is Credentials.STS or access.role_arn is not None or not s3.is_amazons
    if access.credentials is Credentials.NONE or not is_enabled:
        return None
    assume = partial(
        assume_role,
        s3,
        role_arn=access.role_arn,
        sts_endpoint=sts_endpoint or (None if s3.is_amazons else without_bucket(s3)),
        seconds=seconds,
    )
    return CredentialVendor(
        ask=lambda folder, user: assume(folder=folder, user=user),
        clock=clock,
        is_required=access.credentials is Credentials.STS,
        seconds=seconds,
    )
