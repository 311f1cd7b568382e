"""Config values as rows of DescribeConfigs and CreateTopics."""

from collections.abc import Iterable, Mapping
from typing import Any

from coordinator.configs.config_entries import ConfigEntry, Layers, topic_entry
from coordinator.configs.config_types import ConfigSource, ConfigType
from coordinator.configs.topic_configs import TOPIC_CONFIGS

NO_TYPE = 0
"""DescribeConfigsResponse.ConfigType.UNKNOWN."""


def config_rows(
    entries: Iterable[ConfigEntry], *, with_synonyms: bool, with_documentation: bool
) -> list[dict[str, Any]]:
    """The rows of a response, in the order of the entries."""
    return [
        {
            "name": entry.spec.name,
            "value": None if is_secret(entry) else entry.value,
            "read_only": entry.spec.is_read_only,
            "config_source": entry.source,
            "is_sensitive": is_secret(entry),
            "synonyms": [
                {
                    "name": synonym.name,
                    "value": None if is_secret(entry) else synonym.value,
                    "source": synonym.source,
                }
                for synonym in (entry.synonyms if with_synonyms else ())
            ],
            "config_type": entry.spec.type,
            "documentation": entry.spec.documentation if with_documentation else None,
        }
        for entry in entries
    ]


def is_secret(entry: ConfigEntry) -> bool:
    """Whether a response must not show the entry's value."""
    return entry.spec.type is ConfigType.PASSWORD


def logger_rows(levels: Mapping[str, str]) -> list[dict[str, Any]]:
    """The rows for the levels of loggers, by the loggers' names. As in Kafka they have no type."""
    return [
        {
            "name": name,
            "value": level,
            "read_only": False,
            "config_source": ConfigSource.DYNAMIC_BROKER_LOGGER,
            "is_sensitive": False,
            "synonyms": [],
            "config_type": NO_TYPE,
            "documentation": None,
        }
        for name, level in levels.items()
    ]


def created_topic_configs(configs: Mapping[str, str | None], layers: Layers) -> list[dict[str, Any]]:
    """The rows for the configs of a new topic in CreateTopics: without synonyms and documentation."""
    given = {name: value for name, value in configs.items() if value is not None}
    entries = [topic_entry(given, layers, name) for name in TOPIC_CONFIGS]
    return config_rows(entries, with_synonyms=False, with_documentation=False)
