"""The description of a Kafka config: type, default, valid values, and whether it has an effect in Penstock.

Source of types and parsing: org.apache.kafka.common.config.ConfigDef (Kafka 4.3). Tables:
`coordinator.configs.topic_configs`, `coordinator.configs.broker_configs`.
"""

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from enum import Enum, IntEnum
from typing import assert_never


class InvalidConfig(ValueError):
    """A config that does not exist, or a value that it does not take. The message says which."""


class InvalidConfigRequest(InvalidConfig):
    """One that Kafka calls an invalid request instead of an invalid config."""


class ConfigType(IntEnum):
    """DescribeConfigs' codes for types (DescribeConfigsResponse.ConfigType)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9
    """A secret: its value is never shown."""


class ConfigSource(IntEnum):
    """DescribeConfigs' codes for where a value comes from (DescribeConfigsResponse.ConfigSource)."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Effect(Enum):
    """Whether setting a config changes anything."""

    HONOURED = "honoured"
    NONE = "accepted without effect"


LONG_MAX = (1 << 63) - 1
GZIP_LEVELS = ("-1", "1", "2", "3", "4", "5", "6", "7", "8", "9")
"""GzipCompression: its own default, or a level. The only numbers of Kafka's with a gap."""
SHOWN_CHARS_MAX = 200
_RANGES = {
    ConfigType.SHORT: (-(1 << 15), (1 << 15) - 1),
    ConfigType.INT: (-(1 << 31), (1 << 31) - 1),
    ConfigType.LONG: (-(1 << 63), LONG_MAX),
}
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ConfigSpec:
    name: str
    type: ConfigType
    default: str | None
    """Kafka's own default, as text; None where Kafka has none."""
    documentation: str
    _: KW_ONLY
    effect: Effect = Effect.NONE
    low: float | None = None
    """The least number allowed, and with `high` the greatest."""
    high: float | None = None
    choices: tuple[str, ...] = ()
    """The only texts allowed, for a list as elements."""
    former_choices: tuple[str, ...] = ()
    """Texts that earlier builds allowed. They stay valid because ledgers hold them; no page lists them."""
    pattern: str | None = None
    """A regular expression that the text has to match."""
    is_read_only: bool = False
    """Whether only a restart can change it. False for topic configs."""

    def validate(self, value: str) -> None:
        """Raise `InvalidConfig` unless the config takes this text."""
        text = value.strip()
        match self.type:
            case ConfigType.BOOLEAN:
                if text.lower() not in ("true", "false"):
                    raise self._rejection(value, "expected true or false")
                self._check_choice(text.lower(), value)
            case ConfigType.STRING:
                self._check_pattern(text, value)
                self._check_choice(text, value)
            case ConfigType.LIST:
                self._check_list(text, value)
            case ConfigType.PASSWORD:
                pass  # any text is one, and no message may quote it
            case ConfigType.DOUBLE:
                if _DECIMAL.fullmatch(text) is None:
                    raise self._rejection(value, "not a number")
                self._check_bounds(float(text), value)
            case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
                low, high = _RANGES[self.type]
                if _NUMBER.fullmatch(text) is None or not low <= int(text) <= high:
                    raise self._rejection(value, f"not a number of type {self.type.name}")
                self._check_bounds(int(text), value)
                self._check_choice(str(int(text)), value)
            case _:
                assert_never(self.type)

    def _check_bounds(self, number: float, value: str) -> None:
        if self.low is not None and number < self.low:
            raise self._rejection(value, f"must be at least {self.low}")
        if self.high is not None and number > self.high:
            raise self._rejection(value, f"must be at most {self.high}")

    def _check_choice(self, text: str, value: str) -> None:
        if self.choices and text not in self.choices and text not in self.former_choices:
            raise self._rejection(value, f"must be one of {', '.join(self.choices)}")

    def _check_pattern(self, text: str, value: str) -> None:
        if self.pattern is not None and re.fullmatch(self.pattern, text) is None:
            raise self._rejection(value, f"must match {self.pattern}")

    def _check_list(self, text: str, value: str) -> None:
        self._check_pattern(text, value)
        elements = split_list(text)
        for element in elements:
            self._check_choice(element, value)
        if len(set(elements)) != len(elements):
            raise self._rejection(value, "an element is there twice")

    def _rejection(self, value: str, why: str) -> InvalidConfig:
        return InvalidConfig(f"Invalid value {shorten(value)} for configuration {self.name}: {why}")


def shorten(text: str) -> str:
    """A client's text for a message, which must not grow with what the client sent."""
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}... ({len(text)} characters)"


def split_list(text: str) -> list[str]:
    """The elements of a list value: between commas, without the spaces around them."""
    return [element.strip() for element in text.split(",")] if text.strip() else []


def configs_bytes(configs: Mapping[str, str]) -> int:
    """The UTF-8 bytes of all names and values together."""
    return sum(len(name.encode()) + len(value.encode()) for name, value in configs.items())


def table(*specs: ConfigSpec) -> dict[str, ConfigSpec]:
    """The configs by name, in order of names."""
    by_name = {spec.name: spec for spec in sorted(specs, key=lambda spec: spec.name)}
    assert len(by_name) == len(specs), "a config is listed twice"
    return by_name
