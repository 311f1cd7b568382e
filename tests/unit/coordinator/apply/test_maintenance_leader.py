"""One live session is the maintenance leader: claims, epochs, and what vacates the role."""

from coordinator.apply.maintenance_leader import needs_maintenance_leader
from coordinator.commands.commands import ClaimMaintenanceLeader, Done, EndSession, Rejected, StartDrain
from coordinator.snapshot import decode_snapshot, digest, encode_snapshot
from protocol.errors import ErrorCode
from protocol.types import SessionId
from tests.support.commands.commands import Cluster, start


def cluster_of_two() -> Cluster:
    cluster = Cluster()
    cluster.do(start("a", node=1), session=1)
    cluster.do(start("b", node=2), session=2)
    return cluster


def claim(cluster: Cluster, session: int, epoch: int) -> bool:
    outcome = cluster.do(ClaimMaintenanceLeader(epoch=epoch), session=session)
    if isinstance(outcome, Rejected):
        assert outcome.error_code is ErrorCode.not_controller
        return False
    assert outcome == Done()
    return True


def test_the_first_claim_of_an_epoch_wins() -> None:
    cluster = cluster_of_two()
    assert needs_maintenance_leader(cluster.state)
    assert claim(cluster, 2, 1)
    assert not claim(cluster, 1, 1)
    assert (cluster.state.maintenance_leader, cluster.state.maintenance_leader_epoch) == (SessionId(2), 1)


def test_nobody_takes_the_role_from_a_session_that_stays() -> None:
    cluster = cluster_of_two()
    assert claim(cluster, 1, 1)
    assert not claim(cluster, 2, 2)
    assert not claim(cluster, 1, 2)
    assert (cluster.state.maintenance_leader, cluster.state.maintenance_leader_epoch) == (SessionId(1), 1)


def test_an_epoch_that_is_not_the_next_is_refused() -> None:
    cluster = cluster_of_two()
    assert not claim(cluster, 1, 0)
    assert not claim(cluster, 1, 2)
    assert cluster.state.maintenance_leader is None


def test_the_end_of_a_session_vacates_the_role() -> None:
    cluster = cluster_of_two()
    assert claim(cluster, 1, 1)
    cluster.do(EndSession(session=SessionId(1)), session=2)
    assert cluster.state.maintenance_leader is None
    assert claim(cluster, 2, 2)


def test_so_does_a_successor_of_the_same_name() -> None:
    cluster = cluster_of_two()
    assert claim(cluster, 1, 1)
    cluster.do(start("a", node=1), session=3)
    assert cluster.state.maintenance_leader is None


def test_the_end_of_another_session_does_not() -> None:
    cluster = cluster_of_two()
    assert claim(cluster, 1, 1)
    cluster.do(EndSession(session=SessionId(2)))
    assert cluster.state.maintenance_leader == SessionId(1)


def test_who_stops_hands_the_role_over_and_gets_it_no_more() -> None:
    cluster = cluster_of_two()
    assert claim(cluster, 1, 1)
    cluster.do(StartDrain(session=SessionId(1)))
    assert needs_maintenance_leader(cluster.state)
    assert not claim(cluster, 1, 2)
    assert claim(cluster, 2, 2)
    assert cluster.state.maintenance_leader == SessionId(2)


def test_the_role_is_part_of_the_state() -> None:
    cluster = cluster_of_two()
    before = digest(cluster.state)
    assert claim(cluster, 1, 1)
    assert digest(cluster.state) != before
    back = decode_snapshot(encode_snapshot(cluster.state))
    assert (back.maintenance_leader, back.maintenance_leader_epoch) == (SessionId(1), 1)
