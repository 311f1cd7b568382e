"""From when on the grace of a released object counts (safety rules S2 and S6)."""

from coordinator.commands.commands import DeleteTopic, Done, ForgetObjects, ReportTime
from coordinator.snapshot import decode_snapshot, digest, encode_snapshot
from coordinator.state.state import NO_TIME
from tests.support.commands.commands import TOPIC, Batch, Cluster

KEY = "intake/0000000000000001/0000000000000004"


def released_untimed() -> Cluster:
    """At 50 somebody told the time; by an agent whose clock is unchecked, who knows when, an object was released."""
    cluster = Cluster.started()
    cluster.produce(4, Batch())
    cluster.do(ReportTime(), time_ms=50)
    assert cluster.do(DeleteTopic(topic_id=TOPIC)) == Done()
    return cluster


def test_s2_the_grace_of_what_was_released_while_nobody_told_the_time_begins_when_somebody_does() -> None:
    cluster = released_untimed()
    assert cluster.state.released == {KEY: NO_TIME}
    cluster.do(ReportTime())
    assert cluster.state.released == {KEY: NO_TIME}
    cluster.do(ReportTime(), time_ms=900)
    cluster.do(ReportTime(), time_ms=901)
    assert cluster.state.released == {KEY: 900}


def test_a_time_that_is_behind_the_state_is_a_time_too() -> None:
    cluster = released_untimed()
    cluster.do(ReportTime(), time_ms=40)
    assert cluster.state.released == {KEY: 50}


def test_s3_an_agent_that_begins_from_a_snapshot_meanwhile_does_the_same() -> None:
    cluster, other = released_untimed(), released_untimed()
    other.state = decode_snapshot(encode_snapshot(cluster.state))
    for each in (cluster, other):
        each.do(ReportTime(), time_ms=900)
    assert other.state.released == {KEY: 900}
    assert digest(other.state) == digest(cluster.state)


def test_what_is_forgotten_meanwhile_stays_forgotten() -> None:
    cluster = released_untimed()
    cluster.do(ForgetObjects(object_keys=(KEY,)))
    cluster.do(ReportTime(), time_ms=900)
    assert cluster.state.released == {}
