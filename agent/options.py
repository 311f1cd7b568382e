"""The table of options, and where their values come from: command line, environment, TOML file, default.

Rule: an option stands here once; the command line's flags, the environment's names, the file's keys and
docs/CONFIGURATION.md follow from the row. What nobody knows is an error that names the nearest known thing, never
ignored. Nothing here decides what a value means for the agent: that is `agent.settings`.
"""

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from protocol.limits import (
    KIB,
    MIB,
    READ_CACHE_BYTES_DEFAULT,
    SNAPSHOT_BYTES_INTERVAL,
    SNAPSHOT_ENTRIES_INTERVAL,
)

DAY_SECONDS = 86_400
GIB = 1024 * MIB
_BYTE_UNITS = {"": 1, "b": 1, "kib": KIB, "mib": MIB, "gib": GIB, "kb": 1000, "mb": 1000**2, "gb": 1000**3}
_BYTES_TEXT = re.compile(r"(\d+)\s*([a-z]*)", re.IGNORECASE)
_FLAG_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_SERVICE_LINK = re.compile(r"PENSTOCK_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP)(_\w+)?)?)")
"""What Kubernetes puts into the environment of every pod beside a Service whose name begins with penstock."""
_COMMAND_VARIABLES = frozenset({"PENSTOCK_CONFIG", "PENSTOCK_SERVER", "PENSTOCK_BOOTSTRAP", "PENSTOCK_JSON"})


class InvalidSettings(Exception):
    """The settings cannot be used. The message says which, where it was given, and what would be right."""


class Kind(Enum):
    TEXT = auto()
    LIST = auto()
    """Repeatable on the command line; in the environment separated by commas; in the file an array."""
    PAIRS = auto()
    """KEY=VALUE, repeatable; in the environment one per line or separated by commas; in the file a table."""
    FLAG = auto()
    COUNT = auto()
    BYTES = auto()
    """A number of bytes, or with a unit: 64MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One row. `minimum` and `maximum` are inclusive and of the kind's unit; `default` is what the documents show."""

    name: str
    kind: Kind
    help: str
    default: str
    minimum: int = 0
    maximum: int = 0
    choices: tuple[str, ...] = ()
    is_cluster_only: bool = False

    @property
    def variable(self) -> str:
        return "PENSTOCK_" + self.name.upper().replace("-", "_")

    @property
    def field(self) -> str:
        return self.name.replace("-", "_")


Value = str | int | bool | tuple[str, ...] | Mapping[str, str]

OPTIONS: tuple[Option, ...] = (
    Option(
        name="listen",
        kind=Kind.LIST,
        default="127.0.0.1:9092",
        help="Address for Kafka clients, [NAME://]HOST:PORT; repeatable, one name each. Port 0 takes a free one.",
    ),
    Option(
        name="advertise",
        kind=Kind.LIST,
        default="what --listen says",
        help="Address that clients are told to connect to, [NAME://]HOST:PORT; repeatable, by the listener's name.",
    ),
    Option(
        name="http", kind=Kind.TEXT, default="127.0.0.1:9644", help="Address of health, metrics and admin, HOST:PORT."
    ),
    Option(
        name="data-dir",
        kind=Kind.TEXT,
        default="./penstock-data",
        help="Folder of the embedded ledger (ledger.sqlite) and bucket (store/).",
    ),
    Option(
        name="ledger",
        kind=Kind.TEXT,
        default="required by penstock agent",
        is_cluster_only=True,
        help="The cluster's ledger: etcd://HOST:PORT[,HOST:PORT...]/CLUSTER, sqlite:///PATH or memory:.",
    ),
    Option(
        name="store",
        kind=Kind.TEXT,
        default="store/ in the data folder; required by penstock agent",
        help="The bucket: s3://BUCKET/PREFIX (with the usual AWS_ variables), file:///PATH or memory:.",
    ),
    Option(
        name="name",
        kind=Kind.TEXT,
        default="penstock for run; the machine's name for agent",
        help="This agent's name; no two live agents of a cluster may have the same.",
    ),
    Option(
        name="zone", kind=Kind.TEXT, default="none", help="Availability zone, so that clients read from a near agent."
    ),
    Option(
        name="set",
        kind=Kind.PAIRS,
        default="Kafka's defaults",
        help="One of Kafka's broker configs by its own name, KEY=VALUE; repeatable.",
    ),
    Option(
        name="insecure",
        kind=Kind.FLAG,
        default="false",
        help="Allow addresses that other machines can reach, although nothing is encrypted or authenticated yet.",
    ),
    Option(
        name="fsync",
        kind=Kind.FLAG,
        default="true",
        help="Wait for the disk before acknowledging. Without it a loss of power can lose acknowledged records.",
    ),
    Option(
        name="log-level",
        kind=Kind.TEXT,
        default="info",
        choices=("debug", "info", "warning", "error"),
        help="What is logged to stderr.",
    ),
    Option(
        name="log-format",
        kind=Kind.TEXT,
        default="text",
        choices=("text", "json"),
        help="One line of text, or one JSON object, per message.",
    ),
    Option(
        name="flush-interval-ms",
        kind=Kind.COUNT,
        default="5; with s3:// 250",
        minimum=0,
        maximum=60_000,
        help="How long a produced batch may wait for others to share its object. Shorter costs requests.",
    ),
    Option(
        name="archive-interval-s",
        kind=Kind.COUNT,
        default="30",
        minimum=1,
        maximum=DAY_SECONDS,
        help="Seconds between two archive passes of a topic that has new records.",
    ),
    Option(
        name="archive-bytes",
        kind=Kind.BYTES,
        default="64MiB",
        minimum=KIB,
        maximum=256 * MIB,
        help="Unarchived bytes of a topic at which a pass begins before the interval is over.",
    ),
    Option(
        name="gc-grace-s",
        kind=Kind.COUNT,
        default="3600",
        minimum=0,
        maximum=30 * DAY_SECONDS,
        help="Seconds before a released object is deleted; no shorter than your longest Spark job's plan lives.",
    ),
    Option(
        name="read-cache-bytes",
        kind=Kind.BYTES,
        default=f"{READ_CACHE_BYTES_DEFAULT // MIB}MiB",
        minimum=MIB,
        maximum=1024 * GIB,
        help="Memory for objects that were read or written lately.",
    ),
    Option(
        name="snapshot-entries",
        kind=Kind.COUNT,
        default=str(SNAPSHOT_ENTRIES_INTERVAL),
        minimum=10,
        maximum=10_000_000,
        help="Ledger entries between two snapshots of the state.",
    ),
    Option(
        name="snapshot-bytes",
        kind=Kind.BYTES,
        default=f"{SNAPSHOT_BYTES_INTERVAL // MIB}MiB",
        minimum=64 * KIB,
        maximum=GIB,
        help="Bytes of ledger entries between two snapshots, if that comes first.",
    ),
    Option(
        name="drain-timeout-s",
        kind=Kind.COUNT,
        default="20",
        minimum=0,
        maximum=3600,
        help="Seconds that a stopping agent gives to requests in progress.",
    ),
)
OPTIONS_BY_NAME: Mapping[str, Option] = {option.name: option for option in OPTIONS}


