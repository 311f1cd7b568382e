"""The agent's session, and the writer of its commands to the ledger: in order, in groups, one append in flight.

In: commands. Out: a future for each, with its outcome once it is applied, or `OutcomeUnknown` where the session ended
before. `run` and `keep_session` are background tasks; `propose` only queues.
"""

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agent.ledger.apply_loop import ApplyLoop
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from agent.runtime.start_waits import StartNeed, StartWaits
from coordinator.codec.codec import Unwritable, WrittenEntry, write
from coordinator.commands.commands import (
    Command,
    EndSession,
    Outcome,
    Proposal,
    RaiseRules,
    Rejected,
    StartDrain,
    StartSession,
)
from coordinator.ledger.port import (
    Fenced,
    JointLedger,
    Ledger,
    LedgerEntry,
    LedgerFull,
    LedgerUnavailable,
    OutcomeUnknown,
    SessionHeld,
)
from coordinator.state.state import NO_POSITION
from protocol.errors import ErrorCode
from protocol.limits import (
    JOURNAL_GROUP_BYTES_MAX,
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
from storage.object_store import ObjectToPut

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedForRoom(Rejected):
    """There is no room for the object that the command names. Neither was put or appended."""


@dataclass(frozen=True, slots=True)
class _Pending:
    command: Command
    future: asyncio.Future[Outcome]
    stored: ObjectToPut | None = None
    """The object that the command names, where it is put together with the entry."""


@dataclass(slots=True)
class _EntryGroup:
    """A group of entries that one revision holds, and the commands that they carry."""

    group: list[_Pending] = field(default_factory=list)
    entries: list[LedgerEntry] = field(default_factory=list)
    entry_bytes: int = 0
    objects: list[ObjectToPut] = field(default_factory=list)
    object_bytes: int = 0

    def add(self, pending: _Pending, entry: LedgerEntry) -> None:
        """Add the next entry, and the object that its command names, if it names one."""
        self.group.append(pending)
        self.entries.append(entry)
        self.entry_bytes += len(entry.payload)
        if pending.stored is not None:
            self.objects.append(pending.stored)
            self.object_bytes += sum(map(len, pending.stored.parts))


class LedgerWriter:
    """Owns the agent's session. `propose` is synchronous, so the order of calls is the order in the ledger."""

    agent: StartSession
    """The agent's description of itself, for each session that it opens: set before `open`."""
    is_holding_rules: bool
    """Whether the agent is to hold the rules version of a cluster that has one: set before `open`."""
    is_taking_over_name = False
    """Whether the first session ends that of another process under the agent's name, instead of waiting for its end."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        apply_loop: ApplyLoop,
        clock: Clock,
        proposed_time: Callable[[], Milliseconds | None],
        metrics: Metrics,
    ) -> None:
        self._ledger = ledger
        self._joint = ledger if isinstance(ledger, JointLedger) else None
        self._apply_loop = apply_loop
        self._clock = clock
        self._proposed_time = proposed_time
        self._metrics = metrics
        self.start_waits = StartWaits(clock)
        """The waits of the agent's start: those that the first session has."""
        self._queue: deque[_Pending] = deque()
        self._has_work = asyncio.Event()
        """Set where a command is queued, or the session is lost."""
        self._number_next = 0
        self._is_session_lost = False
        self._is_live = asyncio.Event()
        self._is_draining = False
        self._is_closed = False
        self.before_append: Callable[[], bool] = lambda: False
        """Called before an append takes the queued commands. True where it made a task that queues more at once."""
        self.session = SessionId(-1)
        """The newest session that the ledger gave. Objects are put under `until_live` alone."""
        self.opened_s = -math.inf
        """The monotonic time at which the ledger gave the newest session."""
        self.returned_s = -math.inf
        """The last monotonic time at which the ledger answered after an outage that was longer than a lease."""
        self._answered_s: float | None = None
        self._confirmed_s = 0.0
        self._views: deque[tuple[float, Position]] = deque(maxlen=LEDGER_VIEWS_REMEMBERED_MAX)
        """The times of requests to the ledger, and its position in each answer, until that position is applied."""

    @property
    def takes_objects(self) -> bool:
        """Whether an object may be proposed together with the command that names it."""
        return self._joint is not None

    def propose(self, command: Command, stored: ObjectToPut | None = None) -> asyncio.Future[Outcome]:
        """Queue a command. The future gets its outcome once it is applied, or raises `OutcomeUnknown`.

        A command that cannot be an entry (unreadable, too large) is `Rejected` like one that apply rejects. So is a
        command for which the queue is full, with an error after which clients try again. To give up, cancel the future:
        a command that has no number yet is not appended then.

        stored: an object that the command names, and that is put by the same write (`takes_objects`). Where there is no
            room for it, the outcome is `RejectedForRoom`.
        """
        assert stored is None or self.takes_objects, "the ledger takes no objects"
        if len(self._queue) < LEDGER_COMMANDS_QUEUED_MAX:
            return self._enqueue(command, stored)
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        reason = f"{LEDGER_COMMANDS_QUEUED_MAX} commands wait for the ledger: try again later"
        future.set_result(Rejected(error_code=ErrorCode.request_timed_out, reason=reason))
        return future

    def _enqueue(self, command: Command, stored: ObjectToPut | None = None) -> asyncio.Future[Outcome]:
        """Queue a command whatever the queue's length: the end of the session has to get in."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._queue.append(_Pending(command, future, stored))
        self._has_work.set()
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
        delay_s, is_name_taken = LEDGER_RETRY_SECONDS_FIRST, False
        while True:
            # Taken before the request: the session is confirmed as of no later time (S4).
            request_s = self._clock.monotonic_s()
            try:
                self.session = await self._ledger.open_session(self.agent.name)
            except (SessionHeld, LedgerUnavailable) as error:
                if isinstance(error, SessionHeld) and await self._end_predecessor(error):
                    continue
                self._log_no_session(error, is_first=not is_name_taken)
                is_name_taken = isinstance(error, SessionHeld)
                self.start_waits.begin(StartNeed.NAME if is_name_taken else StartNeed.LEDGER)
                await self._clock.sleep(delay_s)
                delay_s = min(delay_s * 2, LEDGER_RETRY_SECONDS_MAX)
            else:
                self._number_next, self._is_session_lost, self._confirmed_s = 0, False, request_s
                self.opened_s = self._clock.monotonic_s()
                self._views.clear()
                self.start_waits.end()
                return

    async def _end_predecessor(self, held: SessionHeld) -> bool:
        """End the session that holds this agent's name, where the name is this agent's alone; False where it lives on.

        Only at the start: of two processes that claim one name the older one waits, and they do not end each other.
        What the session appended before is applied before this agent's first entry, and it appends nothing after (S12).
        """
        if not self.is_taking_over_name or self.session >= 0 or held.session is None:
            return False
        try:
            await self._ledger.revoke_session(self.agent.name, held.session)
        except LedgerUnavailable as error:
            log.debug("the ledger did not end a session, trying again", extra={"reason": str(error)})
            return False
        log.warning(
            "another session held this agent's name, and was ended: after a crash it is that of the dead process. If "
            "another agent runs under this name, it waits from now on; give one of them another --name",
            extra={"agent": self.agent.name, "session": held.session},
        )
        return True

    async def _start_session(self) -> bool:
        """Append the session's first entry, and return once it is applied; False where the session ended before."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        group = [_Pending(self.agent, future)]
        if self._is_first():
            group.append(_unawaited(RaiseRules(rules_version=self.agent.rules_version)))
        if self._is_draining:  # in the same append, so that no client is sent back to this agent in between
            group.append(_unawaited(StartDrain(session=self.session)))
        try:
            await self._append(group)
        except Fenced:
            self._apply_loop.abandon(self.session)
            return False
        try:
            outcome = await future
        except OutcomeUnknown:
            # A snapshot covers the entry, so its outcome is lost; the state says whether the session lives.
            return self.session in self._apply_loop.state.sessions
        if isinstance(outcome, Rejected):
            raise RuntimeError(f"the cluster rejected this agent's session: {outcome.reason}")
        return True

    def _is_first(self) -> bool:
        """Whether this agent is the cluster's first, as far as it knows: then the newest rules apply at once (S3).

        `RaiseRules` is in the same append as the session's start. An agent of an older version that starts at the same
        time is either there before, and apply rejects the raise, or it reads the raise and stops.
        """
        state = self._apply_loop.state
        is_new = not state.sessions and not state.sessions_ended
        # A cluster whose sessions are all forgotten has been there before: an older agent may come back to it.
        is_held = state.rules_hold_since_ms is not None or (self.is_holding_rules and state.position > NO_POSITION)
        return is_new and not is_held and state.rules_version < self.agent.rules_version

    async def until_live(self) -> SessionId:
        """The session that objects are put under, once its start is applied; waits while a session is replaced.

        So the bucket names no session that the ledger does not have. A start that finds one takes the ledger for an
        older copy, and does not go on (S9).
        """
        while not self._is_live.is_set():
            await self._is_live.wait()
        return self.session

    @property
    def confirmed_s(self) -> float:
        """The last monotonic time at which the session was alive and this agent's state was the ledger's (S4).

        -inf while no session is live: until the start of the next one is applied, the state may be as old as the loss
        of the last one. A watch may lag although the ledger answers other requests, so an answer counts only once the
        ledger's position in it is applied.
        """
        position = self._apply_loop.state.position
        while self._views and self._views[0][1] <= position:
            self._confirmed_s = max(self._confirmed_s, self._views.popleft()[0])
        return self._confirmed_s if self._is_live.is_set() else -math.inf

    @property
    def is_confirmed(self) -> bool:
        """Whether that is within a lease's time. Else the session may be over, and other agents may know more (S4)."""
        return self._clock.monotonic_s() - self.confirmed_s < LEDGER_SESSION_SECONDS

    def _log_no_session(self, error: SessionHeld | LedgerUnavailable, *, is_first: bool) -> None:
        agent = self.agent.name
        if isinstance(error, LedgerUnavailable):
            log.debug("the ledger gave no session, trying again", extra={"agent": agent, "reason": str(error)})
        elif is_first:
            log.warning(
                "another session holds this agent's name: waiting for it to end. After a crash that takes up to "
                f"{LEDGER_SESSION_SECONDS} s. If another agent runs under this name, give one of them another --name "
                "(docs/operations/troubleshooting.md, 'An agent waits with \"another session holds this agent's "
                "name\"')",
                extra={"agent": agent, "reason": str(error)},
            )

    async def start_drain(self) -> None:
        """Take this agent out of Metadata, so that clients go to other agents; later sessions drain from their start.

        Raises `OutcomeUnknown` where the session was replaced meanwhile: the new one is draining.
        """
        self._is_draining = True
        await self.propose(StartDrain(session=await self.until_live()))

    async def close(self) -> None:
        """End the session behind all queued commands. Where it was lost meanwhile, end the session that replaced it."""
        is_over = False
        while not is_over:
            session = self.session
            with contextlib.suppress(OutcomeUnknown):
                await self._enqueue(EndSession(session=session))
            is_over = session == self.session and session not in self._apply_loop.state.sessions
        self._is_closed = True
        self._is_live.clear()
        await self._ledger.close_session(self.session)

    async def run(self) -> None:
        """Append queued commands, and replace lost sessions. Runs until it is cancelled."""
        while True:
            await self._has_work.wait()
            if self._is_session_lost:
                await self._replace_session([])
                continue
            if self._queue and self.before_append():
                await self._clock.sleep(0)
            group = self._take()
            if not group:
                self._has_work.clear()
                continue
            try:
                await self._append(group)
            except Fenced:
                await self._replace_session(group)

    async def keep_session(self) -> None:
        """Renew the session's lease. Runs until it is cancelled; an expired session is replaced without any append."""
        # Three renewals in the time of a lease, as etcd's own clients do: one may be lost.
        pause_s = LEDGER_SESSION_SECONDS / 3
        while True:
            await self._clock.sleep(pause_s)
            pause_s = LEDGER_SESSION_SECONDS / 3
            session, request_s = self.session, self._clock.monotonic_s()
            try:
                await self._ledger.keep_session(session)
                head = await self._ledger.head()
            except LedgerUnavailable as error:
                log.debug("the session's lease was not renewed, trying again", extra={"reason": str(error)})
                pause_s = LEDGER_RENEWAL_RETRY_SECONDS
            except Fenced:
                # `run` may have replaced the session while this request was on its way, or `close` ended it.
                if session == self.session and not self._is_closed:
                    self._is_session_lost = True
                    self._is_live.clear()
                    self._has_work.set()
            else:
                self._confirm(session, request_s, head.position)

    def _confirm(self, session: SessionId, request_s: float, position: Position) -> None:
        """At `request_s` the session was alive, and the ledger ended at `position` or before."""
        now_s = self._clock.monotonic_s()
        if self._answered_s is not None and now_s - self._answered_s > LEDGER_SESSION_SECONDS:
            self.returned_s = now_s
        self._answered_s = now_s
        if session == self.session and not (self._views and request_s - self._views[-1][0] < LEDGER_VIEW_SECONDS_MIN):
            self._views.append((request_s, position))

    def _take(self) -> list[_Pending]:
        group: list[_Pending] = []
        while self._queue and len(group) < LEDGER_GROUP_ENTRIES_MAX:
            pending = self._queue.popleft()
            if not pending.future.done():  # else its caller gave up, and it has no number yet
                group.append(pending)
        return group

    async def _append(self, group: list[_Pending]) -> None:
        """Append a group, split where it exceeds what one append may hold (safety rule S10)."""
        waiting = deque(group)
        time_ms = self._proposed_time()
        while waiting:
            part = self._next_part(waiting, time_ms)
            if part.entries:
                await self._append_part(part)

    def _next_part(self, waiting: deque[_Pending], time_ms: Milliseconds | None) -> _EntryGroup:
        """The first of `waiting` that one append holds; these are taken out, with those that are `Rejected`."""
        part = _EntryGroup()
        # Renewals of the session and questions to the ledger wait for an append: of objects it has some, not all.
        while waiting and part.object_bytes < JOURNAL_GROUP_BYTES_MAX:
            pending = waiting[0]
            # The entry's number is in it. A command that does not fit is encoded again for the next part: by then the
            # number may be another one, because this part was rejected.
            written = self._written(pending, time_ms)
            if written is not None:
                if part.entries and part.entry_bytes + len(written.payload) > LEDGER_GROUP_BYTES_MAX:
                    break
                self._apply_loop.expect(self.session, self._number_next, written, pending.future)
                part.add(pending, LedgerEntry(number=self._number_next, payload=written.payload))
                self._number_next += 1
            waiting.popleft()
        return part

    async def _append_part(self, part: _EntryGroup) -> None:
        """Append what one revision holds. Where there is no room for its objects, append what has none."""
        try:
            await self._append_until_known(part.entries, part.objects)
        except LedgerFull as error:
            # Nothing of it was appended, so its numbers are free. What frees room must not wait behind the objects.
            self._number_next = part.entries[0].number
            for entry in part.entries:
                self._apply_loop.expect_no_more(self.session, entry.number)
            for pending in part.group:
                if pending.stored is not None and not pending.future.done():
                    rejection = RejectedForRoom(error_code=ErrorCode.request_timed_out, reason=str(error))
                    pending.future.set_result(rejection)
            await self._append([pending for pending in part.group if pending.stored is None])

    def _written(self, pending: _Pending, time_ms: Milliseconds | None) -> WrittenEntry | None:
        """The session's next entry; None where there can be none, after the command was `Rejected`.

        Such a command gets no number, and the other commands of its group are appended.
        """
        proposal = Proposal(time_ms=time_ms, command=pending.command)
        try:
            # In the form of the rules in force: every live agent has to read it, also one of an older version (S3).
            written = write(proposal, self._apply_loop.state.rules_version, self.session, self._number_next)
        except Unwritable as error:
            rejection, level = Rejected(error_code=ErrorCode.unknown_server_error, reason=str(error)), logging.ERROR
        else:
            entry_bytes = len(written.payload)
            if entry_bytes <= LEDGER_ENTRY_BYTES_MAX:
                return written
            rejection = Rejected(
                error_code=ErrorCode.invalid_request,
                reason=f"its ledger entry has {entry_bytes} bytes, {LEDGER_ENTRY_BYTES_MAX} is the most: ask for less",
            )
            level = logging.INFO  # the client's fault, and its answer says so; `Unwritable` is a bug of this program
        log.log(
            level,
            "a command cannot be written to the ledger; its request gets an error",
            extra={"command": type(pending.command).__name__, "reason": rejection.reason},
        )
        if not pending.future.done():
            pending.future.set_result(rejection)
        return None

    async def _append_until_known(self, entries: list[LedgerEntry], objects: Sequence[ObjectToPut] = ()) -> None:
        delay_s = LEDGER_RETRY_SECONDS_FIRST
        began_s = self._clock.monotonic_s()
        while True:
            try:
                if self._joint is not None and objects:
                    position = await self._joint.append_with(self.session, entries, objects)
                else:
                    position = await self._ledger.append(self.session, entries)
            except LedgerUnavailable as error:
                # The append may have happened. The same bytes under the same numbers are repeated, so that apply sees
                # the repeat as one (S10), until the ledger answers or fences the session.
                log.debug("the ledger did not answer an append, repeating it", extra={"reason": str(error)})
                await self._clock.sleep(delay_s)
                delay_s = min(delay_s * 2, LEDGER_RETRY_SECONDS_MAX)
            else:
                # As of the first try: the answer to a repeat has the position of the first copy.
                self._confirm(self.session, began_s, position)
                self._metrics.ledger_appends.inc()
                self._metrics.ledger_append_duration_seconds.observe(self._clock.monotonic_s() - began_s)
                return

    async def _replace_session(self, group: list[_Pending]) -> None:
        """Open a new session after the old one was fenced, then answer the old one's commands as unknown (S1)."""
        fenced = self.session
        self._metrics.sessions_lost.inc()
        log.warning(
            "this agent's session ended, opening another; commands in flight are answered as unknown, and clients "
            "repeat them",
            extra={"session": fenced},
        )
        # First: once the new session's start is applied, every entry of the old one that will ever be is applied, too.
        await self.open()
        # Commands without an outcome are never appended under the new session: the old one's copy may be applied (S1).
        for future in [*self._apply_loop.abandon(fenced), *(pending.future for pending in group)]:
            if not future.done():
                future.set_exception(OutcomeUnknown(f"session {fenced} ended before its entry was seen applied"))


def _unawaited(command: Command) -> _Pending:
    """A command whose outcome is not awaited: the state shows it. Its future is cancelled from the start."""
    ignored: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    ignored.cancel()
    return _Pending(command, ignored)
