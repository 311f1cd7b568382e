"""Agents that compare the digests of their states (safety rule S3). Called by `coordinator.apply.apply`.

The maintenance leader appends `CompareDigest` before it publishes a snapshot. Every agent that is live then computes
the digest behind that very append, and appends it by `ReportDigest`. So the ledger holds what all computed, and each
agent judges itself by it.

Rule: a digest that more than half of the asked agents computed is right, and no other one is. Why:
- The maintenance leader may be the one that is wrong, so its word counts as much as any other's, and no snapshot is
  published of a state that others computed otherwise: it would make the wrong state that of all agents, once the ledger
  is trimmed.
- Where agents differ and no digest has more than half, it is unknown which is right, and an agent that cannot know does
  not serve: all asked agents stop. What each had computed was in its memory alone, so after a restart it computes the
  state again from the last snapshot and the same entries. Its new session was not asked, so the old reports are no
  verdict on it.
- A session that ends without a report is not waited for, but it counts. Otherwise a few agents would be the majority
  while the others are cut off for a moment, and the others would be wrong when they are back. Where the reports agree,
  but are too few, nothing is decided, and the next comparison decides.
- An agent that has no digest (its program writes other canonical bytes, or it loaded a snapshot past the position) does
  not count.

What is in the state is small and bounded: a digest for each session that was live.
"""

from collections import Counter
from enum import Enum
from operator import itemgetter

from coordinator.commands.commands import CompareDigest, Done, Outcome, Rejected, ReportDigest
from coordinator.state.state import ClusterState, DigestComparison
from protocol.errors import ErrorCode
from protocol.types import SessionId


class DigestVerdict(Enum):
    """The verdict of a comparison on one agent."""

    OPEN = "open"
    """Some agents have not reported yet."""
    AGREED = "agreed"
    """All computed the same."""
    OTHERS_DIFFER = "others differ"
    """More than half computed what this agent did, and another agent did not: that one stops."""
    DIVERGED = "diverged"
    """More than half computed something else than this agent: it must not serve."""
    UNDECIDED = "undecided"
    """Some differ, and no digest has more than half: it is unknown which is right, so no asked agent may serve."""
    INCOMPLETE = "incomplete"
    """Too few reported a digest before their sessions ended: no verdict on any agent."""


def compare_digest(state: ClusterState, command: CompareDigest) -> Outcome:
    """Begin a comparison at this position, which replaces the one before: any agent may ask."""
    state.comparison = DigestComparison(
        position=state.position,
        shape=command.shape,
        digests=dict.fromkeys(state.sessions),
        asked_count=len(state.sessions),
    )
    return Done()


def report_digest(state: ClusterState, session_id: SessionId, command: ReportDigest) -> Outcome:
    """Keep what an agent computed; one that cannot take part is not waited for."""
    comparison = state.comparison
    if comparison is None or comparison.position != command.position:
        return Rejected(
            error_code=ErrorCode.invalid_request, reason=f"nothing is compared at position {command.position}"
        )
    if comparison.digests.get(session_id, b"") is not None:
        return Rejected(
            error_code=ErrorCode.invalid_request, reason=f"session {session_id} has nothing (more) to report"
        )
    if command.digest is None:
        del comparison.digests[session_id]
        comparison.asked_count -= 1
    else:
        comparison.digests[session_id] = command.digest
    return Done()


def excuse(state: ClusterState, session_id: SessionId) -> None:
    """Wait no more for a session that ends."""
    comparison = state.comparison
    if comparison is not None and comparison.digests.get(session_id, b"") is None:
        del comparison.digests[session_id]


def judge(comparison: DigestComparison, own: bytes) -> DigestVerdict:
    """The verdict on an agent that was asked and computed `own`. Any but `OPEN` stays until the next comparison begins.

    Only `AGREED` takes all reports: an agent that has not reported yet may still differ.
    """
    said = _said(comparison)
    is_complete = None not in comparison.digests.values()
    leading, count = max(said.items(), key=itemgetter(1), default=(own, 0))
    if 2 * count > comparison.asked_count > 1:
        if leading != own:
            return DigestVerdict.DIVERGED
        if is_complete:
            return DigestVerdict.AGREED if said.keys() == {own} else DigestVerdict.OTHERS_DIFFER
        return DigestVerdict.OPEN
    if not is_complete:
        return DigestVerdict.OPEN
    return DigestVerdict.UNDECIDED if len(said) > 1 else DigestVerdict.INCOMPLETE


def may_be_published(comparison: DigestComparison, own: bytes) -> bool:
    """Whether `own` may be published before all have reported: more than half computed it. Of two agents of
    which one does not speak, the other's word has to be enough, or the ledger would never be trimmed.
    """
    said = _said(comparison)
    return 2 * said[own] > comparison.asked_count or (comparison.asked_count <= 2 and said.keys() == {own})


def _said(comparison: DigestComparison) -> Counter[bytes]:
    return Counter(each for each in comparison.digests.values() if each is not None)