def gather(
    command_line: Mapping[str, object],
    environment: Mapping[str, str],
    config_path: str | None,
) -> dict[str, Value]:
    """Every option that was given, by name: command line before environment before file.

    `command_line` holds values by option name, None or an empty tuple where a flag was not given. `--set` alone is
    merged key by key over all three. Raises `InvalidSettings`.
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


def nearest(word: str, known: Iterable[str]) -> str:
    """ " - did you mean X?", or nothing where no known word is like it."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {found[0]}?" if found else ""


def read_bytes(text: str) -> int:
    """`1048576`, `64MiB`, `64 MB`. Raises `ValueError`."""
    match = _BYTES_TEXT.fullmatch(text.strip())
    if match is None or match[2].lower() not in _BYTE_UNITS:
        raise ValueError(f"{text!r} is not a number of bytes such as 64MiB")
    return int(match[1]) * _BYTE_UNITS[match[2].lower()]


def _pairs_of(values: Mapping[str, Value]) -> Mapping[str, str]:
    pairs = values.get("set", {})
    assert isinstance(pairs, Mapping)
    return pairs


def _from_command_line(given: Mapping[str, object]) -> dict[str, Value]:
    return {
        name: _parse(OPTIONS_BY_NAME[name], value, f"--{name}")
        for name, value in given.items()
        if value is not None and value not in ((), [])
    }


def _from_environment(environment: Mapping[str, str]) -> dict[str, Value]:
    by_variable = {option.variable: option for option in OPTIONS}
    values: dict[str, Value] = {}
    for variable, text in environment.items():
        if not variable.startswith("PENSTOCK_") or variable in _COMMAND_VARIABLES:
            continue
        option = by_variable.get(variable)
        if option is not None:
            given = [part for part in re.split(r"[,\n]", text) if part.strip()] if _is_many(option) else text
            values[option.name] = _parse(option, given, variable)
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


def _is_many(option: Option) -> bool:
    return option.kind in (Kind.LIST, Kind.PAIRS)


def _parse(option: Option, value: object, origin: str) -> Value:
    """The value in the option's type. `value` is a text, or what TOML or the command line made of it already."""
    try:
        match option.kind:
            case Kind.TEXT:
                return _parse_text(option, value)
            case Kind.LIST:
                return tuple(_text(item) for item in (value if isinstance(value, list | tuple) else [value]))
            case Kind.PAIRS:
                return _parse_pairs(value)
            case Kind.FLAG:
                return _parse_flag(value)
            case Kind.COUNT | Kind.BYTES:
                return _parse_number(option, value)
    except ValueError as error:
        raise InvalidSettings(f"{origin}: {error}") from error


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{value!r} is not a text")
    return value.strip()


def _parse_text(option: Option, value: object) -> str:
    text = _text(value)
    if option.choices and text not in option.choices:
        raise ValueError(f"{text!r} is none of {', '.join(option.choices)}{nearest(text, option.choices)}")
    return text


def _parse_flag(value: object) -> bool:
    flag = value if isinstance(value, bool) else _FLAG_WORDS.get(_text(value).lower())
    if flag is None:
        raise ValueError(f"{value!r} is neither true nor false")
    return flag


def _parse_number(option: Option, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif option.kind is Kind.BYTES:
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
    """Kafka's configs are texts; TOML may say 3 or true."""
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
        case _:
            raise ValueError(f"{key} must be a text, a number or true or false; quote keys that hold dots")
