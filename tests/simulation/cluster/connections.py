"""Connections between clients and agents: bytes there, bytes back, in order, through the agent's real handlers.

Rule: an agent takes up one request of a connection after the other, and answers leave in that order, as
`agent.server.kafka_server.Connection` does. What a handler may raise closes the connection; anything else is a bug, and
is one here.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from agent.request.connection_epochs import IntroducedEpoch, RequestEpoch
from agent.request.services import NoAnswerOwed, Request, Services
from agent.server.dispatch import HANDLERS
from agent.server.relay.client_relays import ClientRelays
from agent.server.relay.relay_introduction import RelayedRequests
from agent.server.request_router import RequestRouter
from coordinator.ledger.port import LedgerUnavailable, OutcomeUnknown
from protocol.auth.principals import ANONYMOUS
from protocol.connection import read_request_frame
from protocol.relay import Introduction
from protocol.wire import INT32
from storage.object_store import Buffer, StoreError
from tests.simulation.cluster.agents import AgentInWorld, Life, Surroundings

CLOSES_CONNECTION = (LedgerUnavailable, StoreError, OutcomeUnknown, NoAnswerOwed)


class ConnectionLost(Exception):
    """Refused, reset, or no answer in time: what was asked for may have happened."""


class SimulatedConnection:
    """A client's end. Requests may be sent before earlier ones are answered."""

    def __init__(self, agent: AgentInWorld, around: Surroundings, client_id: str) -> None:
        """Raises `ConnectionLost` where nobody listens."""
        self.agent = agent
        self._around = around
        self._client_id = client_id.encode()
        life = agent.life
        if life is None or life.broker is None or life.is_paused or agent.is_cut_from_clients:
            raise ConnectionLost(f"{agent.name} does not listen")
        self._life = life
        self._asked_count = 0
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._sent_back: deque[bytes] = deque()
        """Answers on their way: what was sent first arrives first, whichever timer fires first."""
        self.is_open = True
        self._is_stalled = False
        self._late_until_s = 0.0
        self._answerers: list[tuple[float, str]] = []
        """Which agent gave each answer, and when it came."""
        self._far = AgentEnd(self, life, life.broker.services, around)
        life.ends.append(self._far)

    def send(
        self, api_key: int, version: int, body: bytes, *, is_compact: bool = False, late_s: float = 0.0
    ) -> "asyncio.Future[bytes]":
        """Send a request; the future gets the answer's body, or raises `ConnectionLost`.

        `late_s`: how much longer it is on its way, and what is sent after it; the agent has it before it learns that
        the client is gone.

        `is_compact`: the version's header has tagged fields, of which there are none; so has the answer's, which are
        left to the reader.
        """
        future: asyncio.Future[bytes] = self._around.loop.create_future()
        if not self.is_open:
            future.set_exception(ConnectionLost("the connection is closed"))
            return future
        self._asked_count += 1
        head = struct.pack(">hhih", api_key, version, self._asked_count, len(self._client_id)) + self._client_id
        head += b"\x00" if is_compact else b""
        self._waiting.append(future)
        if self._gets_through():
            self._far.sent.append(head + body)
            now_s = self._around.loop.time()
            self._late_until_s = max(self._late_until_s, now_s + late_s)
            self._around.loop.call_later(
                self._delay() + self._late_until_s - now_s, self._far.arrive, context=self._life.context
            )
        return future

    async def ask(
        self, api_key: int, version: int, body: bytes, timeout_s: float, *, is_compact: bool = False
    ) -> bytes:
        """The answer's body. Raises `ConnectionLost`; the connection is closed then."""
        future = self.send(api_key, version, body, is_compact=is_compact)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError as error:
            self.close()
            raise ConnectionLost(f"{self.agent.name} did not answer in {timeout_s} s") from error

    def answerers(self, since_s: float) -> list[str]:
        """The agents whose answers came since then: where requests are relayed, not only the one at the other end."""
        return sorted({name for came_s, name in self._answerers if came_s >= since_s})

    def close(self) -> None:
        """Give up on it. The agent notices some time later, or never."""
        if self.is_open:
            self._lose("closed by the client")
            if self._late_until_s > self._around.loop.time():
                return
            if self._around.chance.random() < 0.7:
                self._around.loop.call_later(self._delay(), self._far.hang_up, context=self._life.context)

    def answered(self, answer: bytes) -> None:
        """At the agent: send an answer on its way."""
        self._sent_back.append(answer)
        self._around.loop.call_later(self._delay(), self._receive, context=self._around.outside)

    def closed_by_agent(self) -> None:
        """At the agent: close."""
        self._around.loop.call_later(self._delay(), self._lose, "closed by the agent", context=self._around.outside)

    def reset(self) -> None:
        """The agent died: the client is told, or finds out."""
        if self._around.chance.random() < 0.7:
            self._around.loop.call_later(self._delay(), self._lose, "reset", context=self._around.outside)

    def _receive(self) -> None:
        answer = self._sent_back.popleft()
        if self.is_open and self._gets_through():
            number, loop = _request_of(answer), self._around.loop
            answerer = self._around.relayed_answers.pop((self._far.peer, number), self.agent.name)
            self._answerers.append((loop.time(), answerer))
            if number != len(self._answerers):
                self._around.history.violation(
                    f"a client gets the answer to its request {number} for its request {len(self._answerers)}"
                )
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(answer[4:])

    def _gets_through(self) -> bool:
        """A connection that lost something stays silent: nothing is delivered behind a gap."""
        self._is_stalled = self._is_stalled or self.agent.is_cut_from_clients
        return not self._is_stalled

    def _lose(self, reason: str) -> None:
        self.is_open = False
        waiting, self._waiting = self._waiting, deque()
        for future in waiting:
            if not future.done():
                future.set_exception(ConnectionLost(reason))
                future.exception()  # whoever sent it may have given up waiting

    def _delay(self) -> float:
        return self._around.chance.expovariate(1.0) * self._around.plan.delay_s


