"""A CLIENT_METRICS resource says which metrics are wanted, how often, and of whom."""

import pytest

from coordinator.client_subscriptions import read_subscription

JAVA = {"client_id": "orders", "client_software_name": "apache-kafka-java", "client_software_version": "4.3.1"}


def test_what_is_not_set_has_kafkas_default() -> None:
    read = read_subscription({})
    assert (read.metrics, read.interval_ms, read.match) == ((), 300_000, {})
    assert read.is_for(JAVA)
    assert read.is_for({})


def test_lists_are_split() -> None:
    read = read_subscription({"metrics": "a., b.c ,*", "interval.ms": "100"})
    assert (read.metrics, read.interval_ms) == (("a.", "b.c", "*"), 100)


@pytest.mark.parametrize(
    ("match", "is_meant"),
    [
        ("client_id=orders", True),
        ("client_id=order", False),
        ("client_id=order.*", True),
        (" client_software_name = apache-.*, client_software_version=4\\.3.* ", True),
        ("client_software_name=apache-.*,client_software_version=3.*", False),
        ("client_source_port=9", False),
        ("client_id=no,client_id=orders", True),
    ],
)
def test_every_pattern_has_to_match_the_whole_of_what_a_client_says(match: str, is_meant: bool) -> None:
    assert read_subscription({"match": match}).is_for(JAVA) is is_meant
