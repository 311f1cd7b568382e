"""Calls to etcd over gRPC: endpoints in turn, TLS, a token that is renewed, and errors in the ledger's words.

Rule: a call is made once. Where etcd certainly did not carry it out (a token that ran out) it is made again; otherwise
its outcome is the caller's to settle (safety rule S10). After an endpoint failed the next one is asked.

The messages are those of `aetcd`, whose own client has one endpoint, no TLS and no renewal of tokens.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import grpc
import grpc.aio
from aetcd.rpc import rpc_pb2, rpc_pb2_grpc

from coordinator.log import LedgerUnavailable, Trimmed
from protocol.limits import ETCD_CALL_SECONDS_MAX

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),  # a page of entries is bounded by their number and size
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)
_ENDPOINT_FAILED = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})


class LeaseGone(LedgerUnavailable):
    """The lease has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdAccess:
    """Where etcd is, and how to get in: `ca` verifies it, `cert` and `key` are shown to it, `user` logs in."""

    endpoints: Sequence[str]
    """HOST:PORT each."""
    is_tls: bool = False
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    user: str | None = None
    password: str = field(default="", repr=False)


class EtcdClient:
    """One connection at a time, to the endpoint that answered last. Methods raise `LedgerUnavailable` and `Trimmed`."""

    def __init__(self, access: EtcdAccess) -> None:
        self._access = access
        self._row = 0
        self._channel: grpc.aio.Channel | None = None
        self._token: str | None = None
        self._is_closed = False

    async def txn(self, request: rpc_pb2.TxnRequest) -> rpc_pb2.TxnResponse:
        return await self._call(lambda channel: rpc_pb2_grpc.KVStub(channel).Txn, request)

    async def range(self, request: rpc_pb2.RangeRequest) -> rpc_pb2.RangeResponse:
        return await self._call(lambda channel: rpc_pb2_grpc.KVStub(channel).Range, request)

    async def delete_range(self, first: bytes, end: bytes) -> None:
        """Delete the keys from `first` to before `end`."""
        request = rpc_pb2.DeleteRangeRequest(key=first, range_end=end)
        await self._call(lambda channel: rpc_pb2_grpc.KVStub(channel).DeleteRange, request)

    async def compact(self, revision: int) -> None:
        """Let etcd forget its history below `revision`; that it has forgotten is no error."""
        request = rpc_pb2.CompactionRequest(revision=revision)
        with contextlib.suppress(Trimmed):
            await self._call(lambda channel: rpc_pb2_grpc.KVStub(channel).Compact, request)

    async def grant_lease(self, seconds: int) -> int:
        request = rpc_pb2.LeaseGrantRequest(TTL=seconds)
        return (await self._call(lambda channel: rpc_pb2_grpc.LeaseStub(channel).LeaseGrant, request)).ID

    async def revoke_lease(self, lease: int) -> None:
        """End a lease; that it has ended is no error."""
        request = rpc_pb2.LeaseRevokeRequest(ID=lease)
        with contextlib.suppress(LeaseGone):
            await self._call(lambda channel: rpc_pb2_grpc.LeaseStub(channel).LeaseRevoke, request)

    async def keep_alive(self, lease: int) -> None:
        """Renew a lease. Raises `LeaseGone` too."""
        request = rpc_pb2.LeaseKeepAliveRequest(ID=lease)
        async with self._stream(lambda channel: rpc_pb2_grpc.LeaseStub(channel).LeaseKeepAlive, request) as answers:
            try:
                async with asyncio.timeout(ETCD_CALL_SECONDS_MAX):
                    answer = await anext(answers)
            except TimeoutError as error:
                raise LedgerUnavailable("etcd did not renew a lease in time") from error
        if answer.TTL <= 0:
            raise LeaseGone(f"lease {lease:x} has ended")

    def watch(
        self, create: rpc_pb2.WatchCreateRequest
    ) -> contextlib.AbstractAsyncContextManager[AsyncIterator[rpc_pb2.WatchResponse]]:
        """A watch of its own, for as long as the block lasts; reading it raises what calls raise."""
        request = rpc_pb2.WatchRequest(create_request=create)
        return self._stream(lambda channel: rpc_pb2_grpc.WatchStub(channel).Watch, request)

    async def close(self) -> None:
        """End the connection; what is under way on it raises `LedgerUnavailable`."""
        self._is_closed = True
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def _call(
        self,
        method: Callable[[grpc.aio.Channel], grpc.aio.UnaryUnaryMultiCallable[_Request, _Response]],
        request: _Request,
    ) -> _Response:
        is_token_new = False
        while True:
            channel = await self._connected()
            try:
                return await method(channel)(request, timeout=ETCD_CALL_SECONDS_MAX, metadata=self._metadata())
            except asyncio.CancelledError as error:
                if _is_own_cancellation():
                    raise
                raise self._given_up() from error
            except grpc.aio.AioRpcError as error:
                if _is_token_refused(error) and not is_token_new:
                    self._token, is_token_new = None, True
                    continue
                raise await self._told(channel, error) from error

    @contextlib.asynccontextmanager
    async def _stream(
        self,
        method: Callable[[grpc.aio.Channel], grpc.aio.StreamStreamMultiCallable[_Request, _Response]],
        request: _Request,
    ) -> AsyncGenerator[AsyncIterator[_Response]]:
        """A stream that is asked one thing, and answers until the block ends."""
        channel = await self._connected()
        is_over = asyncio.Event()

        async def ask() -> AsyncGenerator[_Request]:
            yield request
            await is_over.wait()

        call = method(channel)(ask(), metadata=self._metadata())

        async def read() -> AsyncGenerator[_Response]:
            try:
                async for answer in call:
                    yield answer
            except asyncio.CancelledError as error:
                if _is_own_cancellation():
                    raise
                raise self._given_up() from error
            except grpc.aio.AioRpcError as error:
                raise await self._told(channel, error) from error
            raise LedgerUnavailable("etcd ended a stream")

        async with contextlib.aclosing(read()) as answers:
            try:
                yield answers
            finally:
                is_over.set()
                call.cancel()

    async def _connected(self) -> grpc.aio.Channel:
        if self._is_closed:
            raise LedgerUnavailable("this ledger was closed")
        if self._channel is None:
            self._channel = _open(self._access, self._access.endpoints[self._row])
        channel = self._channel
        if self._access.user is not None and self._token is None:
            request = rpc_pb2.AuthenticateRequest(name=self._access.user, password=self._access.password)
            try:
                answer = await rpc_pb2_grpc.AuthStub(channel).Authenticate(request, timeout=ETCD_CALL_SECONDS_MAX)
            except asyncio.CancelledError as error:
                if _is_own_cancellation():
                    raise
                raise self._given_up() from error
            except grpc.aio.AioRpcError as error:
                raise await self._told(channel, error) from error
            self._token = answer.token
        return channel

    async def _told(self, channel: grpc.aio.Channel, error: grpc.aio.AioRpcError) -> LedgerUnavailable | Trimmed:
        """What a failed call tells its caller; the next one asks the next endpoint, if this one is at fault."""
        if self._is_closed:
            return LedgerUnavailable("this ledger was closed")
        if _is_token_refused(error):
            self._token = None
        elif error.code() in _ENDPOINT_FAILED and self._channel is channel:
            self._channel, self._token = None, None
            self._row = (self._row + 1) % len(self._access.endpoints)
            await channel.close()
        return _ledger_error(error)

    def _given_up(self) -> LedgerUnavailable:
        """What a call says whose connection was closed under it: gRPC cancels it then."""
        return LedgerUnavailable("this ledger was closed" if self._is_closed else "the connection to etcd was given up")

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return () if self._token is None else (("token", self._token),)


