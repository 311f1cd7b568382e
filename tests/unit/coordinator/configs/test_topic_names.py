"""Names of topics, as Kafka's Topic class judges them."""

import pytest

from coordinator.configs.topic_names import InvalidTopicName, shape, validate_topic_name


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 249, "__consumer_offsets", "...", "-"])
def test_names_that_a_topic_can_have(name: str) -> None:
    validate_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "café", "a/b", "a\n", "a:b"])
def test_names_that_no_topic_can_have(name: str) -> None:
    with pytest.raises(InvalidTopicName):
        validate_topic_name(name)


def test_names_collide_where_only_periods_and_underscores_differ() -> None:
    assert shape("a.b") == shape("a_b") != shape("a-b")
