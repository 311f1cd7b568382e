"""An agent starts with what a pod of the chart has: file of options, variables, mounted Secrets, arguments."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import typer

from agent.cli.main import app as command_line
from agent.config.listener_security import SecurityProtocol
from agent.config.settings import CliCommand, Settings, load_settings
from agent.config.tls_settings import ClientAuth
from tests.chart.rendering import NAME, SETUPS, Manifest, Manifests, containers, render, setup
from tests.support.certificates import TestAuthority

FOLDER = "/etc/penstock"
POD = {"POD_NAME": "records-penstock-7d9f-x2x4q", "POD_IP": "10.77.1.2", "HOST_IP": "192.0.2.7"}
POD_IP_OF_IPV6 = "fd00:77::2"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ZONE = "eu-west-1a"
AGENT_COMMANDS = ("agent", "recover", "audit", "doctor")
"""Commands that take the options of an agent. The others are clients."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> TestAuthority:
    return TestAuthority(folder=tmp_path_factory.mktemp("authority"))


def secret_texts(authority: TestAuthority) -> Mapping[str, Mapping[str, bytes]]:
    """What the Secrets have, by the folder below FOLDER that they are mounted at."""
    files = authority.issue("agent")
    certificate, key, ca = files.cert.read_bytes(), files.key.read_bytes(), authority.ca_path.read_bytes()
    pair = {"tls.crt": certificate, "tls.key": key, "ca.crt": ca}
    return {
        "tls": pair,
        "etcd": pair,
        "relay": pair,
        "client-ca": {"ca.crt": ca},
        "store-ca": {"ca.crt": ca},
        "http": {"tokens": b"User:spark 0123456789abcdef0123456789abcdef\n"},
        "secret-key": {"key": bytes(32)},
        "plain": {"users": b""},
        "passwords": {str(number): b"a long password" for number in range(2)},
        "secrets/catalogs": {"catalogs.toml": b'[warehouse]\ntype = "sql"\nuri = "sqlite:////tmp/catalog.db"\n'},
    }


def mount(manifests: Manifests, pod: Manifest, root: Path, texts: Mapping[str, Mapping[str, bytes]]) -> None:
    """Writes the files that Kubernetes would mount below FOLDER into `root`. Only the keys of `items` become files."""
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    (container,) = pod["containers"]
    for each in container["volumeMounts"]:
        path, volume = each["mountPath"], volumes[each["name"]]
        if not path.startswith(FOLDER):
            continue
        folder = root / path.removeprefix(f"{FOLDER}/")
        folder.mkdir(parents=True)
        if "configMap" in volume:
            data = manifests.named("ConfigMap", volume["configMap"]["name"])["data"]
            files = {name: text.replace(f"{FOLDER}/", f"{root}/").encode() for name, text in data.items()}
        else:
            files = dict(texts[str(folder.relative_to(root))])
            names = _item_paths(volume)
            assert names is None or names <= files.keys()
            files = {name: text for name, text in files.items() if names is None or name in names}
        for name, text in files.items():
            (folder / name).write_bytes(text)


def _item_paths(volume: Manifest) -> set[str] | None:
    """The files that a volume's items name; None where it has all keys of its Secret."""
    if "projected" in volume:
        sources = volume["projected"]["sources"]
        return {item["path"] for source in sources for item in source["secret"]["items"]}
    items = volume["secret"].get("items")
    return None if items is None else {item["path"] for item in items}


def environment(container: Manifest, root: Path) -> dict[str, str]:
    """The variables of a container, as Kubernetes gives them: each may name those above it."""
    found: dict[str, str] = {}
    for each in container["env"]:
        if "value" not in each:
            found[each["name"]] = POD.get(each["name"], ZONE if each["name"] == "PENSTOCK_ZONE" else "secret")
            if each["name"] == "POD_IP" and any("[$(POD_IP)]" in other.get("value", "") for other in container["env"]):
                found["POD_IP"] = POD_IP_OF_IPV6
            continue
        value = each["value"]
        for name, known in list(found.items()):
            value = value.replace(f"$({name})", known)
        assert "$(" not in value, f"{each['name']} has a variable that is not there: {value}"
        found[each["name"]] = value.replace(f"{FOLDER}/", f"{root}/")
    return found