def _open(access: EtcdAccess, endpoint: str) -> grpc.aio.Channel:
    if not access.is_tls:
        return grpc.aio.insecure_channel(endpoint, options=_OPTIONS)
    credentials = grpc.ssl_channel_credentials(
        root_certificates=None if access.ca is None else access.ca.read_bytes(),
        private_key=None if access.key is None else access.key.read_bytes(),
        certificate_chain=None if access.cert is None else access.cert.read_bytes(),
    )
    return grpc.aio.secure_channel(endpoint, credentials, options=_OPTIONS)


def _is_own_cancellation() -> bool:
    """Whether this task is being cancelled, rather than a call that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _is_token_refused(error: grpc.aio.AioRpcError) -> bool:
    """A token ran out, or the authentication's revision has moved on: nothing was carried out."""
    details = error.details() or ""
    return "invalid auth token" in details or "revision of auth store is old" in details


def _ledger_error(error: grpc.aio.AioRpcError) -> LedgerUnavailable | Trimmed:
    """What the ledger's callers can act on. Texts: etcd's api/v3rpc/rpctypes/error.go (v3.6)."""
    details = error.details() or ""
    match error.code():
        case grpc.StatusCode.OUT_OF_RANGE if "compacted" in details:
            return Trimmed("etcd has compacted this position: load the snapshot again")
        case grpc.StatusCode.NOT_FOUND if "lease" in details:
            return LeaseGone(f"etcd: {details}")
        case grpc.StatusCode.RESOURCE_EXHAUSTED if "space exceeded" in details:
            return LedgerUnavailable(
                "etcd is full (NOSPACE) and takes no writes: compact and defragment it, then disarm the alarm"
            )
        case grpc.StatusCode.PERMISSION_DENIED | grpc.StatusCode.UNAUTHENTICATED:
            return LedgerUnavailable(f"etcd does not let this agent in ({details}): check its user and password")
        case grpc.StatusCode.INVALID_ARGUMENT if "authentication failed" in details or "user name" in details:
            return LedgerUnavailable(f"etcd does not let this agent in ({details}): check its user and password")
        case code:
            return LedgerUnavailable(f"etcd did not answer ({code.name}: {details})")
