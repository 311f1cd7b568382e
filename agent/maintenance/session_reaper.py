"""Ends the sessions of agents that died without ending them (safety rule S12).

The ledger reports names whose lease has ended (`run_watch`). For names that the watch missed, `job` asks the ledger at
an interval. Until a session ends, its agent stays in clients' metadata, and its leftovers must not be deleted (S6).

After an outage of the whole ledger no agent has a lease, and all return within a second. So an agent that had no answer
for the time of a lease waits before it ends sessions of others: agents that leave metadata for a moment would be given
up by their clients. A new controller of Kafka, too, counts the brokers' time-outs from its own start (KIP-631).
"""

import asyncio
import logging
from contextlib import aclosing

from agent.ledger.ledger_client import LedgerClient
from agent.runtime.clock import Clock
from agent.runtime.periodic_job import PeriodicJob
from coordinator.commands.commands import Done, EndSession
from coordinator.ledger.port import LedgerUnavailable, OutcomeUnknown
from coordinator.state.rendezvous import owner_of
from coordinator.state.state import SessionState
from protocol.limits import (
    SESSION_CHECK_INTERVAL_S,
    SESSION_CHECKS_PER_FULL_CHECK,
    SESSION_END_SECOND_TRY_S,
    SESSION_RETURN_SECONDS_MAX,
    SESSION_WATCH_RETRY_S,
)
from protocol.types import SessionId

log = logging.getLogger(__name__)


class SessionReaper:
    """Every agent has one. Apply rejects a second `EndSession` for the same session."""

    def __init__(self, *, ledger: LedgerClient, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._checks_count = 0
        """The number of checks since the last full one."""

    @property
    def job(self) -> PeriodicJob:
        return PeriodicJob(
            name="sessions", interval_s=SESSION_CHECK_INTERVAL_S, run_once=self._check, is_first_at_once=True
        )

    async def _check(self) -> None:
        """End dead sessions. Most checks are for this agent's own share of the names."""
        # The next check after an error is a full one. A full check covers responsible agents that died.
        checks_count, self._checks_count = self._checks_count, 0
        await self.reap(is_own_share=checks_count > 0)
        self._checks_count = (checks_count + 1) % SESSION_CHECKS_PER_FULL_CHECK

    async def run_watch(self) -> None:
        """End sessions as soon as the ledger reports that their leases ended, indefinitely."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                try:
                    async with aclosing(self._ledger.backend.released_names()) as names:
                        async for name in names:
                            tasks.create_task(self._end_or_leave(name))
                except LedgerUnavailable as error:
                    log.debug("cannot watch the sessions of other agents, trying again", extra={"reason": str(error)})
                    await self._clock.sleep(SESSION_WATCH_RETRY_S)

    async def _end_or_leave(self, name: str) -> None:
        try:
            await self.end(name)
        except (LedgerUnavailable, OutcomeUnknown) as error:
            log.info(
                "could not end the session of another agent; the next check tries again",
                extra={"agent": name, "reason": str(error)},
            )

    async def _wait_for_others(self) -> None:
        """Wait after an outage of the ledger: others may have lost their sessions, and return."""
        return_end_s = self._ledger.returned_s + SESSION_RETURN_SECONDS_MAX
        seconds = return_end_s - self._clock.monotonic_s()
        if seconds > 0:
            await self._clock.sleep(seconds)

    async def end(self, name: str) -> list[SessionId]:
        """End the sessions of a name whose lease has ended, and return them. The responsible agent acts at once."""
        await self._wait_for_others()
        if self._is_responsible(name):
            # So that everything that was appended under the lease is applied, the start of the session too.
            await self._ledger.barrier()
        else:
            await self._clock.sleep(SESSION_END_SECOND_TRY_S)  # the responsible agent may be dead, too
        return await self._end_of({n: known for n, known in self._others().items() if known.name == name})

    async def reap(self, *, is_own_share: bool = False) -> list[SessionId]:
        """End all sessions of other agents without a lease, and return them."""
        await self._wait_for_others()
        # Read before the ledger is asked: these sessions had their leases by then. A later session may be missing from
        # the answer although it lives.
        others = self._others()
        if is_own_share:
            others = {n: known for n, known in others.items() if self._is_responsible(known.name)}
        if not others:
            return []
        live_names = set(await self._ledger.backend.live_names())
        return await self._end_of({n: known for n, known in others.items() if known.name not in live_names})

    def _others(self) -> dict[SessionId, SessionState]:
        sessions = self._ledger.state.sessions
        return {session: known for session, known in sessions.items() if session != self._ledger.session}

    def _is_responsible(self, name: str) -> bool:
        """Whether this agent ends the sessions of that name; rendezvous hashing chooses among agents of other names."""
        sessions = self._ledger.state.sessions
        others = {session: known for session, known in sessions.items() if known.name != name}
        return owner_of(name.encode(), others) == self._ledger.session

    async def _end_of(self, sessions: dict[SessionId, SessionState]) -> list[SessionId]:
        ended: list[SessionId] = []
        for session, known in sessions.items():
            # Only once the lease is gone for good: the session never comes back, so the entry is true whenever it is
            # applied (safety rule S12). If another session has the name, its first entry ends this one.
            if not await self._ledger.backend.is_session_ended(known.name, session):
                continue
            if isinstance(await self._ledger.propose(EndSession(session=session)), Done):
                _log_ended(session, known)
            ended.append(session)
        return ended


def _log_ended(session: SessionId, known: SessionState) -> None:
    extra = {"agent": known.name, "session": session}
    if known.is_draining:
        log.info("ended the session of an agent that stopped without ending it in time", extra=extra)
    else:
        log.warning(
            "ended the session of a dead agent: it was killed, hung, or lost the ledger; its clients move to other "
            "agents; start it again, unless it was removed on purpose",
            extra=extra,
        )
