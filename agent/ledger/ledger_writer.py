"""Appends this agent's commands to the ledger: in order, in groups, one append in flight.

Rule: an append whose outcome is unknown is repeated, the same bytes under the same numbers, until the ledger answers
(safety rule S10). A session that was fenced is replaced; what it left undecided is answered as unknown and never
appended under another session (safety rule S1). Nothing is written into the bucket under a session before its start
is applied, so that the bucket names no session that the ledger does not (safety rule S9). A command that no ledger can
take is refused to its own submitter; it gets no number, and the others of its group are appended. So is one that comes
when too many wait; one whose submitter gave up before it had a number is not appended.
"""

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from agent.ledger.apply_loop import ApplyLoop
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from coordinator.codec.codec import Unwritable, encode
from coordinator.commands.commands import (
    Command,
    EndSession,
    Outcome,
    Proposal,
    RaiseRules,
    Refused,
    StartDrain,
    StartSession,
)
from coordinator.ledger.port import Fenced, Ledger, LedgerEntry, LedgerUnavailable, OutcomeUnknown, SessionHeld
from protocol.errors import ErrorCode
from protocol.limits import (
    LEDGER_COMMANDS_QUEUED_MAX,
    LEDGER_ENTRY_BYTES_MAX,
    LEDGER_GROUP_BYTES_MAX,
    LEDGER_GROUP_ENTRIES_MAX,
    LEDGER_RENEWAL_RETRY_SECONDS,
    LEDGER_RETRY_SECONDS_FIRST,
    LEDGER_RETRY_SECONDS_MAX,
    LEDGER_SESSION_SECONDS,
    LEDGER_VIEW_SECONDS_MIN,
    LEDGER_VIEWS_REMEMBERED_MAX,
)
from protocol.types import Milliseconds, Position, SessionId

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Pending:
    command: Command
    future: asyncio.Future[Outcome]