class Peer(Protocol):
    """The other end of a connection that an agent has accepted."""

    def answered(self, answer: bytes) -> None: ...

    def closed_by_agent(self) -> None: ...

    def reset(self) -> None: ...


class AgentEnd:
    """An agent's end; everything here runs in the agent's context."""

    def __init__(
        self,
        near: Peer,
        life: Life,
        services: Services,
        around: Surroundings,
        introduction: Introduction | None = None,
    ) -> None:
        """`introduction`: of the client, where another agent relays its requests."""
        self._near = near
        self._agent_name = life.agent.name
        self._services = services
        self._around = around
        self.sent: deque[bytes] = deque()
        """Requests on their way."""
        self._frames: deque[tuple[bytes, float]] = deque()
        """Requests that were not taken up yet, and when each arrived."""
        self._wanted = asyncio.Event()
        self._answers: deque[asyncio.Future[bytes]] = deque()
        self._is_closed = self._is_draining = False
        self._number = 0
        self.peer = "client"
        self._router: RequestRouter | None = None
        self._connection_epoch: RequestEpoch | None = None
        self._is_relayed = introduction is not None
        if introduction is not None:
            self.peer, self._router = introduction.peer, RelayedRequests(lambda: True)
            self._connection_epoch = IntroducedEpoch(introduction.epoch)
        elif around.plan.transactions:
            self._connection_epoch = life.context.run(services.connection_epochs.accepted)
        if introduction is None and life.relays is not None:
            self.peer, self._router = f"{life}-{len(life.ends)}", ClientRelays(life.relays, agent=life.agent.name)
        self._serving = around.loop.create_task(self._serve(), name=f"{life} serves a client", context=life.context)

    def arrive(self) -> None:
        self._frames.append((self.sent.popleft(), self._services.clock.monotonic_s()))
        self._wanted.set()

    def hang_up(self) -> None:
        """The client is gone: what is under way for it is cancelled."""
        self._is_closed = True
        self._end_serving()

    @property
    def owes_answers(self) -> bool:
        """Whether something was taken up that is not answered."""
        return bool(self._answers) and not self._is_closed

    def stop_taking_up(self) -> None:
        """What was not begun is left to other agents."""
        self._is_draining = True
        self._frames.clear()
        if self._router is not None:
            self._router.drain()

    def died(self) -> None:
        """Its agent is no more."""
        if not self._is_closed:
            self._near.reset()

    def close(self) -> None:
        """Close; what is under way is not answered."""
        if not self._is_closed:
            self._is_closed = True
            self._end_serving()
            self._near.closed_by_agent()

    def _end_serving(self) -> None:
        self._serving.cancel()
        if self._router is not None:
            self._router.close()

    async def _serve(self) -> None:
        while not self._is_closed:
            while not self._frames or self._is_draining:
                self._wanted.clear()
                await self._wanted.wait()
            await self._take_up(*self._frames.popleft())

    async def _take_up(self, received: bytes, arrived_s: float) -> None:
        frame = read_request_frame(self._number, memoryview(received))
        self._number += 1
        request = Request(
            frame=frame,
            listener="PLAINTEXT",
            peer=self.peer,
            rights=self._services.authorizer.rights(ANONYMOUS),
            connection_epoch=self._connection_epoch,
            arrived_s=arrived_s,
        )
        place: asyncio.Future[bytes] = self._around.loop.create_future()
        self._answers.append(place)
        try:
            handlers = HANDLERS.__getitem__ if self._router is None else self._router.handler
            answer = await handlers(frame.api_key)(self._services, request)
        except CLOSES_CONNECTION:
            self._is_closed = True
            if self._router is not None:
                self._router.close()
            self._near.closed_by_agent()
            return
        except Exception as error:
            self._around.history.violation(f"a bug in a handler: {type(error).__name__}: {error}")
            raise
        assert answer is not None, "no client here asks without wanting an answer"
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(lambda future: self._place(place, future.result()))
        else:
            self._place(place, answer)

    def _place(self, place: "asyncio.Future[bytes]", buffers: Sequence[Buffer]) -> None:
        place.set_result(b"".join(buffers))
        while self._answers and self._answers[0].done():
            done = self._answers.popleft()
            if not self._is_closed:
                self._answer(done.result())

    def _answer(self, answer: bytes) -> None:
        if self._is_relayed:
            self._around.relayed_answers[self.peer, _request_of(answer)] = self._agent_name
            self._around.history.counts["relayed"] += 1
        self._near.answered(answer)


def _request_of(answer: bytes) -> int:
    """The number of the request that is answered."""
    (number,) = INT32.unpack_from(answer)
    return int(number)
