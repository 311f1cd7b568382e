"""The relays of one client connection: a router that sends requests to groups' coordinators and to named agents.

Requests of one client reach a coordinator in their order, over one connection. A request that gets no answer is
answered here, as an agent that does not coordinate the group answers: with NOT_COORDINATOR, after which its client asks
for the coordinator again. A V1 TxnOffsetCommit closes the client's connection instead, as if it were the coordinator's:
repeated on the same connection it might be stale again (safety rule S7). So does a request about the configs of an
agent: its client asks again, as if that agent had closed the connection, and no other one knows the answer. A commit
of offsets that waited here for too long is not relayed (safety rule S23), and is answered with NOT_COORDINATOR, too.
"""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from agent.handlers import join_group, sync_group
from agent.request.deferred import later
from agent.request.messages import encode
from agent.request.offset_commits import is_overdue
from agent.request.services import Answer, NoAnswerOwed, Request, Services
from agent.server.dispatch import HANDLERS, RawHandler
from agent.server.relay.relay_connection import RelayConnection
from agent.server.relay.relays import Relays, RelayTarget
from protocol.api_versions import ApiKey, name_of
from protocol.connection import RequestFrame
from protocol.errors import ErrorCode
from protocol.limits import RELAYED_ANSWER_SECONDS_MAX, RELAYS_PER_CONNECTION_MAX
from protocol.relay import CHANGING_OFFSETS, OF_NODES, RELAYED, Introduction
from protocol.types import SessionId
from storage.object_store import Buffer
from txn.transaction import TransactionVersion
from txn.transaction_requests import transaction_version

log = logging.getLogger(__name__)

REJECTIONS: Final = {ApiKey.JOIN_GROUP: join_group.rejection, ApiKey.SYNC_GROUP: sync_group.rejection}
"""The APIs whose answers may be minutes away, during which the connection's next requests are handled."""


class ClientRelays:
    """A router of one client connection."""

    def __init__(self, relays: Relays, *, agent: str) -> None:
        """`agent`: the name of this agent."""
        self._relays = relays
        self._agent = agent
        self._connections: dict[SessionId, RelayConnection] = {}
        """By the coordinator's session; the one that was used last stands last."""
        self._introduction: Introduction | None = None
        """The introduction that opened the connections."""
        self._is_closed = False
        self._is_draining = False

    def handler(self, api_key: int) -> RawHandler:
        """The relay for a request that another agent may have to answer, else the agent's own handler."""
        return self._relay if api_key in RELAYED else HANDLERS[api_key]

    def drain(self) -> None:
        """Leave the answers that may take minutes: their clients ask other agents."""
        self._is_draining = True
        for connection in list(self._connections.values()):
            if connection.is_waiting_long:
                connection.abort()

    def close(self) -> None:
        """The client's connection is closed, and its coordinators are to know."""
        self._is_closed = True
        self._close_all()

    async def _relay(self, services: Services, request: Request) -> Answer:
        frame = request.frame
        target = await self._relays.target(services, request)
        if target is None:
            return await HANDLERS[frame.api_key](services, request)
        if frame.api_key in CHANGING_OFFSETS and is_overdue(services, request):
            # It waited behind a request that the coordinator did not answer (safety rule S23).
            return await HANDLERS[frame.api_key](services, request)
        count = partial(self._count, services, frame)
        connection = await self._connection(services, request, target)
        if connection is None:
            count("unreachable")
            if frame.api_key in OF_NODES:
                raise NoAnswerOwed(f"agent {target.name}, which the request names, cannot be reached")
            return await HANDLERS[frame.api_key](services, request)
        if frame.api_key in REJECTIONS:
            pending = await connection.send(frame, is_long=True)
            frame.leave_body()
            if self._is_draining:
                connection.abort()
            # Answered or lost is known later, and counted then.
            return later(pending, partial(self._deferred_answer, services, frame))
        answer = await self._answer(services, connection, target, frame)
        if answer is not None:
            count("answered")
            return answer
        count("lost")
        if is_v1_commit(frame):
            raise NoAnswerOwed("the coordinator closed its relay before it answered a commit in a transaction")
        if frame.api_key in OF_NODES:
            raise NoAnswerOwed(f"agent {target.name}, which the request names, closed its relay before it answered")
        return await HANDLERS[frame.api_key](services, request)

    @staticmethod
    async def _answer(
        services: Services, connection: RelayConnection, target: RelayTarget, frame: RequestFrame
    ) -> Sequence[Buffer] | None:
        """The coordinator's answer; None where the connection is lost, or is closed because none came in time."""
        # Behind an answer that may take minutes, this one may, too.
        seconds_max = RELAYED_ANSWER_SECONDS_MAX if connection.is_idle else None
        try:
            async with services.clock.timeout(seconds_max):
                return await (await connection.send(frame))
        except TimeoutError:
            extra = {"agent": target.name, "api": name_of(frame.api_key), "seconds": RELAYED_ANSWER_SECONDS_MAX}
            log.warning("closed a relay connection to an agent that does not answer: see whether it hangs", extra=extra)
            connection.abort()  # not used again: its answers would no longer be those to the oldest requests
            return None

    def _deferred_answer(
        self, services: Services, frame: RequestFrame, answer: Sequence[Buffer] | None
    ) -> Sequence[Buffer]:
        self._count(services, frame, "lost" if answer is None else "answered")
        if answer is not None:
            return answer
        return encode(frame, REJECTIONS[ApiKey(frame.api_key)](frame.api_version, ErrorCode.not_coordinator))

    async def _connection(self, services: Services, request: Request, target: RelayTarget) -> RelayConnection | None:
        introduction = await self._introduced(services, request)
        connection = self._connections.pop(target.session, None)
        if connection is None:
            connection = await self._relays.open(target, introduction, self._lost)
            if connection is None:
                return None
            if self._is_closed:
                connection.abort()
                return None
            self._close_least_used()
        self._connections[target.session] = connection
        return connection

    async def _introduced(self, services: Services, request: Request) -> Introduction:
        """The client's introduction. Where it differs from the one before, earlier connections are closed."""
        before = self._introduction
        epoch = before.epoch if before is not None else None
        if before is None and request.connection_epoch is not None:
            epoch = await request.connection_epoch.of_client(services.clock)
        self._introduction = Introduction(
            agent=self._agent,
            listener=request.listener,
            peer=request.peer,
            principal=request.principal,
            groups=tuple(request.groups),
            mechanism=request.mechanism,
            is_by_token=request.is_by_token,
            epoch=epoch,
        )
        if before is not None and before != self._introduction:  # it has authenticated again, with a newer token
            self._close_all()
        return self._introduction

    def _close_least_used(self) -> None:
        if len(self._connections) >= RELAYS_PER_CONNECTION_MAX:
            idle = next((session for session, each in self._connections.items() if each.is_idle), None)
            if idle is not None:
                self._connections.pop(idle).abort()

    def _close_all(self) -> None:
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.abort()

    def _lost(self, connection: RelayConnection) -> None:
        for session, each in list(self._connections.items()):
            if each is connection:
                del self._connections[session]

    @staticmethod
    def _count(services: Services, frame: RequestFrame, outcome: str) -> None:
        services.metrics.relayed_requests.labels(name_of(frame.api_key), outcome).inc()


def is_v1_commit(frame: RequestFrame) -> bool:
    """Whether the request commits offsets in a transaction that connection epochs order (safety rule S7)."""
    is_commit = frame.api_key == ApiKey.TXN_OFFSET_COMMIT
    return is_commit and transaction_version(frame.api_key, frame.api_version) is TransactionVersion.V1
