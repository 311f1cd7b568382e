"""Numbers of intake objects that a bucket lacks: what a copy of the bucket may have lost without any other sign.

An agent numbers the intake objects of a session without gaps. A number is missing where its put failed or was cut off,
so that nothing of it was acknowledged, or where the object was lost after its put: in a copy of a bucket, as of a lost
region, that had not arrived whole. Nothing in the bucket shows which, and the newest objects leave no gap.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from agent.recovery.bucket_listing import BucketContents
from coordinator.apply.objects import is_key_known
from coordinator.recovery.lost_objects import is_bridge_session
from coordinator.state.state import ClusterState
from protocol.types import ObjectNumber, SessionId
from storage.refs import intake_key, number_of_intake_key, session_of_key


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberGap:
    """Intake objects of a session that are not in the bucket, though a later one is."""

    session: SessionId
    first: ObjectNumber
    last: ObjectNumber

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    @property
    def text(self) -> str:
        """The keys of the first and the last object."""
        first = intake_key(self.session, self.first)
        return first if self.count == 1 else f"{first} to {intake_key(self.session, self.last)}"


def number_gaps(state: ClusterState, bucket: BucketContents) -> list[NumberGap]:
    """The gaps behind what a snapshot's state knows, before any object is committed to it: earlier objects may have
    been archived and deleted.
    """
    newest_known: dict[SessionId, int] = {}
    for known in state.objects.values():
        session, number = session_of_key(known.key), number_of_intake_key(known.key)
        if session is not None and number is not None:
            newest_known[session] = max(newest_known.get(session, -1), number)
    gaps: list[NumberGap] = []
    for session, metas in sorted(bucket.intake.items()):
        if session in state.sessions_ended or is_bridge_session(session):
            continue
        unknown = [number_of_intake_key(meta.key) for meta in metas if not is_key_known(state, meta.key)]
        numbers = sorted(number for number in unknown if number is not None)
        # A session after the snapshot began with 0.
        before = newest_known.get(session, -1 if session > state.position else None)
        gaps += _gaps(session, before, numbers)
    return gaps


def _gaps(session: SessionId, before: int | None, numbers: Iterable[int]) -> list[NumberGap]:
    """The gaps between sorted numbers, and between `before` and the first one."""
    gaps: list[NumberGap] = []
    for number in numbers:
        if before is not None and number > before + 1:
            gaps.append(NumberGap(session=session, first=ObjectNumber(before + 1), last=ObjectNumber(number - 1)))
        before = number
    return gaps
