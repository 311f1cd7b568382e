"""A bucket on S3 or what speaks like it; the only module that knows the client library.

Rule: one request per operation, tried once: `storage.retrying` repeats. A put is always one PutObject, never a
multipart upload, so that nothing half-done is left in the bucket and `If-None-Match` guards the whole of it. Payloads
are not signed (`UNSIGNED-PAYLOAD`): TLS protects them, and hashing would cost more than the rest of a put.
Source: Amazon S3 API Reference, "PutObject", "GetObject", "ListObjectsV2", "Error responses".
"""

import asyncio
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store as S3Client

from storage.keys import check_key, check_prefix
from storage.object_store import (
    Buffer,
    ObjectExists,
    ObjectMeta,
    ObjectMissing,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
)

if TYPE_CHECKING:  # the library has these names for type checkers only
    from obstore import ObjectMeta as FoundMeta
    from obstore.store import ClientConfig, S3Config

SMALL_PART_BYTES = 64 * 1024
"""Below it a part costs more to hand over by itself than to copy."""
LIST_PAGE_KEYS = 1000

_STATUS = re.compile(r"non-2xx status code: (\d+)")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_HOPELESS_STATUSES = frozenset({301, 307, 308, 400, 401, 403, 404, 405, 411, 501})
_PASSING_CODES = frozenset(
    {"ExpiredToken", "TokenRefreshRequired", "RequestTimeout", "IncompleteBody", "InternalError"}
)
"""Among hopeless statuses, what another try may well cure: fresh credentials, a whole body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """Where the bucket is and how to ask. Credentials that are None come from the machine's role."""

    bucket: str
    prefix: str = ""
    """Every key lies below it; no `/` at its ends."""
    endpoint: str | None = None
    """A URL without the bucket; None is Amazon's own for the region."""
    region: str = "us-east-1"
    access_key_id: str | None = None
    secret_access_key: str | None = None
    session_token: str | None = None
    is_virtual_hosted: bool = False
    """The bucket's name stands in the host's name instead of the path."""
    is_http_allowed: bool = False
    connect_timeout_s: float = 5.0
    request_timeout_s: float = 30.0

    @classmethod
    def from_environment(cls, url: str, environment: Mapping[str, str]) -> "S3Settings":
        """From `s3://BUCKET/PREFIX` and the usual AWS variables. Raises `StoreMisconfigured`."""
        parts = urlsplit(url)
        if parts.scheme != "s3" or not parts.netloc or parts.query or parts.fragment:
            raise StoreMisconfigured(f"{url!r} is no bucket: write s3://BUCKET or s3://BUCKET/PREFIX")
        endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
        is_http_allowed = _is_true(environment.get("AWS_ALLOW_HTTP"))
        if endpoint is not None and urlsplit(endpoint).scheme not in {"http", "https"}:
            raise StoreMisconfigured(f"AWS_ENDPOINT_URL {endpoint!r} must begin with https:// or http://")
        if endpoint is not None and endpoint.startswith("http:") and not is_http_allowed:
            raise StoreMisconfigured(
                f"AWS_ENDPOINT_URL {endpoint!r} is not encrypted: set AWS_ALLOW_HTTP=true to use it"
            )
        return cls(
            bucket=parts.netloc,
            prefix=parts.path.strip("/"),
            endpoint=endpoint.rstrip("/") if endpoint is not None else None,
            region=environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1",
            access_key_id=environment.get("AWS_ACCESS_KEY_ID"),
            secret_access_key=environment.get("AWS_SECRET_ACCESS_KEY"),
            session_token=environment.get("AWS_SESSION_TOKEN"),
            is_virtual_hosted=_is_true(environment.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST")),
            is_http_allowed=is_http_allowed,
        )

    def bucket_url(self) -> str:
        """The bucket's own address, for a request by hand."""
        if self.endpoint is None:
            return f"https://s3.{self.region}.amazonaws.com/{self.bucket}"
        return self.endpoint if self.is_virtual_hosted else f"{self.endpoint}/{self.bucket}"


class S3Store:
    """An `ObjectStore` on a bucket that exists. A missing bucket shows at the first request."""

    def __init__(self, settings: S3Settings) -> None:
        self._settings = settings
        self._prefix = settings.prefix + "/" if settings.prefix else ""
        check_prefix(self._prefix)
        try:
            self._client = S3Client(
                settings.bucket,
                config=_client_config(settings),
                client_options=_client_options(settings),
                retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=settings.request_timeout_s)},
            )
        except BaseError as error:
            raise StoreMisconfigured(f"bucket {settings.bucket}: {_first_line(error)}") from error

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        """A cancelled put closes its connection: the object may or may not be there."""
        with _errors_of(path := self._path(key)):
            await obstore.put_async(
                self._client, path, _payload(parts), mode="create" if if_absent else "overwrite", use_multipart=False
            )

    async def get(self, key: str) -> bytes:
        with _errors_of(path := self._path(key)):
            result = await obstore.get_async(self._client, path)
            return (await result.bytes_async()).to_bytes()

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        if byte_count == 0:
            await self.head(key)
            return b""
        with _errors_of(path := self._path(key)):
            found = await obstore.get_range_async(self._client, path, start=byte_first, length=byte_count)
        if len(found) != byte_count:
            raise StoreUnavailable(f"{key} gave {len(found)} instead of {byte_count} bytes from byte {byte_first}")
        return found.to_bytes()

    async def head(self, key: str) -> ObjectMeta:
        """A missing bucket looks like a missing object here: the answer to a HEAD has no body."""
        with _errors_of(path := self._path(key)):
            return self._meta(await obstore.head_async(self._client, path))

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        """S3 lists are consistent, and in order of UTF-8 bytes."""
        check_prefix(prefix)
        with _errors_of(path := self._prefix + prefix):
            offset = self._prefix + after if after else None
            pages = obstore.list(self._client, path or None, offset=offset, chunk_size=LIST_PAGE_KEYS)  # pyright: ignore[reportUnknownMemberType]
            async for page in pages:
                for found in page:
                    yield self._meta(found)

    async def delete(self, keys: Sequence[str]) -> None:
        paths = list(dict.fromkeys(self._path(key) for key in keys))  # MinIO answers a repeated key with an empty name
        if paths:
            with _errors_of(f"{len(paths)} keys from {paths[0]}"):
                await obstore.delete_async(self._client, paths)

    async def server_time_ms(self) -> int | None:
        """The `Date` of a HEAD on the bucket, in whole seconds.

        The client library hands out no headers, so this one request goes without it, and without credentials: a refusal
        carries the time too, and costs nothing.
        """
        request = urllib.request.Request(self._settings.bucket_url(), method="HEAD")  # noqa: S310 - http and https only
        try:
            date = await asyncio.to_thread(_date_of_answer, request, self._settings.request_timeout_s)
        except (OSError, ssl.SSLError) as error:
            raise StoreUnavailable(f"the bucket's clock: {error}") from error
        try:
            return int(parsedate_to_datetime(date).timestamp() * 1000) if date else None
        except ValueError:
            return None

    async def close(self) -> None:
        """Connections close with the object."""

    def _path(self, key: str) -> str:
        check_key(key)
        return self._prefix + key

    def _meta(self, found: "FoundMeta") -> ObjectMeta:
        return ObjectMeta(
            key=found["path"].removeprefix(self._prefix),
            size_bytes=found["size"],
            modified_ms=int(found["last_modified"].timestamp() * 1000),
        )