def settings_of(manifests: Manifests, pod: Manifest, root: Path, authority: TestAuthority) -> Settings:
    mount(manifests, pod, root, secret_texts(authority))
    (container,) = pod["containers"]
    return load_settings(CliCommand.AGENT, {}, environment=environment(container, root))


def agent_settings(name: str, root: Path, authority: TestAuthority) -> Settings:
    """The settings of the first agent of a set-up."""
    manifests = setup(name)
    return settings_of(manifests, manifests.agents()[0]["spec"]["template"]["spec"], root, authority)


@pytest.mark.parametrize("name", SETUPS)
def test_every_pod_of_a_setup_has_settings_that_are_accepted(
    name: str, tmp_path: Path, authority: TestAuthority
) -> None:
    manifests = setup(name)
    pods = [(title, pod) for title, pod in manifests.pods() if _command(pod) in AGENT_COMMANDS]
    assert {_command(pod) for _title, pod in pods} >= {"agent", "doctor"}
    for number, (title, pod) in enumerate(pods):
        settings = settings_of(manifests, pod, tmp_path / str(number), authority)
        assert settings.name == POD["POD_NAME"], title
        assert settings.ledger_url.startswith("etcd"), title
        assert settings.store_url.startswith("s3://"), title
        assert settings.log_format == "json", title
        is_agent = _command(pod) == "agent"
        assert (settings.zone is not None) is is_agent, title
        assert not is_agent or settings.zone == ZONE or title.endswith(f"-{settings.zone}"), title


def _command(pod: Manifest) -> str:
    return str(pod["containers"][0].get("args", [""])[0])


def test_the_program_has_every_command_and_flag_of_every_setup() -> None:
    root: Any = typer.main.get_command(command_line)
    seen: set[str] = set()
    for name in SETUPS:
        for title, pod in setup(name).pods():
            if title.startswith("StatefulSet"):
                continue  # etcd's own
            for container in containers(pod):
                command, *arguments = container["args"]
                if (flags := f"{command} {[word for word in arguments if word.startswith('--')]}") not in seen:
                    root.commands[command].make_context(command, list(arguments), resilient_parsing=False)
                    seen.add(flags)
    assert {flags.partition(" ")[0] for flags in seen} == {*AGENT_COMMANDS, "produce", "consume"}


def test_production_encrypts_authenticates_and_has_its_first_users(tmp_path: Path, authority: TestAuthority) -> None:
    settings = agent_settings("production", tmp_path, authority)
    (listener,) = settings.advertised
    assert (listener.name, listener.host) == ("INTERNAL", "10-77-1-2.records-penstock-agents.streams.svc")
    security = settings.security_of("INTERNAL")
    assert security.protocol is SecurityProtocol.SASL_SSL
    assert security.sasl is not None
    assert security.sasl.mechanisms == ("SCRAM-SHA-512", "SCRAM-SHA-256")
    assert settings.http_tls is not None
    assert settings.authorizer.is_enabled
    assert [principal.name for principal in settings.authorizer.super_users] == ["admin"]
    assert [user.name for user in settings.bootstrap_users] == ["admin", "orders"]
    assert len(settings.bootstrap_users[1].acls) == 2
    assert settings.secret_key is not None
    assert settings.broker_configs["num.partitions"] == "6"
    assert settings.broker_configs["log.retention.ms"] == "604800000"
    assert not settings.http_access.is_metrics_open
    assert settings.ledger_access.cert is not None


