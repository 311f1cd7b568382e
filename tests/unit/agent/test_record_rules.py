"""What a topic's configs say about records, and for how many topics that is kept."""

from agent.record_rules import RecordRulesOfTopics
from coordinator.state import TopicState
from protocol.limits import RECORD_RULES_CACHED_MAX
from protocol.types import Milliseconds, TopicId


def topic(number: int, **configs: str) -> TopicState:
    return TopicState(
        topic_id=TopicId(number.to_bytes(16)),
        name=f"t{number}",
        configs={name.replace("_", "."): value for name, value in configs.items()},
        partitions=[],
        created_ms=Milliseconds(0),
    )


def test_rules_are_worked_out_from_the_topics_own_configs_and_the_brokers() -> None:
    rules = RecordRulesOfTopics({"message.max.bytes": "5"}).rules(
        topic(1, message_timestamp_type="LogAppendTime", cleanup_policy="compact")
    )
    assert (rules.message_bytes_max, rules.is_compacted, rules.uses_append_time) == (5, True, True)


def test_rules_are_kept_until_the_configs_are_others() -> None:
    of_topics = RecordRulesOfTopics({})
    orders = topic(1)
    assert of_topics.rules(orders) is of_topics.rules(orders)
    orders.configs = {"max.message.bytes": "7"}
    assert of_topics.rules(orders).message_bytes_max == 7


def test_rules_of_topics_that_came_and_went_are_not_kept_for_ever() -> None:
    of_topics = RecordRulesOfTopics({})
    for number in range(RECORD_RULES_CACHED_MAX + 10):
        of_topics.rules(topic(number))
    assert len(of_topics._kept) == RECORD_RULES_CACHED_MAX
