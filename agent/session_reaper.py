"""Ends the sessions of agents that are gone without ending them (safety rule S12).

Rule: a session is ended only once the ledger says that its lease is gone: it never comes back then, so the entry is
true whenever it is applied. Until then its broker is told to clients, and what it left behind may not be deleted (S6).
"""

import logging

from agent.clock import Clock
from agent.ledger_writer import LedgerWriter
from agent.metadata_loop import MetadataLoop
from coordinator.commands import EndSession
from coordinator.log import Ledger
from protocol.limits import SESSION_CHECK_INTERVAL_S
from protocol.types import SessionId

log = logging.getLogger(__name__)


class SessionReaper:
    """Every agent has one: whoever sees it first ends the session, a second entry is refused and does no harm."""

    def __init__(self, *, ledger: Ledger, metadata: MetadataLoop, writer: LedgerWriter, clock: Clock) -> None:
        self._ledger = ledger
        self._metadata = metadata
        self._writer = writer
        self._clock = clock

    async def run(self) -> None:
        """End what is dead, at once and again and again, for ever."""
        while True:
            await self.reap()
            await self._clock.sleep(SESSION_CHECK_INTERVAL_S)

    async def reap(self) -> list[SessionId]:
        """End every session but this agent's own whose lease is gone, and return them."""
        ended: list[SessionId] = []
        for session, known in list(self._metadata.state.sessions.items()):
            if session == self._writer.session or not await self._ledger.is_session_ended(known.name, session):
                continue
            await self._writer.submit(EndSession(session=session))
            log.info("ended the session of an agent that is gone", extra={"agent": known.name, "session": session})
            ended.append(session)
        return ended
