"""An agent's settings under the names of Kafka's broker configs, for tools that read them by DescribeConfigs.

The values are those of the agent's session in the ledger. They are read-only, as in Kafka.
Source: org.apache.kafka.network.SocketServerConfigs, org.apache.kafka.server.config.ServerConfigs, KRaftConfigs (4.3).
"""

from collections.abc import Sequence
from typing import Final

from coordinator.commands.commands import StartSession
from coordinator.configs.config_entries import ConfigEntry, Synonym
from coordinator.configs.config_types import ConfigSource, ConfigSpec, ConfigType


def _spec(name: str, config_type: ConfigType, documentation: str) -> ConfigSpec:
    return ConfigSpec(name=name, type=config_type, default=None, documentation=documentation, is_read_only=True)


_LISTENERS: Final = _spec("advertised.listeners", ConfigType.LIST, "Addresses that clients connect to, by listener.")
_RACK: Final = _spec("broker.rack", ConfigType.STRING, "The agent's zone.")
_NODE_ID: Final = _spec("node.id", ConfigType.INT, "The agent's node id, which follows from its name.")


def agent_entries(agent: StartSession) -> Sequence[ConfigEntry]:
    """The entries in the order of their names. An agent without a zone has no rack."""
    addresses = ",".join(f"{each.listener}://{each.host}:{each.port}" for each in agent.endpoints)
    return (_entry(_LISTENERS, addresses), _entry(_RACK, agent.zone), _entry(_NODE_ID, str(agent.node_id)))


def _entry(spec: ConfigSpec, value: str | None) -> ConfigEntry:
    if value is None:
        return ConfigEntry(spec=spec, value=None, source=ConfigSource.DEFAULT, synonyms=())
    source = ConfigSource.STATIC_BROKER
    return ConfigEntry(
        spec=spec, value=value, source=source, synonyms=(Synonym(name=spec.name, value=value, source=source),)
    )
