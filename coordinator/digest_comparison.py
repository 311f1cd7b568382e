"""Agents that compare the digests of their states (safety rule S3). Part of `coordinator.apply`.

Whoever is about to publish a snapshot appends `CompareDigest`. Every agent that is live then computes the digest behind
that very append, and says it by `ReportDigest`. So the ledger holds what all computed, and each judges itself by it.

Rule: more than half of those who are to say something are right, whoever keeps house; nobody else is. Why:
- The housekeeper may be the one that is wrong, so its word counts as much as any other's, and no snapshot is published
  of a state that others computed otherwise: it would make the wrong state everybody's, once the ledger is trimmed.
- Where no digest has more than half (two agents that differ), nobody knows who is right, and an agent that cannot know
  does not serve: all stop. What each had computed was in its memory alone, so each that starts again computes it anew
  from the last snapshot that was agreed upon, and from the same entries.
- A session that ends without a word is not waited for, nor is an agent whose program writes other canonical bytes.

What is in the state is small and bounded: a digest for each session that was live.
"""

from collections import Counter
from enum import Enum

from coordinator.commands import CompareDigest, Done, Outcome, Refused, ReportDigest
from coordinator.state import ClusterState, DigestComparison
from protocol.errors import ErrorCode
from protocol.types import SessionId


class Verdict(Enum):
    """What a comparison says of an agent."""

    OPEN = "open"
    """Not everybody has said something."""
    AGREED = "agreed"
    """All computed the same."""
    OTHERS_DIFFER = "others differ"
    """More than half computed what this agent did, and somebody else did not: that one stops."""
    DIVERGED = "diverged"
    """More than half computed something else than this agent: it must not serve."""
    UNDECIDED = "undecided"
    """No digest has more than half: nobody knows who is right, so nobody may serve."""


def compare_digest(state: ClusterState, command: CompareDigest) -> Outcome:
    """Begin a comparison at this position, in the place of the one before: any agent may ask."""
    state.comparison = DigestComparison(
        position=state.position, shape=command.shape, digests=dict.fromkeys(state.sessions)
    )
    return Done()


def report_digest(state: ClusterState, session_id: SessionId, command: ReportDigest) -> Outcome:
    """Keep what an agent computed; one that cannot take part is not waited for."""
    comparison = state.comparison
    if comparison is None or comparison.position != command.position:
        return Refused(
            error_code=ErrorCode.invalid_request, reason=f"nothing is compared at position {command.position}"
        )
    if comparison.digests.get(session_id, b"") is not None:
        return Refused(
            error_code=ErrorCode.invalid_request, reason=f"session {session_id} has nothing (more) to report"
        )
    if command.digest is None:
        del comparison.digests[session_id]
    else:
        comparison.digests[session_id] = command.digest
    return Done()


def excuse(state: ClusterState, session_id: SessionId) -> None:
    """Wait no more for a session that ends."""
    comparison = state.comparison
    if comparison is not None and comparison.digests.get(session_id, b"") is None:
        del comparison.digests[session_id]


def judge(comparison: DigestComparison, own: bytes) -> Verdict:
    """What it says of an agent that computed `own`. One that is settled stays, until the next comparison begins."""
    said = Counter(each for each in comparison.digests.values() if each is not None)
    is_complete = said.total() == len(comparison.digests)
    is_same = said.keys() <= {own}
    if is_same:
        return Verdict.AGREED if is_complete else Verdict.OPEN
    (leading, count) = said.most_common(1)[0]
    if 2 * count <= len(comparison.digests):
        return Verdict.UNDECIDED if is_complete else Verdict.OPEN
    if leading != own:
        return Verdict.DIVERGED
    return Verdict.OTHERS_DIFFER if is_complete else Verdict.OPEN


def is_undisputed(comparison: DigestComparison, own: bytes) -> bool:
    """Whether `own` may be published although not everybody has said something: nobody spoke against it, or too few."""
    said = Counter(each for each in comparison.digests.values() if each is not None)
    return said.keys() <= {own} or 2 * said[own] > len(comparison.digests)
