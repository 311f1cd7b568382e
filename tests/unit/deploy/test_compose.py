"""The compose file runs this version, with the rights that the image needs and no more, and opens no port to others."""

from typing import Any

import pytest
import yaml

from agent.config.options import OPTIONS
from agent.runtime.version import VERSION
from tools.steps import ROOT

COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
BROKERS = {name: service for name, service in SERVICES.items() if "cap_drop" in service}


def test_one_broker_starts_without_a_profile() -> None:
    assert [name for name, service in SERVICES.items() if "profiles" not in service] == ["penstock"]
    assert {profile for service in SERVICES.values() for profile in service.get("profiles", ())} == {"cluster"}


@pytest.mark.parametrize("name", BROKERS)
def test_brokers_have_no_rights(name: str) -> None:
    broker = BROKERS[name]
    assert broker["image"] == f"${{PENSTOCK_IMAGE:-penstock:{VERSION}}}"
    assert broker["read_only"] is True
    assert broker["cap_drop"] == ["ALL"]
    assert broker["security_opt"] == ["no-new-privileges:true"]
    assert broker["tmpfs"] == ["/tmp"]


@pytest.mark.parametrize("name", BROKERS)
def test_options_of_brokers_exist(name: str) -> None:
    names = {f"PENSTOCK_{option.name.upper().replace('-', '_')}" for option in OPTIONS}
    set_here = {key for key in BROKERS[name]["environment"] if key.startswith("PENSTOCK_")}
    assert set_here
    assert set_here <= names


def test_ports_are_open_to_this_machine_alone() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert len(ports) == 5
    assert all(port.startswith("127.0.0.1:") for port in ports)


@pytest.mark.parametrize("name", BROKERS)
def test_clients_get_the_port_that_is_published(name: str) -> None:
    advertised = BROKERS[name]["environment"]["PENSTOCK_ADVERTISE"].split(",")[0]
    port = advertised.rpartition(":")[2]
    assert advertised == f"HOST://localhost:{port}"
    assert f"127.0.0.1:{port}:{port}" in BROKERS[name]["ports"]
