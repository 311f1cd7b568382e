"""Calls to etcd over gRPC: endpoints in turn, a token that is renewed, and streams that notice when they hear nothing.

Rule: a call is made once. Where etcd certainly did not carry it out (a token that ran out) it is made again, and so is
one that a repeat settles, if no answer comes; otherwise its outcome is the caller's to settle (safety rule S10). After
an endpoint failed the next one is asked, and whatever else was under way on it is given up at once. Every call asks for
a member that knows a leader: one that is cut off from the others would answer watches with silence.

The messages are those of `aetcd`, whose own client has one endpoint, no TLS and no renewal of tokens.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import TypeVar

import grpc.aio
from aetcd.rpc import rpc_pb2, rpc_pb2_grpc

from coordinator.ledger.etcd.access import (
    EtcdAccess,
    LeaseGone,
    is_authentication_off,
    is_endpoint_failed,
    is_token_rejected,
    ledger_error,
    open_channel,
)
from coordinator.ledger.port import LedgerUnavailable, Trimmed
from protocol.limits import (
    ETCD_CALL_SECONDS_MAX,
    ETCD_PROGRESS_SECONDS,
    ETCD_REPEAT_SECONDS,
    ETCD_WATCH_SILENT_SECONDS_MAX,
)

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")
_REQUIRE_LEADER = ("hasleader", "true")


class EtcdClient:
    """One connection at a time, to the endpoint that answered last. Methods raise `LedgerUnavailable` and `Trimmed`."""

    def __init__(self, access: EtcdAccess) -> None:
        self._access = access
        self._row = 0
        self._channel: grpc.aio.Channel | None = None
        self._token: str | None = None
        self._is_closed = False

    @property
    def endpoint(self) -> str:
        """The endpoint that is asked now."""
        return self._access.endpoints[self._row]

    async def txn(self, request: rpc_pb2.TxnRequest, *, is_repeatable: bool = False) -> rpc_pb2.TxnResponse:
        """Carry out a transaction. One that is repeatable is asked a second time if no answer comes soon: it says by
        its guards whether the first one was carried out, or keeps it from being so later.
        """
        return await self._call(lambda channel: rpc_pb2_grpc.KVStub(channel).Txn, request, is_repeatable=is_repeatable)

    async def range(self, request: rpc_pb2.RangeRequest) -> rpc_pb2.RangeResponse:
        return await self._call(lambda channel: rpc_pb2_grpc.KVStub(channel).Range, request)

    async def status(self) -> rpc_pb2.StatusResponse:
        """Version and size of the endpoint that is asked now."""
        return await self._call(lambda channel: rpc_pb2_grpc.MaintenanceStub(channel).Status, rpc_pb2.StatusRequest())

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

    async def keep_alive(self, lease: int, *, seconds: float) -> None:
        """Renew a lease within `seconds`, of which every endpoint gets its share. Raises `LeaseGone` too."""
        count = len(self._access.endpoints)
        for tries_left in reversed(range(count)):
            try:
                await self._keep_alive(lease, seconds=seconds / count)
            except LedgerUnavailable as error:
                if isinstance(error, LeaseGone) or not tries_left:
                    raise
            else:
                return

    async def _keep_alive(self, lease: int, *, seconds: float) -> None:
        request = rpc_pb2.LeaseKeepAliveRequest(ID=lease)
        channel, endpoint = self._opened(), self.endpoint
        try:
            async with (
                asyncio.timeout(seconds),
                self._stream(channel, rpc_pb2_grpc.LeaseStub(channel).LeaseKeepAlive, request) as answers,
            ):
                answer = await anext(answers)
                with contextlib.suppress(LedgerUnavailable):
                    await anext(answers)  # its end: one that is cut off counts as failed in etcd's metrics
        except TimeoutError as error:
            await self._leave(channel)
            raise LedgerUnavailable(f"etcd at {endpoint} did not renew a lease within {seconds:.1f} s") from error
        if answer.TTL <= 0:
            raise LeaseGone(f"lease {lease:x} has ended")

    def watch(
        self, create: rpc_pb2.WatchCreateRequest, *, is_asked: bool = True
    ) -> contextlib.AbstractAsyncContextManager[AsyncIterator[rpc_pb2.WatchResponse]]:
        """A watch of its own, for as long as the block lasts; reading it raises what calls raise.

        etcd is asked for a sign of life again and again; an endpoint that gives none is left for the next one. It gives
        none for a watch that begins above its revision (`progressIfSync` in its mvcc/watchable_store.go, v3.5 and
        v3.6), so `create` begins at an existing revision, and receives it again. A watch without such requests
        relies on another one, whose silence ends the connection of both.
        """
        channel = self._opened()
        request = rpc_pb2.WatchRequest(create_request=create)
        progress = rpc_pb2.WatchRequest(progress_request=rpc_pb2.WatchProgressRequest())
        method = rpc_pb2_grpc.WatchStub(channel).Watch
        return self._stream(channel, method, request, progress if is_asked else None, is_kept=True)

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
        *,
        is_repeatable: bool = False,
    ) -> _Response:
        seconds = ETCD_REPEAT_SECONDS if is_repeatable else ETCD_CALL_SECONDS_MAX
        is_token_new = False
        while True:
            channel = self._opened()
            await self._log_in(channel)
            try:
                return await method(channel)(request, timeout=seconds, metadata=self._metadata())
            except asyncio.CancelledError as error:
                if _is_own_cancellation():
                    raise
                raise self._given_up() from error
            except grpc.aio.AioRpcError as error:
                if is_repeatable and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    seconds, is_repeatable = ETCD_CALL_SECONDS_MAX, False
                    continue
                if self._access.user is not None and is_token_rejected(error) and not is_token_new:
                    self._token, is_token_new = None, True
                    continue
                raise await self._failure(channel, error) from error

    @contextlib.asynccontextmanager
    async def _stream(
        self,
        channel: grpc.aio.Channel,
        method: grpc.aio.StreamStreamMultiCallable[_Request, _Response],
        request: _Request,
        progress: _Request | None = None,
        *,
        is_kept: bool = False,
    ) -> AsyncGenerator[AsyncIterator[_Response], None]:
        """A stream that is asked one thing and answers it; one that is kept goes on until the block ends.

        It is asked for `progress` from time to time, and then may not be silent for long.
        """
        await self._log_in(channel)
        is_over = asyncio.Event()
        questions = _questions(request, progress, is_over) if is_kept else _question(request)
        call = method(questions, metadata=self._metadata())
        silent_seconds_max = None if progress is None else ETCD_WATCH_SILENT_SECONDS_MAX

        async def read() -> AsyncGenerator[_Response, None]:
            answers = aiter(call)
            try:
                while True:
                    async with asyncio.timeout(silent_seconds_max):
                        answer = await anext(answers)
                    yield answer
            except StopAsyncIteration as error:
                raise LedgerUnavailable("etcd ended a stream") from error
            except TimeoutError as error:
                endpoint = self.endpoint
                await self._leave(channel)
                raise LedgerUnavailable(f"etcd at {endpoint} has fallen silent") from error
            except asyncio.CancelledError as error:
                if _is_own_cancellation():
                    raise
                raise self._given_up() from error
            except grpc.aio.AioRpcError as error:
                raise await self._failure(channel, error) from error

        async with contextlib.aclosing(read()) as answers:
            try:
                yield answers
            finally:
                is_over.set()
                call.cancel()

    def _opened(self) -> grpc.aio.Channel:
        if self._is_closed:
            raise LedgerUnavailable("this ledger was closed")
        if self._channel is None:
            self._channel = open_channel(self._access, self.endpoint)
        return self._channel

    async def _log_in(self, channel: grpc.aio.Channel) -> None:
        """Get a token, where a user is configured and there is none; an empty one where authentication is disabled."""
        if self._access.user is None or self._token is not None:
            return
        request = rpc_pb2.AuthenticateRequest(name=self._access.user, password=self._access.password)
        try:
            answer = await rpc_pb2_grpc.AuthStub(channel).Authenticate(request, timeout=ETCD_CALL_SECONDS_MAX)
        except asyncio.CancelledError as error:
            if _is_own_cancellation():
                raise
            raise self._given_up() from error
        except grpc.aio.AioRpcError as error:
            if not is_authentication_off(error):
                raise await self._failure(channel, error) from error
            self._token = ""
        else:
            self._token = answer.token

    async def _failure(self, channel: grpc.aio.Channel, error: grpc.aio.AioRpcError) -> LedgerUnavailable | Trimmed:
        """The error for a failed call; the next call asks the next endpoint, if this one is at fault."""
        if self._is_closed:
            return LedgerUnavailable("this ledger was closed")
        failure = ledger_error(error, self._access, self.endpoint)
        if is_token_rejected(error):
            self._token = None
        elif is_endpoint_failed(error):
            await self._leave(channel)
        return failure

    async def _leave(self, channel: grpc.aio.Channel) -> None:
        """Ask the next endpoint from now on; what is under way on this one is given up."""
        if self._channel is channel:
            self._channel, self._token = None, None
            self._row = (self._row + 1) % len(self._access.endpoints)
            await channel.close()

    def _given_up(self) -> LedgerUnavailable:
        """The error for a call whose connection was closed meanwhile: gRPC cancels it then."""
        return LedgerUnavailable("this ledger was closed" if self._is_closed else "the connection to etcd was given up")

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (_REQUIRE_LEADER, ("token", self._token)) if self._token else (_REQUIRE_LEADER,)


async def _question(request: _Request) -> AsyncGenerator[_Request, None]:
    yield request


async def _questions(
    request: _Request, progress: _Request | None, is_over: asyncio.Event
) -> AsyncGenerator[_Request, None]:
    yield request
    while not is_over.is_set():
        try:
            async with asyncio.timeout(None if progress is None else ETCD_PROGRESS_SECONDS):
                await is_over.wait()
        except TimeoutError:
            if progress is not None:
                yield progress


def _is_own_cancellation() -> bool:
    """Whether this task is being cancelled, rather than a call that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
