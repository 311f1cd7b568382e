"""A CLIENT_METRICS resource says which metrics are wanted, how often, and of whom."""

from coordinator.configs.client_subscriptions import read_subscription


def test_what_is_not_set_has_kafkas_default() -> None:
    read = read_subscription({})
    assert (read.metrics, read.interval_ms, read.match) == ((), 300_000, {})


def test_lists_are_split() -> None:
    read = read_subscription({"metrics": "a., b.c ,*", "interval.ms": "100"})
    assert (read.metrics, read.interval_ms) == (("a.", "b.c", "*"), 100)


def test_of_two_patterns_about_one_thing_the_last_counts() -> None:
    match = " client_software_name = apache-.* , client_id=a,client_id=b"
    assert read_subscription({"match": match}).match == {"client_software_name": "apache-.*", "client_id": "b"}
