"""A bucket on S3 or what speaks like it; the only module that knows the client library.

Rule: one request per operation, tried once: `storage.decorators.retrying` repeats. A put is always one PutObject, never
a multipart upload, so that nothing half-done is left in the bucket and `If-None-Match` guards the whole of it. Payloads
are not signed (`UNSIGNED-PAYLOAD`): TLS protects them, and hashing would cost more than the rest of a put. Source:
Amazon S3 API Reference, "PutObject", "GetObject", "ListObjectsV2", "Error responses".
"""

import asyncio
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import IO, TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store as S3Client

from protocol.limits import STORE_DELETES_IN_FLIGHT_MAX
from storage.keys import check_key, check_prefix
from storage.object_store import (
    Buffer,
    ObjectDamaged,
    ObjectMeta,
    ObjectMissing,
    ObjectsNotDeleted,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
    cut_short,
)
from storage.s3.aws_credentials import AwsCredentials
from storage.s3.errors import ErrorContext, S3Operation, is_rejected_key, store_error
from storage.s3.settings import S3Settings

if TYPE_CHECKING:  # the library has these names for type checkers only
    from obstore import ObjectMeta as FoundMeta
    from obstore.store import ClientConfig, S3Config

SMALL_PART_BYTES = 64 * 1024
"""Below it a part costs more to hand over by itself than to copy."""
LIST_PAGE_KEYS = 1000


class S3Store:
    """An `ObjectStore` on a bucket that exists. A missing bucket shows at the first request."""

    def __init__(self, settings: S3Settings) -> None:
        """Nothing is asked yet. Raises `StoreMisconfigured` for what cannot be an address, or no certificates."""
        self._settings = settings
        self._prefix = settings.prefix + "/" if settings.prefix else ""
        check_prefix(self._prefix)
        self._place = ErrorContext(
            bucket=settings.bucket,
            endpoint=settings.host_url,
            region=settings.region,
            is_session_fixed=settings.session_token is not None,
        )
        self._credentials = AwsCredentials(settings.region) if settings.access_key_id is None else None
        self._trust = _trust(settings)
        try:
            self._client = S3Client(
                settings.bucket,
                config=_client_config(settings),
                client_options=_client_options(settings),
                retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=settings.request_timeout_s)},
                credential_provider=self._credentials,
            )
        except BaseError as error:
            raise StoreMisconfigured(f"bucket {settings.bucket}: {_first_line(error)}") from error

    async def put(self, key: str, parts: Sequence[Buffer], *, if_absent: bool = False) -> None:
        """A cancelled put closes its connection: the object may or may not be there."""
        path = self._path(key)
        async with self._request(S3Operation.PUT, path):
            await obstore.put_async(
                self._client, path, _payload(parts), mode="create" if if_absent else "overwrite", use_multipart=False
            )

    async def get(self, key: str) -> bytes:
        path = self._path(key)
        async with self._request(S3Operation.GET, path):
            result = await obstore.get_async(self._client, path)
            return (await result.bytes_async()).to_bytes()

    async def get_range(self, key: str, byte_first: int, byte_count: int) -> bytes:
        if byte_count == 0:
            await self.head(key)
            return b""
        path = self._path(key)
        try:
            async with self._request(S3Operation.GET, path):
                content = await obstore.get_range_async(self._client, path, start=byte_first, length=byte_count)
        except ObjectDamaged as error:  # it ends before the range's first byte
            raise cut_short(key, 0, byte_first, byte_count) from error
        if len(content) != byte_count:
            raise cut_short(key, len(content), byte_first, byte_count)
        return content.to_bytes()

    async def head(self, key: str) -> ObjectMeta:
        """A missing bucket looks like a missing object here: the answer to a HEAD has no body."""
        path = self._path(key)
        async with self._request(S3Operation.HEAD, path):
            return self._meta(await obstore.head_async(self._client, path))

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
        """S3 lists are consistent, and in order of UTF-8 bytes."""
        check_prefix(prefix)
        path = self._prefix + prefix
        offset = self._prefix + after if after else None
        async with self._request(S3Operation.LIST, path):
            pages = obstore.list(self._client, path or None, offset=offset, chunk_size=LIST_PAGE_KEYS)  # pyright: ignore[reportUnknownMemberType]
            async for page in pages:
                for meta in page:
                    yield self._meta(meta)

    async def delete(self, keys: Sequence[str]) -> None:
        """One DeleteObjects; where that names keys which it rejected, one DeleteObject for each key.

        DeleteObjects carries out what it can and answers for each key, but the client library raises the first error
        and drops the other results. To delete a key that is gone already is no error, so all are asked for again.
        """
        paths = {self._path(key): key for key in keys}  # each once: MinIO answers a repeated key with an empty name
        if not paths:
            return
        try:
            await self._delete_together(list(paths))
        except (BaseError, FileNotFoundError) as error:  # the second one where the bucket is missing
            subject = f"{len(paths)} keys from {next(iter(paths))}" if len(paths) > 1 else next(iter(paths))
            if not is_rejected_key(str(error)):
                raise store_error(S3Operation.DELETE, subject, str(error), self._place) from error
            reasons = await self._delete_one_by_one(paths)
            if reasons:
                raise ObjectsNotDeleted(reasons) from error

    async def _delete_together(self, paths: Sequence[str]) -> None:
        if self._credentials is not None:
            await self._credentials.ready()
        await obstore.delete_async(self._client, paths)

    async def _delete_one_by_one(self, paths: Mapping[str, str]) -> dict[str, StoreError]:
        """Why each of the keys, by their paths, is still there."""
        reasons: dict[str, StoreError] = {}
        free = asyncio.Semaphore(STORE_DELETES_IN_FLIGHT_MAX)

        async def delete(path: str, key: str) -> None:
            async with free:
                try:
                    async with self._request(S3Operation.DELETE, path):
                        await obstore.delete_async(self._client, path)
                except ObjectMissing:
                    pass
                except StoreError as error:
                    reasons[key] = error

        async with asyncio.TaskGroup() as tasks:
            for path, key in paths.items():
                tasks.create_task(delete(path, key))
        return {key: reasons[key] for key in paths.values() if key in reasons}

    async def server_time_ms(self) -> int | None:
        """The `Date` of a HEAD on the bucket, in whole seconds.

        The client library hands out no headers, so this one request goes without it, and without credentials: an error
        carries the time too, and costs nothing.
        """
        request = urllib.request.Request(self._settings.bucket_url, method="HEAD")  # noqa: S310 - http and https only
        try:
            date = await asyncio.to_thread(_date_of_answer, request, self._settings.request_timeout_s, self._trust)
        except (OSError, ssl.SSLError) as error:
            raise StoreUnavailable(f"the bucket's clock: {error}") from error
        try:
            return int(parsedate_to_datetime(date).timestamp() * 1000) if date else None
        except ValueError:
            return None

    async def close(self) -> None:
        """Connections close with the object."""

    @asynccontextmanager
    async def _request(self, operation: S3Operation, subject: str) -> AsyncGenerator[None]:
        """Around one request: credentials that hold before it, and the library's errors as a `StoreError` after it."""
        if self._credentials is not None:
            await self._credentials.ready()
        try:
            yield
        except (BaseError, FileNotFoundError) as error:
            raise store_error(operation, subject, str(error), self._place) from error

    def _path(self, key: str) -> str:
        check_key(key)
        return self._prefix + key

    def _meta(self, meta: "FoundMeta") -> ObjectMeta:
        return ObjectMeta(
            key=meta["path"].removeprefix(self._prefix),
            size_bytes=meta["size"],
            modified_ms=int(meta["last_modified"].timestamp() * 1000),
        )


