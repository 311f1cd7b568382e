"""Redirects clients to the other agents before this one stops, so that they see no error in a rolling restart.

An agent that was asked to drain goes on as a spare: it serves again while no other agent does.

Accepted records are committed before any client reads of other leaders, and responses of a connection keep their order.
So no request to the next agent overtakes one to this agent (safety rule S8). A redirected client gets
NOT_LEADER_OR_FOLLOWER, as in Kafka's controlled shutdown: it refreshes its metadata and repeats the request. Behind one
address for all agents no metadata leads it away. There it loses its connection instead (`Services.redirects`), and the
next one leads to an agent that the load balancer still knows.
"""

import asyncio
from collections.abc import Callable

from agent.runtime.clock import Clock
from protocol.limits import DRAIN_POLL_SECONDS, DRAIN_QUIET_SECONDS


class Draining:
    """Whether clients are redirected, and how many times one was. Handlers read it, the agent's drain sets it."""

    def __init__(self, has_others: Callable[[], bool] = lambda: True) -> None:
        """`has_others`: whether an agent serves to which clients can go."""
        self.redirected_count = 0
        self._has_others = has_others
        self._has_begun = False
        self._do_others_lead = asyncio.Event()

    @property
    def is_redirecting(self) -> bool:
        return self._has_begun and self._has_others()

    def begin(self) -> None:
        self._has_begun = True

    def announce(self) -> None:
        """Releases the waiting clients: from now on other agents lead, or none will."""
        self._do_others_lead.set()

    async def redirects(self) -> bool:
        """Whether to redirect the client of this request; counted, so that the drain sees that clients still come.

        Waits until the client can find another leader. One that is redirected too early comes back, and waits longer.
        """
        if self.is_redirecting:
            self.redirected_count += 1
            await self._do_others_lead.wait()
        return self.is_redirecting

    async def until_quiet(self, clock: Clock) -> None:
        """Returns once no client had to be redirected for a while."""
        seen_count, quiet_since_s = self.redirected_count, clock.monotonic_s()
        while clock.monotonic_s() - quiet_since_s < DRAIN_QUIET_SECONDS:
            await clock.sleep(DRAIN_POLL_SECONDS)
            if self.redirected_count != seen_count:
                seen_count, quiet_since_s = self.redirected_count, clock.monotonic_s()
