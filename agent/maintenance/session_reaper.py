"""Ends the sessions of agents that are gone without ending them (safety rule S12).

Rule: a session is ended only once the ledger says that its lease is gone: it never comes back then, so the entry is
true whenever it is applied. Until then its broker is told to clients, and what it left behind may not be deleted (S6).

The ledger tells whose lease has ended, and one agent of all, by rendezvous, acts at once; the others a little later,
should that one be gone too. What nobody was told is found by asking, now and then, by the agent that is responsible:
once for the names of all sessions, and then about each that seems to be gone. A session whose name another one holds
is left to that: its first entry ends it.
"""

import asyncio
import logging
from contextlib import aclosing

from agent.ledger.apply_loop import ApplyLoop
from agent.ledger.ledger_writer import LedgerWriter
from agent.runtime.clock import Clock
from coordinator.commands.commands import Done, EndSession
from coordinator.ledger.port import Ledger, LedgerUnavailable, OutcomeUnknown
from coordinator.state.rendezvous import owner_of
from coordinator.state.state import SessionState
from protocol.limits import (
    SESSION_CHECK_INTERVAL_S,
    SESSION_CHECKS_PER_FULL_CHECK,
    SESSION_END_SECOND_TRY_S,
    SESSION_WATCH_RETRY_S,
)
from protocol.types import SessionId

log = logging.getLogger(__name__)


class SessionReaper:
    """Every agent has one. A second entry for the same session is refused and does no harm."""

    def __init__(self, *, ledger: Ledger, metadata: ApplyLoop, writer: LedgerWriter, clock: Clock) -> None:
        self._ledger = ledger
        self._metadata = metadata
        self._writer = writer
        self._clock = clock

    async def run(self) -> None:
        """End what is dead, at once and again and again, for ever: mostly what this agent is responsible for."""
        while True:
            await self.reap()
            for _ in range(SESSION_CHECKS_PER_FULL_CHECK - 1):
                await self._clock.sleep(SESSION_CHECK_INTERVAL_S)
                await self.reap(is_own_share=True)
            await self._clock.sleep(SESSION_CHECK_INTERVAL_S)

    async def run_watch(self) -> None:
        """End what the ledger says has ended, for ever."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                try:
                    async with aclosing(self._ledger.released_names()) as names:
                        async for name in names:
                            tasks.create_task(self._end_or_leave(name))
                except LedgerUnavailable as error:
                    log.debug("cannot watch the sessions of other agents, trying again", extra={"reason": str(error)})
                    await self._clock.sleep(SESSION_WATCH_RETRY_S)

    async def _end_or_leave(self, name: str) -> None:
        try:
            await self.end(name)
        except (LedgerUnavailable, OutcomeUnknown) as error:
            log.info("could not end a session, left for later", extra={"agent": name, "reason": str(error)})

    async def end(self, name: str) -> list[SessionId]:
        """End the sessions under a name whose lease is gone, and return them; at once where that is for this agent."""
        if self._is_responsible(name):
            # What was appended under the lease is applied then, the session's beginning too.
            await self._metadata.barrier()
        else:
            await self._clock.sleep(SESSION_END_SECOND_TRY_S)
        return await self._end_of({n: known for n, known in self._others().items() if known.name == name})

    async def reap(self, *, is_own_share: bool = False) -> list[SessionId]:
        """End every session but this agent's own whose name is held no longer, and return them."""
        # Before the ledger is asked: what is in the state by then had its name, what begins later may not be listed.
        others = self._others()
        if is_own_share:
            others = {n: known for n, known in others.items() if self._is_responsible(known.name)}
        if not others:
            return []
        live_names = set(await self._ledger.live_names())
        return await self._end_of({n: known for n, known in others.items() if known.name not in live_names})

    def _others(self) -> dict[SessionId, SessionState]:
        sessions = self._metadata.state.sessions
        return {session: known for session, known in sessions.items() if session != self._writer.session}

    def _is_responsible(self, name: str) -> bool:
        """Whether this agent sees to the sessions of that name: one of those that have another does."""
        sessions = self._metadata.state.sessions
        others = {session: known for session, known in sessions.items() if known.name != name}
        return owner_of(name.encode(), others) == self._writer.session

    async def _end_of(self, sessions: dict[SessionId, SessionState]) -> list[SessionId]:
        ended: list[SessionId] = []
        for session, known in sessions.items():
            if not await self._ledger.is_session_ended(known.name, session):
                continue
            if isinstance(await self._writer.propose(EndSession(session=session)), Done):
                _log_ended(session, known)
            ended.append(session)
        return ended


def _log_ended(session: SessionId, known: SessionState) -> None:
    extra = {"agent": known.name, "session": session}
    if known.is_draining:
        log.info("ended the session of an agent that was stopped, and did not end it in time", extra=extra)
    else:
        log.warning(
            "ended the session of an agent that is gone: it was killed, stood still, or lost the ledger; its clients "
            "go to other agents; start it again, unless it was meant to go",
            extra=extra,
        )