class _KeepRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer like any other: its date is enough."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        return None


def _trust(settings: S3Settings) -> ssl.SSLContext:
    """The system's certificates and those of the settings."""
    trust = ssl.create_default_context()
    if settings.ca_bundle is not None:
        try:
            trust.load_verify_locations(cafile=settings.ca_bundle)
        except (OSError, ssl.SSLError) as error:
            message = f"AWS_CA_BUNDLE={settings.ca_bundle} holds no certificates that can be read (PEM): {error}"
            raise StoreMisconfigured(message) from error
    return trust


def _date_of_answer(request: urllib.request.Request, timeout_s: float, trust: ssl.SSLContext) -> str | None:
    opener = urllib.request.build_opener(_KeepRedirect, urllib.request.HTTPSHandler(context=trust))
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            date: str | None = answer.headers["Date"]
    except urllib.error.HTTPError as rejection:
        with rejection:
            date = rejection.headers["Date"]
    return date


def _client_config(settings: S3Settings) -> "S3Config":
    config: S3Config = {
        "region": settings.region,
        "unsigned_payload": True,
        "virtual_hosted_style_request": settings.is_virtual_hosted,
    }
    if settings.endpoint is not None:
        config["endpoint"] = settings.bucket_url if settings.is_virtual_hosted else settings.endpoint
    if settings.access_key_id is not None:
        config["access_key_id"] = settings.access_key_id
    if settings.secret_access_key is not None:
        config["secret_access_key"] = settings.secret_access_key
    if settings.session_token is not None:
        config["session_token"] = settings.session_token
    if settings.encryption is not None:
        config["server_side_encryption"] = settings.encryption
    if settings.kms_key_id is not None:
        config["sse_kms_key_id"] = settings.kms_key_id
    if settings.is_bucket_key_enabled is not None:
        config["sse_bucket_key_enabled"] = settings.is_bucket_key_enabled
    return config


def _client_options(settings: S3Settings) -> "ClientConfig":
    options: ClientConfig = {
        "allow_http": settings.is_http_allowed,
        "connect_timeout": timedelta(seconds=settings.connect_timeout_s),
        "timeout": timedelta(seconds=settings.request_timeout_s),
    }
    if settings.ca_bundle is not None:
        options["root_certificate"] = settings.ca_bundle.read_bytes()
    return options


def _payload(parts: Sequence[Buffer]) -> bytes | Sequence[Buffer]:
    """One request's body: many small parts are joined, large ones are handed over as they are."""
    if sum(map(len, parts)) < SMALL_PART_BYTES * len(parts):
        return b"".join(parts)
    return parts


def _first_line(error: Exception) -> str:
    """The server's message, without the library's dump of its own structures."""
    return str(error).partition("\n\n")[0]
