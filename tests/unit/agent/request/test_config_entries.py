"""Configs as rows of an answer."""

from agent.request.config_entries import config_rows, created_topic_configs, logger_rows
from coordinator.configs.config_entries import broker_entry
from coordinator.configs.config_types import ConfigSource
from coordinator.configs.topic_configs import TOPIC_CONFIGS

ENTRY = broker_entry([(ConfigSource.STATIC_BROKER, {"num.partitions": "4"})], "num.partitions")


def test_a_row_says_where_its_value_is_from_and_what_else_it_could_be() -> None:
    (row,) = config_rows([ENTRY], with_synonyms=True, with_documentation=True)
    assert (row["name"], row["value"], row["config_source"], row["read_only"]) == ("num.partitions", "4", 4, True)
    assert row["synonyms"] == [
        {"name": "num.partitions", "value": "4", "source": 4},
        {"name": "num.partitions", "value": "1", "source": 5},
    ]
    assert row["documentation"] == ENTRY.spec.documentation


def test_synonyms_and_documentation_are_left_out_where_nobody_asks_for_them() -> None:
    (row,) = config_rows([ENTRY], with_synonyms=False, with_documentation=False)
    assert (row["synonyms"], row["documentation"]) == ([], None)


def test_a_loggers_level_has_a_source_of_its_own() -> None:
    (row,) = logger_rows({"root": "INFO"})
    assert (row["name"], row["value"], row["config_source"]) == ("root", "INFO", 6)


def test_a_new_topic_tells_all_its_configs() -> None:
    rows = created_topic_configs({"retention.ms": "5", "segment.ms": None}, [])
    assert [row["name"] for row in rows] == list(TOPIC_CONFIGS)
    assert [row["name"] for row in rows if row["config_source"] == ConfigSource.DYNAMIC_TOPIC] == ["retention.ms"]
