"""Where a bucket is and how to ask it, from its URL and the usual AWS variables.

Rule: what is wrong in them is said here, before any request. The variables are those of every AWS tool; what they do
not have is an option of the agent.
Source: AWS SDKs and Tools Reference Guide, "Settings reference"; object_store's `AmazonS3ConfigKey`.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from storage.object_store import StoreMisconfigured

REGION_DEFAULT = "us-east-1"
ENCRYPTIONS = ("AES256", "aws:kms", "aws:kms:dsse")
CONFIG_FILE_DEFAULT = "~/.aws/config"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """Keys that are None come from the usual chain (`storage.s3.aws_credentials`). Times in seconds."""

    bucket: str
    prefix: str = ""
    """Every key lies below it; no `/` at its ends."""
    endpoint: str | None = None
    """A URL without the bucket; None is Amazon's own for the region."""
    region: str = REGION_DEFAULT
    access_key_id: str | None = None
    secret_access_key: str | None = None
    session_token: str | None = None
    is_virtual_hosted: bool = False
    """The bucket's name stands in the host's name instead of the path."""
    is_http_allowed: bool = False
    ca_bundle: Path | None = None
    """PEM certificates that are trusted besides the system's."""
    encryption: str | None = None
    """One of `ENCRYPTIONS`, for every object that is put; None is the bucket's own."""
    kms_key_id: str | None = None
    """For `aws:kms`; None is the account's default key for S3."""
    is_bucket_key_enabled: bool | None = None
    connect_timeout_s: float = 5.0
    request_timeout_s: float = 30.0
    """From the first byte sent to the last byte received."""

    @classmethod
    def from_environment(
        cls, url: str, environment: Mapping[str, str], *, request_timeout_s: float = 30.0
    ) -> "S3Settings":
        """From `s3://BUCKET/PREFIX` and the usual AWS variables. Raises `StoreMisconfigured`."""
        parts = urlsplit(url)
        if parts.scheme != "s3" or not parts.netloc or parts.query or parts.fragment:
            raise StoreMisconfigured(f"{url!r} is no bucket: write s3://BUCKET or s3://BUCKET/PREFIX")
        is_http_allowed = _is_true(environment.get("AWS_ALLOW_HTTP"))
        access_key_id, secret_access_key = _keys(environment)
        encryption, kms_key_id = _encryption(environment)
        bucket_key = environment.get("AWS_SSE_BUCKET_KEY_ENABLED")
        return cls(
            bucket=parts.netloc,
            prefix=parts.path.strip("/"),
            endpoint=_endpoint(environment, is_http_allowed=is_http_allowed),
            region=_region(environment),
            access_key_id=access_key_id,
            secret_access_key=secret_access_key,
            session_token=environment.get("AWS_SESSION_TOKEN") if access_key_id else None,
            is_virtual_hosted=_is_true(environment.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST")),
            is_http_allowed=is_http_allowed,
            ca_bundle=_ca_bundle(environment),
            encryption=encryption,
            kms_key_id=kms_key_id,
            is_bucket_key_enabled=_is_true(bucket_key) if bucket_key else None,
            connect_timeout_s=min(5.0, request_timeout_s),
            request_timeout_s=request_timeout_s,
        )

    @property
    def host_url(self) -> str:
        """The endpoint, without the bucket."""
        return self.endpoint or f"https://s3.{self.region}.amazonaws.com"

    @property
    def is_amazons(self) -> bool:
        """Whether the store is Amazon's own, also by an endpoint of a VPC, and so has AWS's STS beside it."""
        host = urlsplit(self.endpoint).hostname or "" if self.endpoint is not None else "amazonaws.com"
        return f".{host}".endswith((".amazonaws.com", ".amazonaws.com.cn"))

    @property
    def bucket_url(self) -> str:
        """The bucket's own address. An endpoint whose host begins with the bucket's name has it already."""
        if not self.is_virtual_hosted:
            return f"{self.host_url}/{self.bucket}"
        parts = urlsplit(self.host_url)
        if parts.netloc.startswith(f"{self.bucket}."):
            return self.host_url
        return urlunsplit(parts._replace(netloc=f"{self.bucket}.{parts.netloc}"))


def _endpoint(environment: Mapping[str, str], *, is_http_allowed: bool) -> str | None:
    name = "AWS_ENDPOINT_URL_S3" if environment.get("AWS_ENDPOINT_URL_S3") else "AWS_ENDPOINT_URL"
    endpoint = environment.get(name)
    if not endpoint:
        return None
    if urlsplit(endpoint).scheme not in {"http", "https"}:
        raise StoreMisconfigured(f"{name}={endpoint} must begin with https:// or http://")
    if endpoint.startswith("http:") and not is_http_allowed:
        raise StoreMisconfigured(
            f"{name}={endpoint} is not encrypted; set AWS_ALLOW_HTTP=true if the network is yours alone"
        )
    return endpoint.rstrip("/")


def _region(environment: Mapping[str, str]) -> str:
    """The variables', else the profile's, else the default."""
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    config_file = Path(environment.get("AWS_CONFIG_FILE") or CONFIG_FILE_DEFAULT)
    if region is None and environment is os.environ and config_file.expanduser().is_file():
        from storage.s3.aws_credentials import profile_region

        region = profile_region()
    return region or REGION_DEFAULT


def _keys(environment: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Both keys or none."""
    access_key_id = environment.get("AWS_ACCESS_KEY_ID") or None
    secret_access_key = environment.get("AWS_SECRET_ACCESS_KEY") or None
    if (access_key_id is None) != (secret_access_key is None):
        missing = "AWS_SECRET_ACCESS_KEY" if secret_access_key is None else "AWS_ACCESS_KEY_ID"
        raise StoreMisconfigured(f"{missing} is not set, and the other key is; set both, or neither")
    return access_key_id, secret_access_key


def _encryption(environment: Mapping[str, str]) -> tuple[str | None, str | None]:
    encryption = environment.get("AWS_SERVER_SIDE_ENCRYPTION") or None
    kms_key_id = environment.get("AWS_SSE_KMS_KEY_ID") or None
    if encryption is not None and encryption not in ENCRYPTIONS:
        raise StoreMisconfigured(f"AWS_SERVER_SIDE_ENCRYPTION={encryption} must be one of {', '.join(ENCRYPTIONS)}")
    if kms_key_id is not None and encryption not in ENCRYPTIONS[1:]:
        raise StoreMisconfigured("AWS_SSE_KMS_KEY_ID needs AWS_SERVER_SIDE_ENCRYPTION=aws:kms")
    return encryption, kms_key_id


def _ca_bundle(environment: Mapping[str, str]) -> Path | None:
    name = environment.get("AWS_CA_BUNDLE")
    if not name:
        return None
    path = Path(name).expanduser()
    if not path.is_file():
        raise StoreMisconfigured(f"AWS_CA_BUNDLE={name} is no file; name one with certificates in PEM")
    return path


def _is_true(text: str | None) -> bool:
    return text is not None and text.strip().lower() in {"1", "true", "yes", "on"}
