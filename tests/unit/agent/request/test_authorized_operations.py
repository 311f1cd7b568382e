"""The bits are those that Apache Kafka 4.3.1 tells without restrictions."""

from agent.request.authorized_operations import on_cluster, on_topic


def test_everything_is_allowed_on_topics_and_cluster() -> None:
    assert on_topic(is_asked=True) == 3576
    assert on_cluster(is_asked=True) == 8096


def test_nothing_is_told_to_who_does_not_ask() -> None:
    assert on_topic(is_asked=False) == on_cluster(is_asked=False) == -(2**31)