class LedgerWriter:
    """Owns the agent's session. `propose` is synchronous, so the order of calls is the order in the ledger."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        metadata: ApplyLoop,
        clock: Clock,
        start: StartSession,
        proposed_time: Callable[[], Milliseconds | None],
        metrics: Metrics,
    ) -> None:
        self._ledger = ledger
        self._metadata = metadata
        self._clock = clock
        self._start = start
        self._proposed_time = proposed_time
        self._metrics = metrics
        self._queue: deque[_Pending] = deque()
        self._wanted = asyncio.Event()
        self._number_next = 0
        self._is_session_lost = False
        self._is_live = asyncio.Event()
        self._is_draining = False
        self._is_closed = False
        self.session = SessionId(-1)
        """The newest session that the ledger gave. For what it writes into the bucket, see `until_live`."""
        self._confirmed_s = 0.0
        self._views: deque[tuple[float, Position]] = deque(maxlen=LEDGER_VIEWS_REMEMBERED_MAX)
        """When the ledger was asked, and how far it had come then, of answers that are not applied as far as that."""

    @property
    def agent(self) -> StartSession:
        """The agent's description of itself, for each session that it opens."""
        return self._start

    def propose(self, command: Command) -> asyncio.Future[Outcome]:
        """Queue a command. The future gets its outcome once it is applied, or raises `OutcomeUnknown`.

        A command that cannot be an entry (unreadable, too large) is `Refused` like one that apply refuses; so is one
        that finds the queue full, with an error that clients try again after. Cancel the future to give up.
        """
        if len(self._queue) < LEDGER_COMMANDS_QUEUED_MAX:
            return self._queued(command)
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        reason = f"{LEDGER_COMMANDS_QUEUED_MAX} commands wait for the ledger: try again later"
        future.set_result(Refused(error_code=ErrorCode.request_timed_out, reason=reason))
        return future

    def _queued(self, command: Command) -> asyncio.Future[Outcome]:
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._queue.append(_Pending(command, future))
        self._wanted.set()
        return future

    async def open(self) -> None:
        """Begin a session, and return once its first entry is applied (it ends a predecessor of the same name, S12)."""
        self._is_live.clear()
        await self._open_session()
        while not await self._start_session():
            await self._open_session()
        if not self._is_session_lost:
            self._is_live.set()

    async def _open_session(self) -> None:
        delay_s, is_held = LEDGER_RETRY_SECONDS_FIRST, False
        while True:
            asked_s = self._clock.monotonic_s()
            try:
                self.session = await self._ledger.open_session(self._start.name)
            except (SessionHeld, LedgerUnavailable) as error:
                self._log_no_session(error, is_first=not is_held)
                is_held = isinstance(error, SessionHeld)
                await self._clock.sleep(delay_s)
                delay_s = min(delay_s * 2, LEDGER_RETRY_SECONDS_MAX)
            else:
                self._number_next, self._is_session_lost, self._confirmed_s = 0, False, asked_s
                self._views.clear()
                return

    async def _start_session(self) -> bool:
        """Append the session's first entry, and return once it is applied; False where the session ended before."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        group = [_Pending(self._start, future)]
        if self._is_first():
            group.append(_unawaited(RaiseRules(rules_version=self._start.rules_version)))
        if self._is_draining:
            group.append(_unawaited(StartDrain(session=self.session)))
        try:
            await self._append(group)
        except Fenced:
            self._metadata.abandon(self.session)
            return False
        try:
            outcome = await future
        except OutcomeUnknown:
            # A snapshot covers the entry: the state says whether the session began, and lives.
            return self.session in self._metadata.state.sessions
        if isinstance(outcome, Refused):
            raise RuntimeError(f"the cluster refused this agent's session: {outcome.reason}")
        return True

    def _is_first(self) -> bool:
        """Whether nobody was in this cluster before, as far as is known: then it begins with the newest rules (S3).

        The same append raises them, as any later raise does, so that an agent of an older version that comes meanwhile
        either is there first, and apply refuses the raise, or reads it and stops.
        """
        state = self._metadata.state
        is_new = not state.sessions and not state.sessions_ended
        return is_new and state.rules_version < self._start.rules_version

    async def until_live(self) -> SessionId:
        """The session that objects are written under now, once there is one: its start is in the ledger (S9).

        While a lost session is being replaced there is none, and whoever asks waits.
        """
        while not self._is_live.is_set():
            await self._is_live.wait()
        return self.session

    @property
    def confirmed_s(self) -> float:
        """The monotonic time as of which the session was alive and this agent has applied all there was (S4).

        Long ago while there is no session: until the start of the one that replaces it is applied, what this agent sees
        may be as old as when it lost the session before. So may what it sees over a watch that lags, though the ledger
        answers everything else: an answer counts once what was in the ledger then is applied.
        """
        position = self._metadata.state.position
        while self._views and self._views[0][1] <= position:
            self._confirmed_s = max(self._confirmed_s, self._views.popleft()[0])
        return self._confirmed_s if self._is_live.is_set() else -math.inf

    @property
    def is_confirmed(self) -> bool:
        """Whether that is within a lease's time; if not, the session may be over, and others may know more."""
        return self._clock.monotonic_s() - self.confirmed_s < LEDGER_SESSION_SECONDS

    def _log_no_session(self, error: SessionHeld | LedgerUnavailable, *, is_first: bool) -> None:
        agent = self._start.name
        if isinstance(error, LedgerUnavailable):
            log.debug("no session yet, trying again", extra={"agent": agent, "reason": str(error)})
        elif is_first:
            log.warning(
                "another session holds this agent's name: waiting for it to end. After a crash that takes up to "
                f"{LEDGER_SESSION_SECONDS} s; if another agent has this name, give one of them another with --name "
                "(docs/operations/troubleshooting.md, 'An agent waits with \"another session holds this agent's "
                "name\"')",
                extra={"agent": agent, "reason": str(error)},
            )

    async def start_drain(self) -> None:
        """Let clients be sent to the other agents, from this session and from each that replaces it.

        Raises `OutcomeUnknown` where the session was replaced meanwhile: the new one is draining.
        """
        self._is_draining = True
        await self.propose(StartDrain(session=await self.until_live()))

    async def close(self) -> None:
        """End the session cleanly, after everything submitted was appended; if it was lost, the one in its place."""
        is_over = False
        while not is_over:
            session = self.session
            with contextlib.suppress(OutcomeUnknown):
                await self._queued(EndSession(session=session))
            is_over = session == self.session and session not in self._metadata.state.sessions
        self._is_closed = True
        self._is_live.clear()
        await self._ledger.close_session(self.session)

    async def run(self) -> None:
        """Append what is submitted, for ever."""
        while True:
            await self._wanted.wait()
            if self._is_session_lost:
                await self._replace_session([])
                continue
            group = self._take()
            if not group:
                self._wanted.clear()
                continue
            try:
                await self._append(group)
            except Fenced:
                await self._replace_session(group)

    async def keep_session(self) -> None:
        """Renew the session's lease in time, for ever; one that is gone is replaced although nothing is appended."""
        pause_s = LEDGER_SESSION_SECONDS / 3
        while True:
            await self._clock.sleep(pause_s)
            pause_s = LEDGER_SESSION_SECONDS / 3
            session, asked_s = self.session, self._clock.monotonic_s()
            try:
                await self._ledger.keep_session(session)
                head = await self._ledger.head()
            except LedgerUnavailable as error:
                log.debug("the session's lease was not renewed, trying again", extra={"reason": str(error)})
                pause_s = LEDGER_RENEWAL_RETRY_SECONDS
            except Fenced:
                if session == self.session and not self._is_closed:
                    self._is_session_lost = True
                    self._is_live.clear()
                    self._wanted.set()
            else:
                self._confirm(session, asked_s, head.position)

    def _confirm(self, session: SessionId, asked_s: float, position: Position) -> None:
        """The session was alive when the ledger was asked, and had come to `position` by then, or later."""
        if session == self.session and not (self._views and asked_s - self._views[-1][0] < LEDGER_VIEW_SECONDS_MIN):
            self._views.append((asked_s, position))

    def _take(self) -> list[_Pending]:
        group: list[_Pending] = []
        while self._queue and len(group) < LEDGER_GROUP_ENTRIES_MAX:
            pending = self._queue.popleft()
            if not pending.future.done():
                group.append(pending)
        return group

    async def _append(self, group: list[_Pending]) -> None:
        """Append a group, split where it exceeds what one revision may hold (safety rule S10)."""
        entries: list[LedgerEntry] = []
        entries_bytes = 0
        time_ms = self._proposed_time()
        for pending in group:
            payload = self._payload(pending, time_ms)
            if payload is None:
                continue
            if entries and entries_bytes + len(payload) > LEDGER_GROUP_BYTES_MAX:
                await self._append_until_known(entries)
                entries, entries_bytes = [], 0
            entries.append(LedgerEntry(number=self._number_next, payload=payload))
            entries_bytes += len(payload)
            self._metadata.expect(self.session, self._number_next, pending.future)
            self._number_next += 1
        if entries:
            await self._append_until_known(entries)

    def _payload(self, pending: _Pending, time_ms: Milliseconds | None) -> bytes | None:
        """The bytes of the session's next entry, or None once its submitter was told why there can be none."""
        proposal = Proposal(time_ms=time_ms, command=pending.command)
        try:
            # In the form of the rules in force: every live agent has to read it, not this one alone (safety rule S3).
            payload = encode(proposal, self._metadata.state.rules_version, self.session, self._number_next)
        except Unwritable as error:
            refused, level = Refused(error_code=ErrorCode.unknown_server_error, reason=str(error)), logging.ERROR
        else:
            if len(payload) <= LEDGER_ENTRY_BYTES_MAX:
                return payload
            refused = Refused(
                error_code=ErrorCode.invalid_request,
                reason=f"its ledger entry has {len(payload)} bytes, {LEDGER_ENTRY_BYTES_MAX} is the most: ask for less",
            )
            level = logging.INFO  # a request too large for one entry: the client gets the error
        log.log(
            level,
            "a command cannot be written to the ledger",
            extra={"command": type(pending.command).__name__, "reason": refused.reason},
        )
        if not pending.future.done():
            pending.future.set_result(refused)
        return None

    async def _append_until_known(self, entries: list[LedgerEntry]) -> None:
        delay_s = LEDGER_RETRY_SECONDS_FIRST
        began_s = self._clock.monotonic_s()
        while True:
            try:
                position = await self._ledger.append(self.session, entries)
            except LedgerUnavailable as error:
                log.debug("the ledger did not answer an append, repeating it", extra={"reason": str(error)})
                await self._clock.sleep(delay_s)
                delay_s = min(delay_s * 2, LEDGER_RETRY_SECONDS_MAX)
            else:
                self._confirm(self.session, began_s, position)  # not later: of a repeat it is the first copy's
                self._metrics.ledger_appends.inc()
                self._metrics.ledger_append_duration_seconds.observe(self._clock.monotonic_s() - began_s)
                return

    async def _replace_session(self, group: list[_Pending]) -> None:
        """Open a new session after the old one was fenced, then give up on what the old one left undecided (S1)."""
        fenced = self.session
        self._metrics.sessions_lost.inc()
        log.warning("this agent's session ended, opening another", extra={"session": fenced})
        await self.open()
        for future in [*self._metadata.abandon(fenced), *(pending.future for pending in group)]:
            if not future.done():
                future.set_exception(OutcomeUnknown(f"session {fenced} ended before its entry was seen applied"))


def _unawaited(command: Command) -> _Pending:
    """A command whose outcome the state tells."""
    ignored: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    ignored.cancel()
    return _Pending(command, ignored)
