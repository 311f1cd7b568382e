"""A member of etcd that loses transactions, as a leader does that hands over: their callers wait, and hear nothing.

It takes calls with one answer and hands them to a real etcd. Streams, of leases and watches, it does not know.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import grpc.aio

from tests.support.ledger.backends import Loss

TXN = "/etcdserverpb.KV/Txn"


class LosingMember(grpc.GenericRpcHandler):
    """Loses the next transactions as `losses` says, the first one first. Use it in `losing_member`."""

    def __init__(self, behind: grpc.aio.Channel) -> None:
        self._behind = behind
        self.losses: list[Loss] = []
        self.endpoint = ""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        return grpc.unary_unary_rpc_method_handler(partial(self._handle, handler_call_details.method))

    async def _handle(self, method: str, request: bytes, _context: object) -> bytes:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._behind.unary_unary(method)
        loss = self.losses.pop(0) if self.losses and method == TXN else None
        if loss is Loss.BEFORE:
            await asyncio.Event().wait()
        answer = await call(request)
        if loss is Loss.AFTER:
            await asyncio.Event().wait()
        return answer


@asynccontextmanager
async def losing_member(endpoint: str) -> AsyncIterator[LosingMember]:
    """A member in front of the etcd at `endpoint`."""
    async with grpc.aio.insecure_channel(endpoint) as behind:
        member = LosingMember(behind)
        server = grpc.aio.server()
        server.add_generic_rpc_handlers([member])
        member.endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        try:
            yield member
        finally:
            await server.stop(grace=None)
