"""Sends clients on while this agent is cut off: its session is not confirmed (S4), and other agents live.

A cut-off agent may be the only one without a ledger, and its clients would stay with it: to a producer a time-out is no
reason to look for another leader. So requests of which it took in nothing wait a short while, and are rejected as by an
agent that is not the leader. Metadata and FindCoordinator name other leaders and coordinators than this agent, so that
clients find another one; among the brokers it stays (`Services.brokers`). What this agent claims, and what it serves of
the state that it has, follows other rules and stays as it is.

Nothing here says that the session is over. Where the whole ledger is away every agent is cut off, and clients go from
one to the next until it answers.

Source: a broker of Kafka that has lost its leadership answers NOT_LEADER_OR_FOLLOWER before it appends
(kafka.server.ReplicaManager.appendToLocalLog, Partition.appendRecordsToLeader, Kafka 4.3); a broker whose heartbeats
the controller does not get is fenced, and left out of Metadata (KIP-631, broker.session.timeout.ms).
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from agent.ledger.ledger_client import LedgerClient
from agent.runtime.clock import Clock
from coordinator.state.state import SessionState
from protocol.limits import CUT_OFF_POLL_SECONDS
from protocol.types import SessionId


class CutOff:
    """Whether this agent is cut off. Not thread-safe: all methods run on the event loop."""

    def __init__(self, *, ledger: LedgerClient, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._is_over = asyncio.Event()
        """Set for the requests that wait now, once this agent is no longer cut off."""
        self._waiting_count = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_cut_off(self) -> bool:
        """Whether the session is not confirmed, and another agent serves that does not drain.

        Without such an agent clients have nowhere to go, and wait here as ever.
        """
        return not self._ledger.is_confirmed and not all(session.is_draining for session in self._others().values())

    @property
    def sessions(self) -> Mapping[SessionId, SessionState]:
        """The live sessions that lead and coordinate for clients: without this agent's while it is cut off."""
        return self._others() if self.is_cut_off else self._ledger.state.sessions

    async def redirects(self, seconds_max: float) -> bool:
        """Whether to send the client of this request on. Waits up to `seconds_max` for the ledger, and no longer."""
        if seconds_max > 0 and self.is_cut_off:
            self._waiting_count += 1
            try:
                if self._timer is None:
                    self._poll_later()
                with suppress(TimeoutError):
                    async with self._clock.timeout(seconds_max):
                        await self._is_over.wait()
            finally:
                self._waiting_count -= 1
        return self.is_cut_off

    def _others(self) -> Mapping[SessionId, SessionState]:
        # By name: while a session is replaced the one before is in the state, and it is this agent's, too.
        name = self._ledger.agent.name
        return {number: session for number, session in self._ledger.state.sessions.items() if session.name != name}

    def _poll_later(self) -> None:
        # One timer for all that wait: in an outage that may be every client.
        self._timer = asyncio.get_running_loop().call_later(CUT_OFF_POLL_SECONDS, self._poll)

    def _poll(self) -> None:
        self._timer = None
        if not self.is_cut_off:
            self._is_over.set()
            self._is_over = asyncio.Event()
        elif self._waiting_count:
            self._poll_later()
