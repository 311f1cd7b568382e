"""What tools find out about an agent by the names of Kafka's broker configs."""

from agent.admin.agent_configs import agent_entries
from coordinator.commands.commands import Endpoint, StartSession
from coordinator.configs.config_types import ConfigSource

ENDPOINTS = (
    Endpoint(listener="PLAINTEXT", host="127.0.0.1", port=9092),
    Endpoint(listener="EU_1A", host="broker", port=9093),
)


def agent(zone: str | None) -> StartSession:
    return StartSession(name="a", node_id=7, endpoints=ENDPOINTS, zone=zone, rules_version=1)


def test_an_agent_tells_its_addresses_its_zone_and_its_node_id() -> None:
    assert {entry.spec.name: entry.value for entry in agent_entries(agent("eu-1a"))} == {
        "advertised.listeners": "PLAINTEXT://127.0.0.1:9092,EU_1A://broker:9093",
        "broker.rack": "eu-1a",
        "node.id": "7",
    }


def test_nothing_of_it_can_be_altered() -> None:
    assert all(entry.spec.is_read_only for entry in agent_entries(agent("eu-1a")))
    assert {entry.source for entry in agent_entries(agent("eu-1a"))} == {ConfigSource.STATIC_BROKER}


def test_an_agent_without_a_zone_has_no_rack() -> None:
    (rack,) = [entry for entry in agent_entries(agent(None)) if entry.spec.name == "broker.rack"]
    assert (rack.value, rack.source, rack.synonyms) == (None, ConfigSource.DEFAULT, ())