class _KeepRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer like any other: its date is enough."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        return None


def _date_of_answer(request: urllib.request.Request, timeout_s: float) -> str | None:
    opener = urllib.request.build_opener(_KeepRedirect)
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            date: str | None = answer.headers["Date"]
    except urllib.error.HTTPError as refusal:
        with refusal:
            date = refusal.headers["Date"]
    return date


def _client_config(settings: S3Settings) -> "S3Config":
    config: S3Config = {
        "region": settings.region,
        "unsigned_payload": True,
        "virtual_hosted_style_request": settings.is_virtual_hosted,
    }
    if settings.endpoint is not None:
        config["endpoint"] = settings.endpoint
    if settings.access_key_id is not None:
        config["access_key_id"] = settings.access_key_id
    if settings.secret_access_key is not None:
        config["secret_access_key"] = settings.secret_access_key
    if settings.session_token is not None:
        config["session_token"] = settings.session_token
    return config


def _client_options(settings: S3Settings) -> "ClientConfig":
    return {
        "allow_http": settings.is_http_allowed,
        "connect_timeout": timedelta(seconds=settings.connect_timeout_s),
        "timeout": timedelta(seconds=settings.request_timeout_s),
    }


def _payload(parts: Sequence[Buffer]) -> bytes | Sequence[Buffer]:
    """One request's body: many small parts are joined, large ones are handed over as they are."""
    if sum(map(len, parts)) < SMALL_PART_BYTES * len(parts):
        return b"".join(parts)
    return parts


def _is_true(text: str | None) -> bool:
    return text is not None and text.strip().lower() in {"1", "true", "yes", "on"}


def _first_line(error: Exception) -> str:
    """What the server said, without the library's dump of its own structures."""
    return str(error).partition("\n\n")[0]


@contextmanager
def _errors_of(path: str) -> Generator[None]:
    """Turn the library's errors into the `StoreError` that says what the caller should do."""
    try:
        yield
    except (BaseError, FileNotFoundError) as error:
        raise _store_error(path, error) from error


def _store_error(path: str, error: Exception) -> StoreError:
    text = _first_line(error)
    status = next((int(found) for found in _STATUS.findall(text)), 0)
    code = next(iter(_CODE.findall(text)), "")
    match error:
        case FileNotFoundError() if code != "NoSuchBucket":
            return ObjectMissing(f"{path} does not exist")
        case AlreadyExistsError() | PreconditionError():
            return ObjectExists(f"{path} exists")
        case FileNotFoundError() | PermissionDeniedError() | UnauthenticatedError() | GenericError():
            if code in _PASSING_CODES or (isinstance(error, GenericError) and status not in _HOPELESS_STATUSES):
                return StoreUnavailable(f"{path}: {text}")
            return StoreMisconfigured(f"{path}: {text}: check the bucket, its address and the credentials")
        case _:
            return StoreMisconfigured(f"{path}: {text}")
