"""Where a broker config's value comes from, and what it would be otherwise."""

from agent.handlers.config_entries import broker_config_entries


def entry(name: str, broker_configs: dict[str, str]) -> dict[str, object]:
    (found,) = broker_config_entries(broker_configs, [name], with_synonyms=True, with_documentation=False)
    return found


def test_what_was_set_stands_before_the_default() -> None:
    found = entry("num.partitions", {"num.partitions": "4"})
    assert (found["value"], found["config_source"]) == ("4", 4)
    assert found["synonyms"] == [
        {"name": "num.partitions", "value": "4", "source": 4},
        {"name": "num.partitions", "value": "1", "source": 5},
    ]


def test_a_config_without_any_value_has_no_synonym() -> None:
    found = entry("log.retention.ms", {})
    assert (found["value"], found["config_source"], found["synonyms"]) == (None, 5, [])
