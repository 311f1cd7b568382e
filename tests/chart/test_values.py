"""The schema of the values: what it rejects, with the value's name, and that it keeps up with options and configs."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.config.options import OPTIONS_BY_NAME, OptionKind
from coordinator.configs.broker_configs import BROKER_CONFIGS
from coordinator.configs.config_types import ConfigType
from coordinator.configs.security_configs import LISTENER_CONFIGS, is_secret, security_spec
from coordinator.configs.topic_configs import BROKER_SYNONYMS
from protocol.auth.operations import Operation, ResourceType
from tests.chart.rendering import CHART, SETUPS, template

WRONG = sorted(Path(__file__).with_name("wrong").glob("*.yaml"))
SAYS = re.compile(r"# says: (.+)")
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
ABSENT = "absent: "
"""Begins the text of a value that is elsewhere: the text says where."""


def properties(*path: str) -> dict[str, Any]:
    node = SCHEMA
    for name in path:
        node = node["properties"][name]
    found: dict[str, Any] = node["properties"]
    return found


def is_absent(schema: dict[str, Any]) -> bool:
    return str(schema.get("const", "")).startswith(ABSENT)


def test_thirty_wrong_files_are_rejected_with_the_name_of_the_value() -> None:
    assert len(WRONG) >= 30
    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(lambda path: template(SETUPS["minimal"], path), WRONG))
    for path, done in zip(WRONG, answers, strict=True):
        match = SAYS.match(path.read_text(encoding="utf-8"))
        assert match is not None, f"{path.name} does not say what is wrong with it"
        assert done.returncode != 0, f"{path.name} is accepted"
        assert match[1] in done.stderr, f"{path.name}: {done.stderr}"


def test_every_value_and_every_map_is_in_the_schema_and_nothing_else_is() -> None:
    assert dict(_names(SCHEMA, ())) == dict.fromkeys(_value_names(VALUES, ()))


def _names(schema: dict[str, Any], above: tuple[str, ...]) -> "list[tuple[tuple[str, ...], None]]":
    """The names of leaves of the schema: those of maps with fixed names, that are in values.yaml at all."""
    found: list[tuple[tuple[str, ...], None]] = []
    for name, each in schema.get("properties", {}).items():
        path = (*above, name)
        if is_absent(each) or path[0] == "global":
            continue
        target = _resolved(each)
        if target.get("additionalProperties") is False and path not in {("settings",), ("kafka",)}:
            assert "properties" in target, path
            found += _names(target, path)
        else:
            found.append((path, None))
    return found


def _value_names(values: dict[str, Any], above: tuple[str, ...]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, value in values.items():
        path = (*above, name)
        is_of_users = path in {("settings",), ("monitoring", "dashboards", "labels")}
        found += _value_names(value, path) if isinstance(value, dict) and value and not is_of_users else [path]
    # Limits that have no default.
    missing = {
        ("resources", "limits"): ("cpu", "ephemeral-storage"),
        ("etcd", "resources", "limits"): ("cpu",),
    }
    return found + [(*above, name) for name in missing.get(above, ())]


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref")
    target: dict[str, Any] = SCHEMA["$defs"][reference.rpartition("/")[2]] if reference else schema
    return target


def test_no_map_of_the_schema_accepts_any_name_and_any_value() -> None:
    loose = [
        path
        for path, each in _objects(SCHEMA, "")
        if each.get("additionalProperties") is not False and each.get("additionalProperties") != {"type": "string"}
    ]
    assert loose == ["/properties/global"]


def _objects(value: object, path: str) -> "list[tuple[str, dict[str, Any]]]":
    found: list[tuple[str, dict[str, Any]]] = []
    if isinstance(value, dict):
        if value.get("type") == "object":
            found.append((path, value))
        for name, each in value.items():
            found += _objects(each, f"{path}/{name}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            found += _objects(each, f"{path}/{number}")
    return found


def test_every_option_of_an_agent_is_a_setting_or_says_which_value_it_has() -> None:
    assert not properties("settings").keys() ^ OPTIONS_BY_NAME.keys()


def test_a_setting_has_the_type_and_the_bounds_of_its_option() -> None:
    for name, schema in properties("settings").items():
        option = OPTIONS_BY_NAME[name]
        if is_absent(schema):
            continue
        match option.kind:
            case OptionKind.COUNT:
                assert (schema["type"], schema["minimum"], schema["maximum"]) == (
                    "integer",
                    option.minimum,
                    option.maximum,
                ), name
            case OptionKind.BYTES:
                assert (schema["type"], schema["minimum"]) == (["integer", "string"], option.minimum), name
            case OptionKind.FLAG:
                assert schema["type"] == "boolean", name
            case OptionKind.LIST:
                assert schema["type"] == "array", name
            case _:
                assert schema["type"] == "string", name
                assert not option.choices or tuple(schema["enum"]) == option.choices, name


def test_every_broker_config_is_one_of_kafkas_or_says_which_value_it_has() -> None:
    kafka = properties("kafka")
    allowed = {name for name, schema in kafka.items() if not is_absent(schema)}
    known = {name for name in BROKER_CONFIGS if not is_secret(name)}
    secrets = {name for name in allowed if name.endswith(".file") and is_secret(name.removesuffix(".file"))}
    assert allowed - secrets <= known
    assert not known - kafka.keys()
    assert {f"{name}.file" for name in ("delegation.token.secret.key",)} == secrets
    for name in BROKER_CONFIGS:
        assert not is_secret(name) or name not in allowed, f"{name} is a secret, and a ConfigMap is none"
    assert {name for name in BROKER_SYNONYMS if name not in BROKER_CONFIGS} <= kafka.keys() - allowed


def test_a_broker_config_has_the_type_of_kafkas() -> None:
    words = {"number": ("INT", "LONG", "SHORT", "DOUBLE"), "switch": ("BOOLEAN",), "words": ("STRING", "LIST")}
    for name, schema in properties("kafka").items():
        spec = BROKER_CONFIGS.get(name)
        if spec is None or is_absent(schema):
            continue
        kind = schema["$ref"].rpartition("/")[2]
        assert spec.type in {ConfigType[word] for word in words[kind]}, name


@pytest.mark.parametrize(
    "name", ["listener.name.internal.ssl.cipher.suites", "listener.name.external.connections.max.reauth.ms"]
)
def test_a_config_of_one_listener_is_accepted(name: str) -> None:
    pattern, secrets, _parts = SCHEMA["properties"]["kafka"]["patternProperties"]
    assert re.search(pattern, name)
    assert not re.search(secrets, name)
    assert security_spec(name) is not None


def test_a_secret_of_one_listener_is_rejected_and_its_file_is_not() -> None:
    _pattern, secrets, _parts = SCHEMA["properties"]["kafka"]["patternProperties"]
    assert is_absent(SCHEMA["properties"]["kafka"]["patternProperties"][secrets])
    for config in LISTENER_CONFIGS:
        name = f"listener.name.internal.{config}"
        assert bool(re.search(secrets, name)) is is_secret(name), name
        assert not re.search(secrets, f"{name}.file")


def test_the_first_part_of_a_configs_name_says_that_dots_are_part_of_it() -> None:
    configs = SCHEMA["properties"]["kafka"]
    _pattern, _secrets, parts = configs["patternProperties"]
    assert is_absent(configs["patternProperties"][parts])
    firsts = {name.partition(".")[0] for name in configs["properties"] if "." in name}
    assert parts == f"^({'|'.join(sorted(firsts))})$"
    assert not firsts & configs["properties"].keys()


@pytest.mark.parametrize("word", ["@hourly", "@midnight", "@yearly", "@annually", "*/5 2-4 * JAN MON", "0 3 ? * 0"])
def test_a_schedule_has_the_words_of_kubernetes(word: str) -> None:
    assert re.search(SCHEMA["properties"]["audit"]["properties"]["schedule"]["if"]["pattern"], word)


def test_rights_have_kafkas_words() -> None:
    rights = SCHEMA["properties"]["authentication"]["properties"]["users"]["items"]["properties"]["acls"]["items"]
    unspoken = {"UNKNOWN", "ANY"}
    assert {*rights["properties"]["operation"]["enum"]} == {each.name for each in Operation} - unspoken
    assert {*rights["properties"]["resourceType"]["enum"]} == {each.name for each in ResourceType} - unspoken
