"""Parses and checks the options of `spark.read.format("penstock")`. Pure.

Names, meanings and errors are those of Spark's Kafka source, where it has the option. An unknown option is an error and
never ignored. Options of the Kafka client (`kafka.*`) are accepted without effect, because there is no client. So a job
of the Kafka source only has to change its format's name.

Source: org.apache.spark.sql.kafka010.{KafkaSourceProvider,JsonUtils} (Spark 4.1).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from iceberg_export.spark.tenant.access import AgentAccess
from protocol.decoding import Undecodable, decode_json
from protocol.suggestions import nearest

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""The columns of the Kafka source, in its order."""
HEADERS: Final = "headers"
EARLIEST_OFFSET: Final = -2
LATEST_OFFSET: Final = -1
STORE_VARIABLE: Final = "PENSTOCK_STORE"
CA_VARIABLE: Final = "AWS_CA_BUNDLE"
_CLIENT_OPTIONS: Final = (
    "kafka.",
    "kafkaconsumer.polltimeoutms",
    "fetchoffset.numretries",
    "fetchoffset.retryintervalms",
    "groupidprefix",
)
"""The prefixes of options of the Kafka client and its consumers, which are accepted without effect."""
_NAMES: Final = (
    "path",
    "penstock.store",
    "penstock.server",
    "penstock.token",
    "penstock.token.file",
    "penstock.user",
    "penstock.password",
    "penstock.password.file",
    "penstock.ca",
    "penstock.insecure",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "includeHeaders",
    "read",
    "columns",
)
_KNOWN: Final = frozenset(name.lower() for name in _NAMES)
"""The names in lower case, in which Spark passes them."""
_UNSUPPORTED: Final = ("minoffsetspertrigger", "maxtriggerdelay", "maxrecordsperpartition")
"""Options of the Kafka source that are not supported here: no misspellings, so no other option is suggested."""
_AGENT_OPTIONS: Final = (
    "penstock.token",
    "penstock.token.file",
    "penstock.user",
    "penstock.password",
    "penstock.password.file",
)
"""The options of a tenant's login."""
_ENDINGS: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")

TopicPartition: TypeAlias = tuple[str, int]
"""A topic's name, and the number of a partition."""


class OptionError(ValueError):
    """An option is invalid: the message names it, and the values that it takes."""


