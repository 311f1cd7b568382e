"""Connections between agents, over which they relay requests of groups where one address leads to all of them.

Rule: an agent's real relay code opens and uses them, as it does sockets; what arrives is served by the other agent's
`AgentEnd`, with the router of relay connections. Bytes arrive in order and late, or not any more: a connection that
lost something stays silent, and its ends may never learn that the other one is gone.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from protocol.relay import decode_introduction, encode_reply
from protocol.wire import INT32
from tests.simulation.cluster.agents import AgentInWorld, Life, Surroundings
from tests.simulation.cluster.connections import AgentEnd
from tests.simulation.loop import NODE

NOTICED_CHANCE = 0.7
"""How often one end learns that the other one is gone."""
RECEIVED_BYTES = -1
"""What a protocol is asked for room for: as much as it likes."""


class AgentNetwork:
    """All relay connections of a world."""

    def __init__(self, around: Surroundings, agents: Iterable[AgentInWorld]) -> None:
        self._around = around
        self._agents = {agent.name: agent for agent in agents}

    async def connect(self, new_protocol: Callable[[], Any], host: str) -> "tuple[Wire, Any]":
        """As `create_connection` of a loop. Raises `OSError`."""
        near = NODE.get()
        assert isinstance(near, Life), "agents connect to agents"
        around, far = self._around, self._agents[host]
        arrived: asyncio.Future[None] = around.loop.create_future()
        if not (near.agent.is_cut_from_agents or far.is_cut_from_agents):
            delay_s = around.chance.expovariate(1.0) * around.plan.delay_s
            around.loop.call_later(delay_s, _finish, arrived, context=around.outside)
        await arrived
        life = far.life
        if life is None or life.broker is None:
            raise ConnectionRefusedError(f"{host} does not listen")
        protocol = new_protocol()
        wire = Wire(around, near, life, protocol)
        protocol.connection_made(wire)
        return wire, protocol


class Wire(asyncio.Transport):
    """One relay connection: the transport of the agent that opened it, and the other one's way back."""

    def __init__(self, around: Surroundings, near: Life, far: Life, protocol: Any) -> None:  # noqa: ANN401 - asyncio's
        super().__init__()
        self._around = around
        self._near = near
        self._far = far
        self._protocol = protocol
        self._there: deque[bytes] = deque()
        """Frames on their way to the other agent: what was sent first arrives first, whichever timer fires first."""
        self._back: deque[bytes] = deque()
        self._end: AgentEnd | None = None
        """The other agent's, once the client is introduced."""
        self._is_over = self._is_stalled = False
        near.wires.append(self)

    # For the agent that opened it. What it writes at once is one frame.

    def write(self, data: Any) -> None:  # noqa: ANN401 - asyncio's
        if not self._is_over and self._gets_through():
            self._there.append(bytes(data)[INT32.size :])
            self._later(self._arrive, self._far)

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(bytes(data) for data in list_of_data))

    def is_closing(self) -> bool:
        return self._is_over

    def abort(self) -> None:
        """The other end notices some time later, or never."""
        if not self._is_over:
            self._is_over = True
            self._around.loop.call_soon(self._protocol.connection_lost, None, context=self._near.context)
            self.died()

    def died(self) -> None:
        """The agent that opened it is no more."""
        self._is_over = True
        if self._gets_through() and self._around.chance.random() < NOTICED_CHANCE:
            self._later(self._hang_up, self._far)

    # For the other agent, as `SimulatedConnection` is for a client.

    def answered(self, answer: bytes) -> None:
        """Send an answer on its way."""
        if self._gets_through():
            self._back.append(INT32.pack(len(answer)) + answer)
            self._later(self._receive, self._near)

    def closed_by_agent(self) -> None:
        """Close."""
        if self._gets_through():
            self._later(self._lose, self._near)

    def reset(self) -> None:
        """The agent died: the one that opened it is told, or finds out."""
        if self._around.chance.random() < NOTICED_CHANCE:
            self.closed_by_agent()

    def _arrive(self) -> None:
        frame = self._there.popleft()
        if self._end is not None:
            self._end.sent.append(frame)
            self._end.arrive()
            return
        broker = self._far.broker
        if broker is None:
            self.closed_by_agent()
            return
        self._around.history.counts["relay connections"] += 1
        introduction = decode_introduction(memoryview(frame))
        self._end = AgentEnd(self, self._far, broker.services, self._around, introduction)
        self._far.ends.append(self._end)
        self.answered(encode_reply("")[INT32.size :])

    def _hang_up(self) -> None:
        if self._end is not None:
            self._end.hang_up()

    def _receive(self) -> None:
        received = memoryview(self._back.popleft())
        while received and not self._is_over and self._gets_through():
            room = self._protocol.get_buffer(RECEIVED_BYTES)
            count = min(len(room), len(received))
            room[:count] = received[:count]
            self._protocol.buffer_updated(count)
            received = received[count:]

    def _lose(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._protocol.connection_lost(None)

    def _gets_through(self) -> bool:
        is_cut = self._near.agent.is_cut_from_agents or self._far.agent.is_cut_from_agents
        self._is_stalled = self._is_stalled or is_cut
        return not self._is_stalled

    def _later(self, act: Callable[[], None], life: Life) -> None:
        delay_s = self._around.chance.expovariate(1.0) * self._around.plan.delay_s
        self._around.loop.call_later(delay_s, act, context=life.context)


def _finish(done: "asyncio.Future[None]") -> None:
    if not done.done():
        done.set_result(None)
