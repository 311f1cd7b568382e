"""Sends clients to the other agents before this one stops, so that a rolling restart costs them no error.

Rule: what was accepted is committed before anybody is told of other leaders, and answers of a connection keep their
order: so nothing that a client sends to the next agent overtakes what it sent here (safety rule S8). A client that is
sent away gets NOT_LEADER_OR_FOLLOWER, as in Kafka's controlled shutdown: it refreshes its metadata and repeats.
"""

import asyncio

from agent.runtime.clock import Clock
from protocol.limits import DRAIN_POLL_SECONDS, DRAIN_QUIET_SECONDS


class Draining:
    """Whether clients are sent away, and how many times one was. Handlers ask, the agent's drain decides."""

    def __init__(self) -> None:
        self.is_sending_away = False
        self.sent_away_count = 0
        self._do_others_lead = asyncio.Event()

    def begin(self) -> None:
        self.is_sending_away = True

    def announce(self) -> None:
        """From now on others lead, or nobody will: who was kept waiting is told."""
        self._do_others_lead.set()

    async def sends_away(self) -> bool:
        """Whether to send away the client that asks now; counted, so that the drain sees that clients still come.

        It is kept waiting until it can find another leader: if it looked too early it would come back, and wait longer.
        """
        if self.is_sending_away:
            self.sent_away_count += 1
            await self._do_others_lead.wait()
        return self.is_sending_away

    async def until_quiet(self, clock: Clock) -> None:
        """Return once nobody had to be sent away for a while."""
        seen_count, quiet_since_s = self.sent_away_count, clock.monotonic_s()
        while clock.monotonic_s() - quiet_since_s < DRAIN_QUIET_SECONDS:
            await clock.sleep(DRAIN_POLL_SECONDS)
            if self.sent_away_count != seen_count:
                seen_count, quiet_since_s = self.sent_away_count, clock.monotonic_s()
