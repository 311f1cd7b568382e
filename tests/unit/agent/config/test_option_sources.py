"""Where the values of options come from."""

import re
from pathlib import Path

import pytest

from agent.config.option_sources import InvalidSettings, gather, read_bytes
from agent.config.options import OPTIONS
from protocol.limits import MIB

NOTHING: dict[str, str] = {}


def write(folder: Path, text: str) -> str:
    path = folder / "penstock.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_command_line_comes_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, 'name = "file"\nzone = "file"\nhttp = "127.0.0.1:1"\n')
    environment = {"PENSTOCK_NAME": "variable", "PENSTOCK_ZONE": "variable"}
    given = gather({"name": "flag", "zone": None}, environment, file)
    assert given == {"name": "flag", "zone": "variable", "http": "127.0.0.1:1"}


def test_a_flag_that_was_not_given_says_nothing() -> None:
    assert gather({"name": None, "listen": None, "set": []}, NOTHING, None) == {}


def test_a_flag_set_to_false_is_given() -> None:
    assert gather({"fsync": False}, {"PENSTOCK_FSYNC": "true"}, None) == {"fsync": False}


def test_lists_come_as_flags_commas_or_arrays(tmp_path: Path) -> None:
    expected = {"listen": ("A://h:1", "B://h:2")}
    assert gather({"listen": ["A://h:1", "B://h:2"]}, NOTHING, None) == expected
    assert gather({}, {"PENSTOCK_LISTEN": "A://h:1, B://h:2"}, None) == expected
    assert gather({}, NOTHING, write(tmp_path, 'listen = ["A://h:1", "B://h:2"]')) == expected


def test_broker_configs_of_all_sources_are_merged(tmp_path: Path) -> None:
    file = write(tmp_path, '[set]\n"num.partitions" = 1\n"log.retention.ms" = 5\n"auto.create.topics.enable" = false\n')
    given = gather({"set": ["num.partitions=3"]}, {"PENSTOCK_SET": "num.partitions=2,log.retention.ms=6"}, file)
    expected = {"num.partitions": "3", "log.retention.ms": "6", "auto.create.topics.enable": "false"}
    assert given["set"] == expected


def test_lines_of_a_variable_may_hold_commas() -> None:
    given = gather({}, {"PENSTOCK_SET": "log.cleanup.policy=compact,delete\nnum.partitions=2\n"}, None)
    assert given["set"] == {"log.cleanup.policy": "compact,delete", "num.partitions": "2"}


def test_the_environment_can_name_the_file(tmp_path: Path) -> None:
    assert gather({}, {"PENSTOCK_CONFIG": write(tmp_path, 'name = "x"')}, None) == {"name": "x"}


def test_an_unknown_key_of_the_file_names_the_nearest_option(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="data_dir is no option; did you mean data-dir"):
        gather({}, NOTHING, write(tmp_path, 'data_dir = "x"'))


def test_an_unknown_variable_names_the_nearest_one() -> None:
    with pytest.raises(InvalidSettings, match=r"PENSTOCK_DATADIR .* did you mean PENSTOCK_DATA_DIR"):
        gather({}, {"PENSTOCK_DATADIR": "x"}, None)


@pytest.mark.parametrize(
    "variable",
    [
        "PENSTOCK_SERVICE_HOST",
        "PENSTOCK_SERVICE_PORT_KAFKA",
        "PENSTOCK_PORT",
        "PENSTOCK_PORT_9092_TCP_ADDR",
        "PENSTOCK_HTTP_SERVICE_HOST",
        "PENSTOCK_HTTP_PORT_9644_TCP",
    ],
)
def test_what_kubernetes_says_of_services_is_no_option(variable: str) -> None:
    assert gather({}, {variable: "tcp://10.0.0.1:9092", "PATH": "/bin"}, None) == {}


@pytest.mark.parametrize(
    ("variable", "text", "reason"),
    [
        ("PENSTOCK_LOG_LEVEL", "inof", "did you mean info"),
        ("PENSTOCK_FSYNC", "maybe", "neither true nor false"),
        ("PENSTOCK_FLUSH_INTERVAL_MS", "5ms", "not a whole number"),
        ("PENSTOCK_FLUSH_INTERVAL_MS", "-1", "not within 0 to 60000"),
        ("PENSTOCK_ARCHIVE_BYTES", "64 MXB", "not a number of bytes"),
        ("PENSTOCK_ARCHIVE_BYTES", "1", "not within"),
        ("PENSTOCK_NAME", " ", "not a text"),
        ("PENSTOCK_SET", "num.partitions", "not KEY=VALUE"),
        ("PENSTOCK_SET", "num.partitons=3", r"did you mean num\.partitions"),
        ("PENSTOCK_SET", "num.partitions=many", "num.partitions=many: "),
        ("PENSTOCK_LISTEN", "foo", "'foo' is not HOST:PORT"),
        ("PENSTOCK_HTTP", "127.0.0.1:99999", "from 0 to 65535"),
        ("PENSTOCK_STORE", "ftp://x", "is no store"),
        ("PENSTOCK_LEDGER", "ftp://x", "is no ledger"),
    ],
)
def test_a_bad_value_is_named_with_its_origin(variable: str, text: str, reason: str) -> None:
    with pytest.raises(InvalidSettings, match=reason) as caught:
        gather({}, {variable: text}, None)
    assert str(caught.value).startswith(variable)


@pytest.mark.parametrize(
    "text",
    [
        "name = 3",
        "fsync = 1",
        "listen = [1]",
        "set = 3",
        "archive-bytes = true",
        'listen = ["x"]',
        '[set]\n"num.partitons" = 3',
    ],
)
def test_the_file_is_held_to_types(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidSettings, match=r"penstock\.toml"):
        gather({}, NOTHING, write(tmp_path, text))


def test_dotted_keys_that_are_not_quoted_are_explained(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="quote keys that hold dots"):
        gather({}, NOTHING, write(tmp_path, "[set]\nnum.partitions = 1"))


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="cannot be read"):
        gather({}, NOTHING, str(tmp_path / "none.toml"))
    with pytest.raises(InvalidSettings, match="not TOML"):
        gather({}, NOTHING, write(tmp_path, "name ="))


@pytest.mark.parametrize(("text", "count"), [("7", 7), ("64MiB", 64 * MIB), ("1 kB", 1000), ("2gib", 2048 * MIB)])
def test_bytes_have_units(text: str, count: int) -> None:
    assert read_bytes(text) == count


@pytest.mark.parametrize(
    ("pair", "told"),
    [
        ("log.retention.mz=1", "no such broker config; did you mean log.retention.ms?"),
        ("retention.ms=1", "a topic config; set its default, the broker config log.retention.ms"),
        (
            "penstock.transaction.placement=commit",
            "penstock topics create TOPIC --config penstock.transaction.placement=commit",
        ),
    ],
)
def test_what_is_no_broker_config_tells_what_to_set_instead(pair: str, told: str) -> None:
    with pytest.raises(InvalidSettings, match=f"--set {re.escape(pair.partition('=')[0])}: .*{re.escape(told)}"):
        gather({"set": [pair]}, {}, None)


def test_names_are_unique_and_every_bound_is_a_range() -> None:
    assert len({option.name for option in OPTIONS}) == len(OPTIONS)
    assert all(option.minimum <= option.maximum for option in OPTIONS)
