"""Decides which keys the garbage collector may delete, and which it may only report (safety rule S6).

Rule: decisions only; the caller lists, deletes, and proposes ForgetObjects and ForgetSessions once that is done. Time
is the state's, never a clock's (safety rule S2). Whatever is not surely garbage stays: an object that the state names,
one whose session is alive or not known, a key of another shape.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from protocol.limits import ENDED_SESSION_LISTED_AGAIN_MS
from protocol.types import Milliseconds, Position, SessionId, TopicId
from storage.refs import session_of_key, topic_of_copy

UNTIMED: Final = 0
"""The release time of an object that was released by an entry without a time; no later entry has carried one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedVerdict:
    """The verdict on listed keys. Keys in no tuple stay, and are not reported."""

    deletable: tuple[str, ...]
    """Left behind by ended sessions whose grace has passed, never committed."""
    waiting: tuple[str, ...]
    """The same of sessions whose grace has not passed."""
    unknown: tuple[str, ...]
    """Keys of no shape that Penstock writes, or of a session that this state never had or has forgotten: report
    them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsPlan:
    """Which ended sessions' objects to look for. After the listing and the deletions of `last`, forget those
    sessions."""

    first: tuple[SessionId, ...]
    last: tuple[SessionId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedPlan:
    """The verdict on released objects whose grace has passed."""

    deletable: tuple[str, ...]
    needs_snapshot: bool
    """Whether others would be deletable too, were there a snapshot of the present."""


def plan_released(
    released: Mapping[str, Milliseconds],
    *,
    time_ms: Milliseconds,
    covered_ms: Milliseconds,
    grace_ms: int,
    count_max: int,
    failed: Container[str] = (),
    postponed: Container[str] = (),
) -> ReleasedPlan:
    """Released objects whose grace has passed at the state's `time_ms`: longest released first, then by key.

    An object goes only where the newest durable snapshot knows that it was released, because a recovery begins there,
    and would find a hole in the place of an object that the snapshot refers to. `covered_ms` is the state's time at a
    position which that snapshot covers: what was released at an earlier time was released before it. `grace_ms` is no
    shorter than the life of a reader's plan; that of what is `UNTIMED` has not begun. At most `count_max` keys are
    returned. What the store did not delete before (`failed`) comes last, and what is `postponed` not at all: one object
    that cannot be deleted holds up no other.
    """
    due = sorted(
        (key in failed, released_ms, key)
        for key, released_ms in released.items()
        if released_ms != UNTIMED and time_ms - released_ms >= grace_ms and key not in postponed
    )
    deletable = [key for _, released_ms, key in due if released_ms < covered_ms]
    needs_snapshot = any(covered_ms <= released_ms < time_ms for _, released_ms, _ in due)
    return ReleasedPlan(deletable=tuple(deletable[:count_max]), needs_snapshot=needs_snapshot)


def judge_listed(
    keys: Iterable[str],
    *,
    position: Position,
    referenced: Container[str],
    released: Container[str],
    sessions_live: Container[SessionId],
    sessions_ended: Mapping[SessionId, Milliseconds],
    topics: Container[TopicId],
    time_ms: Milliseconds,
    grace_ms: int,
) -> ListedVerdict:
    """The verdict on `keys`, found in the bucket, by the state at `position`. The state may be older or newer than the
    list.

    An ended session commits nothing any more, so what it wrote and the state does not name stays garbage; it is deleted
    once the grace of that very session has passed (`is_session_due`). A session that began above `position` is younger
    than the state: its objects stay. Copies of a table's metadata, which carry no session, belong to their topic.
    """
    deletable: list[str] = []
    waiting: list[str] = []
    unknown: list[str] = []
    for key in keys:
        if key in referenced or key in released:
            continue
        session = session_of_key(key)
        if (topic_id := topic_of_copy(key)) is not None:
            if topic_id not in topics:
                deletable.append(key)
        elif session is None:
            unknown.append(key)
        elif (ended_ms := sessions_ended.get(session)) is not None:
            is_due = is_session_due(ended_ms, time_ms=time_ms, grace_ms=grace_ms)
            (deletable if is_due else waiting).append(key)
        elif session not in sessions_live and session <= position:
            unknown.append(key)
    return ListedVerdict(deletable=tuple(deletable), waiting=tuple(waiting), unknown=tuple(unknown))


class EntryFate(Enum):
    """The knowledge of the entry for which a live session put objects."""

    UNPROPOSED = "unproposed"
    """No entry that names them was ever proposed, and none will be."""
    APPLIED = "applied"
    """It was seen applied: the objects are the state's."""
    REJECTED = "rejected"
    """It was seen applied as rejected, or never became an entry."""
    UNKNOWN = "unknown"
    """It may have been applied, or still be applied."""


def may_discard(fate: EntryFate, *, is_session_confirmed: bool) -> bool:
    """Whether a live session may delete what it put for an entry (safety rule S6, third case).

    Only where that is certain: an append of unknown outcome may be applied later, and its object is the only copy then.
    `is_session_confirmed`: within a lease's time the session lived; else a recovery may take its objects (S9).
    """
    return fate in (EntryFate.UNPROPOSED, EntryFate.REJECTED) and is_session_confirmed


def is_session_due(ended_ms: Milliseconds, *, time_ms: Milliseconds, grace_ms: int) -> bool:
    """Whether the grace of a session that ended at `ended_ms` has passed at the state's `time_ms`.

    The grace costs nothing, and leaves people the time to notice that a ledger was restored from a backup, in which an
    object looks left behind that was committed later (safety rule S9).
    """
    return time_ms - ended_ms >= grace_ms


def plan_sessions(
    sessions_ended: Mapping[SessionId, Milliseconds],
    *,
    time_ms: Milliseconds,
    grace_ms: int,
    already_listed: Container[SessionId],
    again_after_ms: int = ENDED_SESSION_LISTED_AGAIN_MS,
    kept: Container[SessionId] = (),
) -> SessionsPlan:
    """Which ended sessions to look for now: each once `grace_ms` after its end, and once more when late puts must have
    landed, `again_after_ms` after that.

    `sessions_ended` says when each ended; `already_listed` are those that this process has looked for since (looking
    again after a restart does no harm). Sessions that are `kept` left something that could not be deleted: they are not
    looked for a last time, because nothing of a session that is forgotten is ever deleted.
    """
    first: list[SessionId] = []
    last: list[SessionId] = []
    for session, ended_ms in sorted(sessions_ended.items()):
        if is_session_due(ended_ms, time_ms=time_ms, grace_ms=grace_ms + again_after_ms) and session not in kept:
            last.append(session)
        elif is_session_due(ended_ms, time_ms=time_ms, grace_ms=grace_ms) and session not in already_listed:
            first.append(session)
    return SessionsPlan(first=tuple(first), last=tuple(last))