def test_clients_need_certificates_where_the_values_say_so(tmp_path: Path, authority: TestAuthority) -> None:
    settings = agent_settings("tls", tmp_path, authority)
    assert [listener.name for listener in settings.listeners] == ["INTERNAL", "EXTERNAL", "RELAY"]
    assert settings.authorizer.is_enabled
    assert {principal.name for principal in settings.authorizer.super_users} == {"CN=admin", f"CN={NAME}-relay"}
    for listener in settings.listeners:
        security = settings.security_of(listener.name)
        assert security.tls is not None
        assert security.tls.client_auth is ClientAuth.REQUIRED
    assert settings.http_tls is not None
    assert settings.http_tls.client_auth is ClientAuth.REQUESTED, "probes have no certificate"


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("one-address", "EXTERNAL://kafka.example.net:443"),
        ("port-forward", "EXTERNAL://127.0.0.1:9094"),
        ("node-ports", "EXTERNAL://nodes.example.net:31094"),
        ("host-ports", "EXTERNAL://192.0.2.7:9094"),
        ("zones", "EU_WEST_1A://kafka-a.example.net:9094"),
        ("ipv6", "EXTERNAL://[2001:db8::9092]:9094"),
    ],
)
def test_clients_outside_are_given_the_address_that_leads_to_agents(
    name: str, address: str, tmp_path: Path, authority: TestAuthority
) -> None:
    settings = agent_settings(name, tmp_path, authority)
    own = "10.77.1.2" if name != "ipv6" else "[fd00:77::2]"
    assert str(settings.advertised[0]) == f"INTERNAL://{own}:9092"
    assert str(settings.advertised[1]) == address
    relays = [str(each) for each in settings.advertised if each.name == "RELAY"]
    assert relays == ([f"RELAY://{own}:9095"] if name != "host-ports" else [])


def test_agents_that_share_an_address_are_sure_of_each_other(tmp_path: Path, authority: TestAuthority) -> None:
    settings = agent_settings("one-address-tls", tmp_path, authority)
    assert str(settings.advertised[-1]) == "RELAY://10-77-1-2.records-penstock-agents.streams.svc:9095"
    assert settings.security_of("EXTERNAL").protocol is SecurityProtocol.SASL_SSL
    tls = settings.security_of("RELAY").tls
    assert tls is not None
    assert tls.client_auth is ClientAuth.REQUIRED
    assert tls.key_pair != settings.security_of("EXTERNAL").tls.key_pair  # type: ignore[union-attr]
    assert f"CN={NAME}-relay" in {principal.name for principal in settings.authorizer.super_users}


@pytest.mark.parametrize(
    ("values", "protocol", "has_super_user"),
    [
        ([], SecurityProtocol.PLAINTEXT, False),
        (['relay.existingSecret="r"', 'tls={"enabled":true,"existingSecret":"c"}'], SecurityProtocol.SSL, False),
        (['authentication={"enabled":true,"superUsers":["User:a"]}'], SecurityProtocol.SSL, True),
        (
            ['authentication={"superUsers":["User:ANONYMOUS"]}', f'kafka={{"authorizer.class.name":"{AUTHORIZER}"}}'],
            SecurityProtocol.SSL,
            True,
        ),
        (
            [
                'authentication={"enabled":true,"users":[{"name":"a","passwordSecret":{"name":"a"}}]}',
                'kafka={"authorizer.class.name":""}',
            ],
            SecurityProtocol.SSL,
            False,
        ),
    ],
)
def test_a_relay_is_protected_wherever_the_agent_asks_for_it(
    values: list[str], protocol: SecurityProtocol, *, has_super_user: bool, tmp_path: Path, authority: TestAuthority
) -> None:
    manifests = render(SETUPS["one-address"], values=values)
    pod = manifests.agents()[0]["spec"]["template"]["spec"]
    settings = settings_of(manifests, pod, tmp_path, authority)
    assert settings.security_of("RELAY").protocol is protocol
    names = {principal.name for principal in settings.authorizer.super_users}
    assert (f"CN={NAME}-relay" in names) is has_super_user


@pytest.mark.parametrize(("value", "is_held"), [("null", None), ("true", True), ("false", False)])
def test_an_upgrade_is_held_where_the_values_say_so(
    value: str, *, is_held: bool | None, tmp_path: Path, authority: TestAuthority
) -> None:
    manifests = render(SETUPS["minimal"], values=[f"rulesHold={value}"])
    pod = manifests.agents()[0]["spec"]["template"]["spec"]
    assert settings_of(manifests, pod, tmp_path, authority).is_rules_held is is_held
