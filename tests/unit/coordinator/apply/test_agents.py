"""What agents say of themselves, and drains that others ask for."""

import pytest

from coordinator.commands.agents import DescribeAgent, RequestDrain
from coordinator.commands.commands import Done, EndSession, Outcome, Rejected, StartDrain
from coordinator.commands.rules import RULES_AGENTS, RULES_NEWEST, RULES_QUOTA_USE
from coordinator.state.state import NO_TIME, SessionState
from protocol.errors import ErrorCode
from protocol.types import Milliseconds, SessionId
from tests.support.commands.commands import Cluster, start

DESCRIPTION = DescribeAgent(http_url="http://a:9644", version="1.2.3", started_ms=Milliseconds(5))


@pytest.fixture
def cluster() -> Cluster:
    """Two agents."""
    cluster = Cluster.started(RULES_NEWEST)
    cluster.do(start("b", node=2, rules=RULES_NEWEST), session=2)
    return cluster


def session_of(cluster: Cluster, number: int = 1) -> SessionState:
    return cluster.state.sessions[SessionId(number)]


def drain_of(number: int) -> RequestDrain:
    return RequestDrain(session=SessionId(number))


def rejection(outcome: Outcome) -> ErrorCode:
    assert isinstance(outcome, Rejected)
    return outcome.error_code


class TestDescriptions:
    def test_the_proposing_session_has_it(self, cluster: Cluster) -> None:
        assert cluster.do(DESCRIPTION) == Done()
        session, other = session_of(cluster), session_of(cluster, 2)
        assert (session.http_url, session.version, session.started_ms) == ("http://a:9644", "1.2.3", 5)
        assert (other.http_url, other.version, other.started_ms) == (None, None, NO_TIME)

    def test_a_later_one_replaces_it(self, cluster: Cluster) -> None:
        cluster.do(DESCRIPTION)
        assert cluster.do(DescribeAgent(http_url=None, version="2", started_ms=None)) == Done()
        session = session_of(cluster)
        assert (session.http_url, session.version, session.started_ms) == (None, "2", NO_TIME)

    def test_the_next_session_of_the_name_describes_itself_again(self, cluster: Cluster) -> None:
        cluster.do(DESCRIPTION)
        cluster.do(start(rules=RULES_NEWEST), session=3)
        assert session_of(cluster, 3).version is None

    def test_s3_older_rules_have_none(self) -> None:
        older = Cluster.started(RULES_QUOTA_USE)
        assert rejection(older.do(DESCRIPTION)) is ErrorCode.unsupported_version
        assert session_of(older).version is None


class TestRequests:
    def test_the_session_is_to_drain_and_does_not_yet(self, cluster: Cluster) -> None:
        assert cluster.do(drain_of(2)) == Done()
        assert session_of(cluster, 2).is_drain_requested
        assert not session_of(cluster, 2).is_draining
        assert cluster.do(drain_of(2)) == Done(), "asked for twice"

    def test_a_session_that_is_not_live_cannot_drain(self, cluster: Cluster) -> None:
        assert rejection(cluster.do(drain_of(7))) is ErrorCode.broker_id_not_registered

    def test_one_agent_stays(self, cluster: Cluster) -> None:
        cluster.do(drain_of(2))
        assert rejection(cluster.do(drain_of(1))) is ErrorCode.invalid_request
        assert not session_of(cluster).is_drain_requested
        cluster.do(start("c", node=3, rules=RULES_NEWEST), session=3)
        assert cluster.do(drain_of(1)) == Done()

    def test_an_agent_that_stops_is_none_that_stays(self, cluster: Cluster) -> None:
        cluster.do(StartDrain(session=SessionId(2)), session=2)
        assert rejection(cluster.do(drain_of(1))) is ErrorCode.invalid_request
        cluster.do(EndSession(session=SessionId(2)), session=2)
        assert rejection(cluster.do(drain_of(1))) is ErrorCode.invalid_request

    def test_s3_older_rules_have_none(self) -> None:
        older = Cluster.started(RULES_QUOTA_USE)
        older.do(start("b", node=2, rules=RULES_NEWEST), session=2)
        assert rejection(older.do(drain_of(2))) is ErrorCode.unsupported_version


class TestTimesOfDrains:
    def test_the_first_entry_counts(self, cluster: Cluster) -> None:
        cluster.do(StartDrain(session=SessionId(2)), time_ms=1_000)
        cluster.do(StartDrain(session=SessionId(2)), time_ms=2_000)
        assert session_of(cluster, 2).draining_since_ms == 1_000

    def test_s2_an_entry_without_a_time_gives_none(self, cluster: Cluster) -> None:
        cluster.do(StartDrain(session=SessionId(2)))
        assert session_of(cluster, 2).draining_since_ms == NO_TIME

    def test_s3_older_rules_have_none(self) -> None:
        older = Cluster.started(RULES_QUOTA_USE)
        older.do(StartDrain(session=SessionId(1)), time_ms=1_000)
        assert session_of(older).is_draining
        assert session_of(older).draining_since_ms == NO_TIME


def test_the_version_is_the_newest_one() -> None:
    assert RULES_AGENTS == RULES_NEWEST
