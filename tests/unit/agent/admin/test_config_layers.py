"""Which broker configs hold on an agent, while they are altered."""

from coordinator.configs.config_types import ConfigSource
from coordinator.state.state import ClusterState
from tests.support.agent.broker_configs import broker_configs


def test_the_nearest_place_counts() -> None:
    state = ClusterState.empty("c", 1)
    configs = broker_configs({"a": "1", "b": "1", "c": "1"}, state)
    state.broker_configs = {"": {"b": "2", "c": "2"}, "1": {"c": "3"}, "2": {"a": "4"}}
    assert dict(configs) == {"a": "1", "b": "2", "c": "3"}
    assert (configs["c"], configs.get("d"), len(configs)) == ("3", None, 3)


def test_it_is_the_same_mapping_until_something_is_altered() -> None:
    state = ClusterState.empty("c", 1)
    configs = broker_configs({"a": "1"}, state)
    before = configs.now
    assert configs.now is before
    state.broker_configs = {"": {"a": "2"}}
    assert configs.now == {"a": "2"}
    assert before == {"a": "1"}


def test_every_place_is_reported_with_its_source() -> None:
    state = ClusterState.empty("c", 1)
    state.broker_configs = {"": {"a": "2"}}
    configs = broker_configs({"a": "1"}, state)
    assert list(configs.layers) == [
        (ConfigSource.DYNAMIC_BROKER, {}),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, {"a": "2"}),
        (ConfigSource.STATIC_BROKER, {"a": "1"}),
    ]
