"""Safety rule S3: who is asked for a digest, what is kept, and what it says of each agent."""

import pytest

from coordinator.apply.digest_comparison import DigestVerdict, judge, may_be_published
from coordinator.codec.snapshot_wire import SHAPE_BYTES, snapshot_shape
from coordinator.commands.commands import Command, CompareDigest, Done, EndSession, Rejected, ReportDigest
from coordinator.commands.rules import RULES_FIRST
from coordinator.snapshot import decode_snapshot, digest, encode_snapshot
from coordinator.state.state import DigestComparison
from protocol.errors import ErrorCode
from protocol.types import Position, SessionId
from tests.support.commands.commands import Cluster, start

A, B, C = bytes(32), b"b" * 32, b"c" * 32


def three() -> Cluster:
    """Three sessions."""
    cluster = Cluster()
    for number, name in enumerate("abc", 1):
        cluster.do(start(name, node=number), session=number)
    return cluster


def asked() -> Cluster:
    cluster = three()
    assert cluster.do(CompareDigest(shape=snapshot_shape(RULES_FIRST))) == Done()
    return cluster


def found(cluster: Cluster) -> DigestComparison:
    assert cluster.state.comparison is not None
    return cluster.state.comparison


def report(cluster: Cluster, session: int, said: bytes | None, *, position: int = 4) -> bool:
    outcome = cluster.do(ReportDigest(position=Position(position), digest=said), session=session)
    assert outcome == Done() or (isinstance(outcome, Rejected) and outcome.error_code is ErrorCode.invalid_request)
    return outcome == Done()


class TestCommands:
    def test_s3_every_live_session_is_asked(self) -> None:
        comparison = found(asked())
        assert comparison.position == Position(4)
        assert comparison.shape == snapshot_shape(RULES_FIRST)
        assert comparison.digests == {SessionId(1): None, SessionId(2): None, SessionId(3): None}
        assert len(snapshot_shape(RULES_FIRST)) == SHAPE_BYTES

    def test_s3_what_is_reported_is_kept_once(self) -> None:
        cluster = asked()
        assert report(cluster, 2, B)
        assert not report(cluster, 2, A)
        assert found(cluster).digests == {SessionId(1): None, SessionId(2): B, SessionId(3): None}

    def test_s3_a_report_of_another_position_is_refused(self) -> None:
        assert not report(three(), 2, B)
        cluster = asked()
        assert not report(cluster, 2, B, position=3)
        cluster.do(CompareDigest(shape=snapshot_shape(RULES_FIRST)))
        assert not report(cluster, 2, B)
        assert report(cluster, 2, B, position=6)

    def test_s3_a_session_that_came_later_is_not_asked(self) -> None:
        cluster = asked()
        cluster.do(start("d", node=4), session=4)
        assert not report(cluster, 4, A)

    def test_s3_who_cannot_take_part_is_not_waited_for(self) -> None:
        cluster = asked()
        assert report(cluster, 3, None)
        assert found(cluster).digests.keys() == {SessionId(1), SessionId(2)}
        assert found(cluster).asked_count == 2
        assert not report(cluster, 3, A)

    @pytest.mark.parametrize("ending", [EndSession(session=SessionId(3)), start("c", node=3)])
    def test_s3_a_session_that_ends_is_waited_for_no_more(self, ending: Command) -> None:
        cluster = asked()
        cluster.do(ending, session=9 if not isinstance(ending, EndSession) else 1)
        assert found(cluster).digests.keys() == {SessionId(1), SessionId(2)}
        assert found(cluster).asked_count == 3

    def test_s3_what_a_session_said_before_it_ended_counts(self) -> None:
        cluster = asked()
        assert report(cluster, 3, C)
        cluster.do(EndSession(session=SessionId(3)))
        assert found(cluster).digests[SessionId(3)] == C

    def test_the_comparison_is_part_of_the_state(self) -> None:
        cluster = asked()
        before = digest(cluster.state)
        report(cluster, 2, B)
        assert digest(cluster.state) != before
        assert decode_snapshot(encode_snapshot(cluster.state)).comparison == found(cluster)


def comparison(*said: bytes | None, asked: int) -> DigestComparison:
    return DigestComparison(
        position=Position(5),
        shape=snapshot_shape(RULES_FIRST),
        digests={SessionId(row): each for row, each in enumerate(said)},
        asked_count=asked,
    )


@pytest.mark.parametrize(
    ("asked", "said", "own", "verdict", "is_published"),
    [
        (3, [A, A, A], A, DigestVerdict.AGREED, True),
        (1, [A], A, DigestVerdict.INCOMPLETE, True),
        (3, [A, A], A, DigestVerdict.AGREED, True),
        (3, [A, A, None], A, DigestVerdict.OPEN, True),
        (3, [A, None, None], A, DigestVerdict.OPEN, False),
        (2, [A, None], A, DigestVerdict.OPEN, True),
        (2, [None, None], A, DigestVerdict.OPEN, False),
        (3, [A, A, B], A, DigestVerdict.OTHERS_DIFFER, True),
        (3, [A, A, B], B, DigestVerdict.DIVERGED, False),
        (3, [A, A, None], B, DigestVerdict.DIVERGED, False),
        (4, [A, A, B, None], A, DigestVerdict.OPEN, False),
        (5, [A, A, A, B, None], A, DigestVerdict.OPEN, True),
        (3, [A, B, None], A, DigestVerdict.OPEN, False),
        (2, [A, B], A, DigestVerdict.UNDECIDED, False),
        (2, [A, B], B, DigestVerdict.UNDECIDED, False),
        (3, [A, B, C], A, DigestVerdict.UNDECIDED, False),
        (4, [A, A, B, B], B, DigestVerdict.UNDECIDED, False),
        (0, [], A, DigestVerdict.INCOMPLETE, False),
        (2, [A], A, DigestVerdict.INCOMPLETE, True),
        (3, [B], A, DigestVerdict.INCOMPLETE, False),
        (3, [B], B, DigestVerdict.INCOMPLETE, False),
        (3, [A, B], B, DigestVerdict.UNDECIDED, False),
    ],
)
def test_s3_more_than_half_of_those_asked_are_right(
    asked: int, said: list[bytes | None], own: bytes, verdict: DigestVerdict, *, is_published: bool
) -> None:
    assert judge(comparison(*said, asked=asked), own) is verdict
    assert may_be_published(comparison(*said, asked=asked), own) is is_published