class Edge(Enum):
    """An end of the log."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """An offset for every partition. `EARLIEST_OFFSET` and `LATEST_OFFSET` mean the ends of the log."""

    by_partition: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timestamps:
    """The first record at or after a time, in milliseconds since 1970."""

    by_partition: Mapping[TopicPartition, int]
    """The times of partitions; empty where `for_all` applies to all of them."""
    for_all: int = 0


Bound: TypeAlias = Edge | Offsets | Timestamps
"""The begin or the end of a read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSubscription:
    """The topics and partitions to read: exactly one of the three fields is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    """A regular expression that a topic's whole name has to match."""
    assigned: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])

    @property
    def names(self) -> tuple[str, ...]:
        """The named topics; empty for a pattern."""
        return self.topics or tuple(self.assigned)

    def matches(self, topic: str) -> bool:
        """True where partitions of the topic are read."""
        if self.pattern:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.names

    def partitions_of(self, topic: str, partition_count: int) -> Sequence[int]:
        """The partitions to read of a topic that matches. An assigned partition may not exist."""
        return self.assigned[topic] if self.assigned else range(partition_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """All options, checked against each other."""

    store_url: str
    """Empty for a tenant, who reads through `agent`."""
    variables: Mapping[str, str] = field(repr=False)
    """AWS variables from options, which override the environment's. Secret."""
    subscription: TopicSubscription
    agent: AgentAccess | None = None
    """The agent through which a tenant reads; None where the bucket is read."""
    starting: Bound
    ending: Bound
    is_missing_time_latest: bool = False
    """True: where no record is as late as a starting timestamp, the read begins at the end instead of failing."""
    offsets_per_trigger_max: int | None = None
    partitions_min: int | None = None
    is_loss_fatal: bool = True
    columns: tuple[str, ...] = COLUMNS
    is_archive_only: bool = False


def parse_options(
    given: Mapping[str, str], environment: Mapping[str, str], *, is_stream: bool, schema_columns: Sequence[str] = ()
) -> ReadOptions:
    """The parsed options.

    `given`: as the job set them, names in any case. `environment`: for `STORE_VARIABLE`. `schema_columns`: those of a
    schema that the job set itself. Raises `OptionError`.
    """
    options = {name.lower(): value for name, value in given.items()}
    _check_names(given)
    if is_stream:
        for name in _ENDINGS:
            if name.lower() in options:
                raise OptionError(f"option {name} is not valid in a streaming query, which has no end: omit it")
    elif "maxoffsetspertrigger" in options:
        raise OptionError("option maxOffsetsPerTrigger is not valid in a batch query: it limits batches of a stream")
    subscription = _subscription(options)
    columns = _columns(options, schema_columns)
    starting = _bound(options, "starting", Edge.LATEST if is_stream else Edge.EARLIEST, is_stream=is_stream)
    ending = _bound(options, "ending", Edge.LATEST, is_stream=is_stream)
    _check_order(starting, ending)
    variables = {name.upper(): value for name, value in options.items() if name.startswith("aws_")}
    agent = _agent(options, variables, environment)
    return ReadOptions(
        store_url="" if agent is not None else _store_url(options, environment),
        variables=variables,
        agent=agent,
        subscription=subscription,
        starting=starting,
        ending=ending,
        is_missing_time_latest=_choice(options, "startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
        offsets_per_trigger_max=_positive(options, "maxOffsetsPerTrigger"),
        partitions_min=_positive(options, "minPartitions"),
        is_loss_fatal=_boolean(options, "failOnDataLoss", default=True),
        columns=columns,
        is_archive_only=_choice(options, "read", ("all", "archive")) == "archive",
    )


def _check_names(given: Mapping[str, str]) -> None:
    for name, value in given.items():
        lower = name.lower()
        if lower == "kafka.isolation.level" and value != "read_committed":
            raise OptionError(
                f"kafka.isolation.level={value} is not supported: the bucket is always read as read_committed"
            )
        if lower in _KNOWN or lower.startswith(("aws_", *_CLIENT_OPTIONS)):
            continue
        if lower in _UNSUPPORTED:
            raise OptionError(f"unknown option {name!r}: the Kafka source has it, this source does not; omit it")
        hint = nearest(lower, _NAMES) or f"; known options are {', '.join(_NAMES)}"
        raise OptionError(f"unknown option {name!r}{hint}")


def _store_url(options: Mapping[str, str], environment: Mapping[str, str]) -> str:
    path, store = options.get("path"), options.get("penstock.store")
    if path and store and path != store:
        raise OptionError(f"options path={path} and penstock.store={store} are two buckets: give one of them")
    url = path or store or environment.get(STORE_VARIABLE)
    if not url:
        raise OptionError(
            f"no bucket: give its URL as load(URL), as option penstock.store or as {STORE_VARIABLE} in the "
            "environment; or an agent as penstock.server, with a login"
        )
    return url


def _agent(
    options: Mapping[str, str], variables: Mapping[str, str], environment: Mapping[str, str]
) -> AgentAccess | None:
    """The agent and the login of `penstock.server` and the options beside it; None without it.

    `variables`: AWS variables from options. Raises `OptionError`, whose message has no secret.
    """
    given = [name for name in _AGENT_OPTIONS if options.get(name)]
    server = options.get("penstock.server", "").strip().rstrip("/")
    if not server:
        if given:
            raise OptionError(f"option {given[0]} needs penstock.server, the address of an agent: https://HOST:PORT")
        return None
    if options.get("path") or options.get("penstock.store"):
        raise OptionError("options penstock.server and penstock.store (or load(URL)) exclude each other: give one")
    if own := sorted(variables.keys() - {CA_VARIABLE}):
        raise OptionError(f"option {own[0]} is for reading the bucket: with penstock.server the agent gives the keys")
    _check_login(options, given)
    _check_server(server, is_login=bool(given), is_insecure=_boolean(options, "penstock.insecure", default=False))
    return AgentAccess(
        url=server,
        token=options.get("penstock.token", ""),
        token_file=options.get("penstock.token.file", ""),
        user=options.get("penstock.user", ""),
        password=options.get("penstock.password", ""),
        password_file=options.get("penstock.password.file", ""),
        ca_file=options.get("penstock.ca", ""),
        store_ca_file=variables.get(CA_VARIABLE) or environment.get(CA_VARIABLE, ""),
    )


def _check_login(options: Mapping[str, str], given: Sequence[str]) -> None:
    """Raises `OptionError` unless the options have one login at most."""
    secrets = [name for name in given if name != "penstock.user"]
    if len(secrets) > 1:
        raise OptionError(f"options {secrets[0]} and {secrets[1]} exclude each other: give one of them")
    is_password = any(name.startswith("penstock.password") for name in secrets)
    if is_password != ("penstock.user" in given):
        raise OptionError("option penstock.user needs penstock.password or penstock.password.file, and they need it")
    for name in ("penstock.token", "penstock.user", "penstock.password"):
        if any(ord(character) < ord(" ") for character in options.get(name, "")):
            raise OptionError(f"option {name} has a control character, such as the end of a line: remove it")
    if not options.get("penstock.token", "").isascii():
        raise OptionError("option penstock.token has a character that no token has")


def _check_server(server: str, *, is_login: bool, is_insecure: bool) -> None:
    """Raises `OptionError` unless it is an address to which a login may go."""
    address = urlsplit(server)
    try:
        port = address.port
    except ValueError:
        port = None
    if address.scheme not in {"http", "https"} or not address.hostname or port is None or address.path:
        raise OptionError(f"option penstock.server={server} must be https://HOST:PORT, an agent's HTTP address")
    if "@" in address.netloc:
        raise OptionError("option penstock.server has a login: give it as penstock.user and penstock.password")
    is_here = address.hostname in {"localhost", "::1"} or address.hostname.startswith("127.")
    if address.scheme == "http" and is_login and not is_here and not is_insecure:
        raise OptionError(
            f"option penstock.server={server} is not encrypted, and the login would cross the network: use https://, "
            "or penstock.insecure=true in a network that you trust"
        )


def _subscription(options: Mapping[str, str]) -> TopicSubscription:
    given = [name for name in ("assign", "subscribe", "subscribePattern") if name.lower() in options]
    if not given:
        raise OptionError("one of the options subscribe, subscribePattern and assign must be given")
    if len(given) > 1:
        raise OptionError(
            f"only one of the options subscribe, subscribePattern and assign may be given, not {' and '.join(given)}"
        )
    value = options[given[0].lower()].strip()
    match given[0]:
        case "subscribe":
            topics = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
            if not topics:
                raise OptionError(f"option subscribe={value!r} names no topic")
            return TopicSubscription(topics=topics)
        case "subscribePattern":
            if not value:
                raise OptionError("option subscribePattern is empty")
            try:
                re.compile(value)
            except re.error as error:
                raise OptionError(f"option subscribePattern={value!r} is no regular expression: {error}") from error
            return TopicSubscription(pattern=value)
        case _:
            return TopicSubscription(assigned=_assigned(value))


def _assigned(value: str) -> dict[str, tuple[int, ...]]:
    expected = 'option assign must be JSON as {"topicA": [0, 1], "topicB": [2]}, not ' + repr(value)
    try:
        parsed = decode_json(value)
    except Undecodable as error:
        raise OptionError(expected) from error
    if not isinstance(parsed, dict) or not parsed:
        raise OptionError(expected)
    for partitions in parsed.values():
        if not isinstance(partitions, list) or not partitions or not all(_is_count(each) for each in partitions):
            raise OptionError(expected)
    return {topic: tuple(sorted(set(partitions))) for topic, partitions in parsed.items()}


def _bound(options: Mapping[str, str], which: str, default: Edge, *, is_stream: bool) -> Bound:
    """The bound of one side. A time for all partitions overrides times of partitions, and these override offsets.

    Source: KafkaSourceProvider.getKafkaOffsetRangeLimit (Spark 4.1).
    """
    name = f"{which}Timestamp"
    if (value := options.get(name.lower())) is not None:
        if not re.fullmatch(r"\s*\d+\s*", value):
            raise OptionError(f"option {name}={value!r} must be milliseconds since 1970, not negative")
        return Timestamps(by_partition={}, for_all=int(value))
    name = f"{which}OffsetsByTimestamp"
    if (value := options.get(name.lower())) is not None:
        times = _by_partition(name, value)
        if any(time < 0 for time in times.values()):
            raise OptionError(f"option {name} must have milliseconds since 1970, not negative: {value}")
        return Timestamps(by_partition=times)
    name = f"{which}Offsets"
    value = options.get(name.lower())
    if value is None:
        return default
    return _offsets_bound(name, value, is_start=which == "starting", is_stream=is_stream)


def _offsets_bound(name: str, value: str, *, is_start: bool, is_stream: bool) -> Bound:
    word = value.strip().lower()
    if word in {"earliest", "latest"}:
        edge = Edge(word)
        if not is_stream and edge is (Edge.LATEST if is_start else Edge.EARLIEST):
            raise OptionError(f"option {name}={word} is not valid in a batch query: nothing would be read")
        return edge
    offsets = _by_partition(name, value)
    for (topic, partition), offset in offsets.items():
        if offset < EARLIEST_OFFSET:
            raise OptionError(
                f"option {name}: {topic}-{partition} has the offset {offset}; -1 means latest, -2 means earliest"
            )
        if not is_stream and offset == (LATEST_OFFSET if is_start else EARLIEST_OFFSET):
            raise OptionError(f"option {name}: {offset} of {topic}-{partition} is not valid in a batch query")
    return Offsets(by_partition=offsets)


def _check_order(starting: Bound, ending: Bound) -> None:
    """Raises `OptionError` where a partition's ending offset or time is before its starting one.

    Source: KafkaSourceProvider.checkOffsetLimitValidity (Spark 4.1), which does not compare times for all partitions.
    """
    match starting, ending:
        case Offsets(by_partition=starts), Offsets(by_partition=ends):
            what = "offset"
        case Timestamps(by_partition=starts), Timestamps(by_partition=ends):
            what = "timestamp"
        case _:
            return
    for (topic, partition), start in starts.items():
        end = ends.get((topic, partition), start)
        if start > end >= 0:
            raise OptionError(f"the ending {what} of {topic}-{partition} is {end}, before its starting {what}, {start}")


def _by_partition(name: str, value: str) -> dict[TopicPartition, int]:
    expected = f'option {name} must be earliest, latest or JSON as {{"topicA": {{"0": 23, "1": -2}}}}, not {value!r}'
    if "ByTimestamp" in name:
        expected = f'option {name} must be JSON as {{"topicA": {{"0": 1700000000000}}}}, not {value!r}'
    try:
        parsed = decode_json(value)
        if not isinstance(parsed, dict):
            raise OptionError(expected)
        values: dict[TopicPartition, int] = {}
        for topic, numbers in parsed.items():
            for partition, number in numbers.items():
                if not isinstance(number, int) or isinstance(number, bool) or not _is_count(int(partition)):
                    raise OptionError(expected)
                values[topic, int(partition)] = number
    except (ValueError, AttributeError) as error:
        raise OptionError(expected) from error
    return values


def _columns(options: Mapping[str, str], schema_columns: Sequence[str]) -> tuple[str, ...]:
    has_headers = _boolean(options, "includeHeaders", default=False)
    known = (*COLUMNS, HEADERS) if has_headers else COLUMNS
    if "columns" not in options:
        return tuple(schema_columns) or known
    columns = tuple(name.strip() for name in options["columns"].split(",") if name.strip())
    if not columns or len(set(columns)) < len(columns) or not set(columns) <= set(known):
        hint = "; the column headers needs includeHeaders=true" if HEADERS in columns and not has_headers else ""
        raise OptionError(
            f"option columns={options['columns']!r} must name some of {', '.join(known)}, each once{hint}"
        )
    return columns


def _choice(options: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    """The value of an option, which is one of `choices`; the first one is the default."""
    value = options.get(name.lower(), choices[0]).strip().lower()
    if value not in choices:
        raise OptionError(f"option {name} must be {' or '.join(choices)}, not {value!r}")
    return value


def _boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = options.get(name.lower(), str(default)).strip().lower()
    if value not in {"true", "false"}:
        raise OptionError(f"option {name} must be true or false, not {value!r}")
    return value == "true"


def _positive(options: Mapping[str, str], name: str) -> int | None:
    value = options.get(name.lower())
    if value is None:
        return None
    if not re.fullmatch(r"\s*0*[1-9]\d*\s*", value):
        raise OptionError(f"option {name} must be a positive number, not {value!r}")
    return int(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
