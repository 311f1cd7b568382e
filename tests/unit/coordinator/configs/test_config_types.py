"""Which texts a config of each type takes, as Kafka's ConfigDef has it."""

import pytest

from coordinator.configs.config_types import ConfigSpec, ConfigType, InvalidConfig, configs_bytes, split_list, table


def spec(config_type: ConfigType, **rest: object) -> ConfigSpec:
    return ConfigSpec(name="x", type=config_type, default=None, documentation="", **rest)  # type: ignore[arg-type]


BOUNDED = spec(ConfigType.INT, low=0, high=9)
CHOICE = spec(ConfigType.STRING, choices=("a", "b"))
LIST = spec(ConfigType.LIST, choices=("a", "b"))
PATTERN = spec(ConfigType.LIST, pattern="[0-9,]*")
RATIO = spec(ConfigType.DOUBLE, low=0, high=1)


@pytest.mark.parametrize(
    ("config", "value"),
    [
        (spec(ConfigType.BOOLEAN), "True"),
        (spec(ConfigType.BOOLEAN), " false "),
        (spec(ConfigType.STRING), "anything"),
        (CHOICE, "a"),
        (LIST, ""),
        (LIST, "b, a"),
        (PATTERN, "1,2"),
        (BOUNDED, "0"),
        (BOUNDED, " +9 "),
        (spec(ConfigType.LONG), "-9223372036854775808"),
        (RATIO, "0.5"),
        (RATIO, "1e-3"),
        (RATIO, ".5"),
    ],
)
def test_values_that_are_taken(config: ConfigSpec, value: str) -> None:
    config.validate(value)


@pytest.mark.parametrize(
    ("config", "value"),
    [
        (spec(ConfigType.BOOLEAN), "yes"),
        (spec(ConfigType.BOOLEAN, choices=("false",)), "TRUE"),
        (CHOICE, "A"),
        (LIST, "a,c"),
        (LIST, "a,a"),
        (PATTERN, "x"),
        (BOUNDED, "-1"),
        (BOUNDED, "10"),
        (BOUNDED, "soon"),
        (BOUNDED, "1.5"),
        (BOUNDED, ""),
        (spec(ConfigType.INT), "2147483648"),
        (spec(ConfigType.SHORT), "40000"),
        (spec(ConfigType.LONG), "9223372036854775808"),
        (RATIO, "nan"),
        (RATIO, "1.1"),
    ],
)
def test_values_that_are_refused(config: ConfigSpec, value: str) -> None:
    with pytest.raises(InvalidConfig, match="Invalid value"):
        config.validate(value)


def test_lists_are_split_at_commas() -> None:
    assert split_list(" a , b") == ["a", "b"]
    assert split_list("  ") == []


def test_a_table_is_in_order_of_names() -> None:
    first, second = (ConfigSpec(name=name, type=ConfigType.STRING, default="", documentation="") for name in ("b", "a"))
    assert list(table(first, second)) == ["a", "b"]


def test_names_and_values_count_as_they_are_written() -> None:
    assert configs_bytes({"a": "1", "ä": "€"}) == 7
