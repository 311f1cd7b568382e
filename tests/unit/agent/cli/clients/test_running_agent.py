"""An agent that answers is the one of some settings by its name and its bucket, and its ports are known."""

import pytest

from agent.cli.clients.running_agent import RunningAgent, agent_at
from agent.config.addresses import HostPort
from agent.config.settings import CliCommand, Settings, load_settings
from tests.support.processes import free_port

STORE = "file:///srv/store"
LEDGER = "etcd://127.0.0.1:2379/c"
HTTP = HostPort(host="127.0.0.1", port=9644)


def settings(**options: str) -> Settings:
    given = {"name": "a", "store": STORE, "ledger": LEDGER, **options}
    return load_settings(CliCommand.AGENT, given, environment={})


def running(name: str = "a") -> RunningAgent:
    return RunningAgent(name=name, store=STORE, http=HTTP, listeners=["IN://127.0.0.1:9092", "OUT://[::1]:9093"])


def test_it_is_of_settings_with_its_name_and_its_bucket() -> None:
    assert running().is_of(settings())
    assert not running().is_of(settings(name="b"))
    assert not running().is_of(settings(store="file:///srv/other"))


def test_of_several_processes_the_first_has_the_ports_that_are_named() -> None:
    assert running("a-0").is_of(settings(processes="2"))
    assert not running("a").is_of(settings(processes="2"))


@pytest.mark.parametrize(
    ("host", "port", "is_taken"),
    [("127.0.0.1", 9644, True), ("127.0.0.1", 9092, True), ("::1", 9093, True), ("127.0.0.1", 9093, False)],
)
def test_its_ports_are_those_of_its_listeners_and_of_http(host: str, port: int, is_taken: bool) -> None:
    assert running().has_taken(HostPort(host=host, port=port)) is is_taken


def test_where_nobody_answers_there_is_none() -> None:
    assert agent_at(HostPort(host="", port=free_port())) is None
