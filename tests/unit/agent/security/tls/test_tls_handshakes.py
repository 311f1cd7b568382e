"""The order in which steps of handshakes are made."""

import asyncio
from dataclasses import dataclass, field

from agent.runtime.metrics import Metrics
from agent.security.connections.fair_places import FairPlaces
from agent.security.tls.tls_handshakes import TlsHandshakes
from protocol.auth.tls_session import TlsFailed, TlsSession
from protocol.limits import TLS_HANDSHAKES_UNDER_WAY_MAX


@dataclass(eq=False, slots=True)
class Shaking:
    """A connection of one address."""

    address: str = "192.0.2.1"

    def abort(self) -> None: ...

    def give_way(self) -> None: ...


@dataclass(slots=True)
class Steps:
    """Handshakes whose steps write their names down."""

    handshakes: TlsHandshakes = field(default_factory=lambda: TlsHandshakes(Metrics(), FairPlaces(100)))
    made: list[str] = field(default_factory=list)
    outcomes: asyncio.Queue[bool | TlsFailed] = field(default_factory=asyncio.Queue)

    def submit(self, name: str, *, is_first: bool) -> Shaking:
        made = self.made

        class NamedSession(TlsSession):
            def __init__(self) -> None: ...

            def shake_hands(self) -> bool:
                made.append(name)
                return True

        connection = Shaking()
        assert self.handshakes.begin(connection)
        assert self.handshakes.submit(connection, NamedSession(), self.outcomes.put_nowait, is_first=is_first)
        return connection

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10):
            for _ in range(count):
                await self.outcomes.get()


async def test_handshakes_that_have_begun_come_before_new_ones_and_closed_ones_are_left_out() -> None:
    steps = Steps()
    for number in range(TLS_HANDSHAKES_UNDER_WAY_MAX):
        steps.submit(f"under way {number}", is_first=True)
    steps.submit("new 1", is_first=True)
    gone = steps.submit("gone", is_first=True)
    steps.submit("begun 1", is_first=False)
    gone_too = steps.submit("gone, too", is_first=False)
    steps.submit("begun 2", is_first=False)
    steps.submit("new 2", is_first=True)
    for connection in (gone, gone_too):
        steps.handshakes.end(connection)
    await steps.until(TLS_HANDSHAKES_UNDER_WAY_MAX + 4)
    assert steps.made[TLS_HANDSHAKES_UNDER_WAY_MAX:] == ["begun 1", "begun 2", "new 1", "new 2"]
    steps.handshakes.abort()
