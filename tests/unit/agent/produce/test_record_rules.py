"""What a topic's configs say about records, and for how many topics that is kept."""

from agent.produce.record_rules import RecordRulesOfTopics
from coordinator.state.state import ClusterState, TopicState
from protocol.limits import RECORD_RULES_CACHED_MAX
from protocol.types import Milliseconds, TopicId
from tests.support.agent.broker_configs import broker_configs


def topic(number: int, **configs: str) -> TopicState:
    return TopicState(
        topic_id=TopicId(number.to_bytes(16)),
        name=f"t{number}",
        configs={name.replace("_", "."): value for name, value in configs.items()},
        partitions=[],
        created_ms=Milliseconds(0),
        is_log_append_time="message_timestamp_type" in configs,
    )


def test_rules_are_worked_out_from_the_topics_own_configs_and_the_brokers() -> None:
    rules = RecordRulesOfTopics(broker_configs({"message.max.bytes": "5"})).rules(
        topic(1, message_timestamp_type="LogAppendTime", cleanup_policy="compact")
    )
    assert (rules.message_bytes_max, rules.is_compacted, rules.uses_append_time) == (5, True, True)


def test_rules_are_kept_until_the_configs_are_others() -> None:
    of_topics = RecordRulesOfTopics(broker_configs())
    orders = topic(1)
    assert of_topics.rules(orders) is of_topics.rules(orders)
    orders.configs = {"max.message.bytes": "7"}
    assert of_topics.rules(orders).message_bytes_max == 7


def test_rules_follow_what_is_altered_for_brokers() -> None:
    state = ClusterState.empty("c", 1)
    of_topics = RecordRulesOfTopics(broker_configs({"message.max.bytes": "5"}, state))
    first, second = topic(1), topic(2, max_message_bytes="3")
    assert [of_topics.rules(each).message_bytes_max for each in (first, second)] == [5, 3]
    state.broker_configs = {"": {"message.max.bytes": "6"}}
    assert [of_topics.rules(each).message_bytes_max for each in (first, second)] == [6, 3]
    state.broker_configs = {"": {"message.max.bytes": "6"}, "1": {"message.max.bytes": "7"}}
    assert [of_topics.rules(each).message_bytes_max for each in (first, second)] == [7, 3]


def test_rules_of_topics_that_came_and_went_are_not_kept_indefinitely() -> None:
    of_topics = RecordRulesOfTopics(broker_configs())
    for number in range(RECORD_RULES_CACHED_MAX + 10):
        of_topics.rules(topic(number))
    assert len(of_topics._cache) == RECORD_RULES_CACHED_MAX
