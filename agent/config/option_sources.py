"""The sources of option values: command line, environment and TOML file. Defaults are in `agent.config.settings`.

Each source parses values into their options' types itself, so that an error can name the source. An unknown name is an
error that suggests the nearest known one.
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from agent.config.options import OPTIONS, OPTIONS_BY_NAME, Option, OptionKind
from protocol.limits import KIB, MIB
from protocol.suggestions import nearest

GIB = 1024 * MIB
_BYTE_UNITS = {"": 1, "b": 1, "kib": KIB, "mib": MIB, "gib": GIB, "kb": 1000, "mb": 1000**2, "gb": 1000**3}
_BYTES_TEXT = re.compile(r"(\d+)\s*([a-z]*)", re.IGNORECASE)
_FLAG_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_SERVICE_LINK = re.compile(r"PENSTOCK_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP)(_\w+)?)?)")
"""The variables that Kubernetes sets in every pod for a Service whose name begins with penstock."""
LEDGER_PASSWORD_VARIABLE = "PENSTOCK_LEDGER_PASSWORD"  # noqa: S105 - its name
"""Not an option: a flag would show the password to every user of the machine."""
_COMMAND_VARIABLES = frozenset(
    {"PENSTOCK_CONFIG", "PENSTOCK_SERVER", "PENSTOCK_BOOTSTRAP", "PENSTOCK_JSON", LEDGER_PASSWORD_VARIABLE}
)
_SETUP_VARIABLES = frozenset({"PENSTOCK_MAVEN", "PENSTOCK_NO_SKIPS"})
"""The variables of a checkout's set-up and tests: an environment with them must not stop a broker."""

COMMAND_LINE_SET = "--set"


class InvalidSettings(Exception):
    """A setting cannot be used. The message has the setting, its source, and what to write instead."""


Value = str | int | bool | tuple[str, ...] | Mapping[str, str]


def gather(
    command_line: Mapping[str, object],
    environment: Mapping[str, str],
    config_path: str | None,
) -> dict[str, Value]:
    """The values of all options that a source has, by name: command line before environment before file.

    `command_line` has values by option name, None or an empty tuple for a flag that is absent. The pairs of `--set` are
    merged over all sources. Raises `InvalidSettings`.
    """
    values: dict[str, Value] = {}
    path = config_path or environment.get("PENSTOCK_CONFIG")
    for origin_values in (
        _from_file(path) if path else {},
        _from_environment(environment),
        _from_command_line(command_line),
    ):
        pairs = {**_pairs_of(values), **_pairs_of(origin_values)}
        values.update(origin_values)
        if pairs:
            values["set"] = pairs
    return values


def read_bytes(text: str) -> int:
    """The number of bytes in a text such as `1048576`, `64MiB` or `64 MB`. Raises `ValueError`."""
    match = _BYTES_TEXT.fullmatch(text.strip())
    if match is None or match[2].lower() not in _BYTE_UNITS:
        raise ValueError(f"{text!r} is not a number of bytes such as 64MiB")
    return int(match[1]) * _BYTE_UNITS[match[2].lower()]


def _pairs_of(values: Mapping[str, Value]) -> Mapping[str, str]:
    pairs = values.get("set", {})
    assert isinstance(pairs, Mapping)
    return pairs


def _from_command_line(flags: Mapping[str, object]) -> dict[str, Value]:
    return {
        name: _parse(OPTIONS_BY_NAME[name], value, f"--{name}")
        for name, value in flags.items()
        if value is not None and value not in ((), [])
    }


def _from_environment(environment: Mapping[str, str]) -> dict[str, Value]:
    by_variable = {option.variable: option for option in OPTIONS}
    values: dict[str, Value] = {}
    for variable, text in environment.items():
        if not variable.startswith("PENSTOCK_") or variable in _COMMAND_VARIABLES | _SETUP_VARIABLES:
            continue
        option = by_variable.get(variable)
        if option is not None:
            values[option.name] = _parse(option, _parts(text) if _is_many(option) else text, variable)
        elif not _SERVICE_LINK.fullmatch(variable):
            raise InvalidSettings(f"{variable} in the environment is no option{nearest(variable, by_variable)}")
    return values


