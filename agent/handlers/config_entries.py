"""Config values as DescribeConfigs and CreateTopics answer them."""

from collections.abc import Collection, Mapping
from typing import Any

from coordinator.topic_configs import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    ConfigSource,
    effective_entry,
)


def topic_config_entries(
    configs: Mapping[str, str],
    broker_configs: Mapping[str, str],
    names: Collection[str] | None,
    *,
    with_synonyms: bool,
    with_documentation: bool,
) -> list[dict[str, Any]]:
    """A topic's configs, all or those named; names that do not exist are left out, as in Kafka."""
    entries = []
    for name in sorted(TOPIC_CONFIGS):
        if names is not None and name not in names:
            continue
        entry = effective_entry(configs, broker_configs, name)
        entries.append(
            {
                "name": name,
                "value": entry.value,
                "read_only": False,
                "config_source": entry.source,
                "is_sensitive": False,
                "synonyms": [
                    {"name": synonym.name, "value": synonym.value, "source": synonym.source}
                    for synonym in (entry.synonyms if with_synonyms else ())
                ],
                "config_type": entry.spec.type,
                "documentation": entry.spec.documentation if with_documentation else None,
            }
        )
    return entries


def broker_config_entries(
    broker_configs: Mapping[str, str], names: Collection[str] | None, *, with_synonyms: bool, with_documentation: bool
) -> list[dict[str, Any]]:
    """The agent's broker configs, all that have a value or those named."""
    entries = []
    for name, spec in sorted(BROKER_CONFIGS.items()):
        if names is not None and name not in names:
            continue
        values = [(broker_configs.get(name), ConfigSource.STATIC_BROKER), (spec.default, ConfigSource.DEFAULT)]
        given = [(value, source) for value, source in values if value is not None]
        value, source = given[0] if given else (None, ConfigSource.DEFAULT)
        entries.append(
            {
                "name": name,
                "value": value,
                "read_only": spec.is_read_only,
                "config_source": source,
                "is_sensitive": False,
                "synonyms": [
                    {"name": name, "value": each, "source": each_source}
                    for each, each_source in (given if with_synonyms else [])
                ],
                "config_type": spec.type,
                "documentation": spec.documentation if with_documentation else None,
            }
        )
    return entries


def created_topic_configs(configs: Mapping[str, str | None], broker_configs: Mapping[str, str]) -> list[dict[str, Any]]:
    """The configs of a new topic, as CreateTopics answers them: without synonyms and documentation."""
    given = {name: value for name, value in configs.items() if value is not None}
    return topic_config_entries(given, broker_configs, None, with_synonyms=False, with_documentation=False)