def _from_file(path: str) -> dict[str, Value]:
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSettings(f"--config {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"--config {path} is not TOML: {error}") from error
    values: dict[str, Value] = {}
    for key, value in table.items():
        option = OPTIONS_BY_NAME.get(key)
        if option is None:
            raise InvalidSettings(f"{path}: {key} is no option{nearest(key, OPTIONS_BY_NAME)}")
        values[key] = _parse(option, value, f"{path}: {key}")
    return values


def _parts(text: str) -> list[str]:
    """The lines of a text with several lines, else its parts between commas."""
    return [part for part in text.split("\n" if "\n" in text else ",") if part.strip()]


def _is_many(option: Option) -> bool:
    return option.kind in (OptionKind.LIST, OptionKind.PAIRS)


def _parse(option: Option, value: object, origin: str) -> Value:
    """The value in the option's type. `value` is a text, or has a type of TOML or the command line."""
    try:
        match option.kind:
            case OptionKind.TEXT:
                return _parse_text(option, value)
            case OptionKind.LIST:
                items = value if isinstance(value, list | tuple) else [value]
                return tuple(_checked(option, _text(item)) for item in items)
            case OptionKind.PAIRS:
                pairs = _parse_pairs(value)
                _check_broker_configs(pairs, origin)
                return pairs
            case OptionKind.FLAG:
                return _parse_flag(value)
            case OptionKind.COUNT | OptionKind.BYTES:
                return _parse_number(option, value)
    except ValueError as error:
        raise InvalidSettings(f"{origin}: {error}") from error


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{value!r} is not a text")
    return value.strip()


def _parse_text(option: Option, value: object) -> str:
    if option.may_be_empty and value == "":
        return ""
    text = _text(value)
    if option.choices and text not in option.choices:
        raise ValueError(f"{text!r} is none of {', '.join(option.choices)}{nearest(text, option.choices)}")
    return _checked(option, text)


def _checked(option: Option, text: str) -> str:
    if option.check is not None:
        option.check(text)
    return text


def _check_broker_configs(pairs: Mapping[str, str], origin: str) -> None:
    """Raise `InvalidSettings` where a pair is no broker config."""
    if not pairs:
        return
    from coordinator.configs.broker_configs import BROKER_CONFIGS  # late: the table is long and seldom needed
    from coordinator.configs.config_types import InvalidConfig
    from coordinator.configs.security_configs import is_secret, security_spec

    for name, value in pairs.items():
        spec = BROKER_CONFIGS.get(name) or security_spec(name)
        if spec is None:
            raise InvalidSettings(f"{origin} {name}: {_no_broker_config(name, value)}")
        if origin == COMMAND_LINE_SET and is_secret(name):
            raise InvalidSettings(
                f"{origin} {name}: every user of this machine can read a command line. Write the value into a file "
                f"and set {name}.file=PATH, or set {name} in the file of --config"
            )
        try:
            spec.validate(value)
        except InvalidConfig as error:
            raise InvalidSettings(f"{origin} {name}={value}: {error}") from error


def _no_broker_config(name: str, value: str) -> str:
    from coordinator.configs.topic_configs import BROKER_CONFIGS, BROKER_SYNONYMS, TOPIC_CONFIGS

    if name not in TOPIC_CONFIGS:
        return f"no such broker config{nearest(name, BROKER_CONFIGS)}"
    if name in BROKER_SYNONYMS:
        return f"a topic config; set its default, the broker config {BROKER_SYNONYMS[name][0][0]}"
    return (
        "a topic config for which brokers have no default: set it for a new topic with "
        f"penstock topics create TOPIC --config {name}={value}, or for an existing one with kafka-configs.sh --alter"
    )


def _parse_flag(value: object) -> bool:
    flag = value if isinstance(value, bool) else _FLAG_WORDS.get(_text(value).lower())
    if flag is None:
        raise ValueError(f"{value!r} is neither true nor false")
    return flag


def _parse_number(option: Option, value: object) -> int | str:
    """The number, or the one of the option's choices that the value is."""
    if isinstance(value, str) and value.strip() in option.choices:
        return value.strip()
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif option.kind is OptionKind.BYTES:
        number = read_bytes(_text(value))
    else:
        text = _text(value)
        if not re.fullmatch(r"-?\d+", text):
            raise ValueError(f"{text!r} is not a whole number")
        number = int(text)
    if not option.minimum <= number <= option.maximum:
        raise ValueError(f"{number} is not within {option.minimum} to {option.maximum}")
    return number


def _parse_pairs(value: object) -> Mapping[str, str]:
    if isinstance(value, Mapping):
        return {str(key): _scalar_text(key, item) for key, item in value.items()}
    pairs: dict[str, str] = {}
    for item in value if isinstance(value, list | tuple) else [value]:
        key, separator, text = _text(item).partition("=")
        if not separator or not key.strip():
            raise ValueError(f"{item!r} is not KEY=VALUE")
        pairs[key.strip()] = text.strip()
    return pairs


def _scalar_text(key: object, value: object) -> str:
    """The text of a Kafka config, for which TOML may have a number or a boolean."""
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
        case _:
            raise ValueError(f"{key} must be a text, a number or true or false; quote keys that hold dots")
