"""Kafka's topic configs: what they are called, which values they take, what holds for a topic, and where it comes from.

Names, types, defaults and limits are those of Kafka 4.3.1 (org.apache.kafka.storage.internals.log.LogConfig);
sentences are our own. `Effect.NONE` means that a value is kept and shown, and changes nothing. Rule:
`validate_topic_config` is the proposer's business; applying an entry never fails on a config.
"""

from collections.abc import Mapping
from typing import Final

from coordinator.configs.broker_configs import BROKER_CONFIGS, broker_value
from coordinator.configs.config_types import (
    GZIP_LEVELS,
    LONG_MAX,
    ConfigSource,
    ConfigSpec,
    ConfigType,
    Effect,
    InvalidConfig,
    configs_bytes,
    shorten,
    table,
)
from protocol.limits import (
    CONFIG_VALUE_CHARS_MAX,
    CONFIGS_BYTES_MAX,
    TABLE_FILE_BYTES_DEFAULT,
    TABLE_FILE_BYTES_MAX,
)
from protocol.suggestions import nearest

__all__ = [
    "BROKER_CONFIGS",
    "BROKER_SYNONYMS",
    "TOPIC_CONFIGS",
    "ConfigSource",
    "ConfigSpec",
    "ConfigType",
    "Effect",
    "InvalidConfig",
    "broker_value",
    "effective",
    "stamped_by",
    "validate_topic_config",
    "validate_topic_configs",
]

TIMESTAMP_TYPE: Final = "message.timestamp.type"
TABLE_FILE_BYTES: Final = "penstock.table.file.bytes"
"""How large the files of a topic's table become by merging; a config that Kafka does not have."""
TABLE_COLUMNS: Final = "penstock.table.columns"
TABLE_RAW_VALUES: Final = "penstock.table.raw.values"
"""Which records' values a topic's files have as bytes too; a config that Kafka does not have."""
ALWAYS: Final = "always"
IRREPRODUCIBLE: Final = "irreproducible"
"""Its value where files omit the bytes that typed columns reproduce."""
FORMER_RAW_VALUES: Final[Mapping[str, str]] = {"all": ALWAYS, "needed": IRREPRODUCIBLE}
"""The values by the names that earlier builds gave them, which stand in ledgers."""
TABLE_RETENTION: Final = "penstock.table.retention.ms"
"""How long a topic's table keeps records: a config that Kafka does not have."""
AS_THE_LOG: Final = -2
"""Its value where the table keeps what the log keeps; Kafka's local.retention.ms says it alike."""
PLACEMENT: Final = "penstock.transaction.placement"
"""When records of a transaction get their offsets; a config that Kafka does not have."""
AT_PRODUCE: Final = "produce"
AT_COMMIT: Final = "commit"
_THROTTLED_REPLICAS = r"(\*|[0-9]+:[0-9]+(\s*,\s*[0-9]+:[0-9]+)*)?"
_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS


_BOOLEAN, _STRING, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
_DOUBLE, _LIST = ConfigType.DOUBLE, ConfigType.LIST
_HONOURED = Effect.HONOURED

TOPIC_CONFIGS: Final[Mapping[str, ConfigSpec]] = table(
    ConfigSpec(
        "cleanup.policy",
        _LIST,
        "delete",
        "What deletes old records: age and size (delete), or a newer record of the same key (compact).",
        effect=_HONOURED,
        choices=("compact", "delete"),
    ),
    ConfigSpec(
        "compression.type",
        _STRING,
        "producer",
        "The codec of records that consumers read; producer keeps the codec of the producer.",
        effect=_HONOURED,
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    ConfigSpec(
        "compression.gzip.level",
        _INT,
        "-1",
        "The level of gzip, if compression.type names it.",
        choices=GZIP_LEVELS,
    ),
    ConfigSpec("compression.lz4.level", _INT, "9", "The level of lz4, if compression.type names it.", low=1, high=17),
    ConfigSpec(
        "compression.zstd.level",
        _INT,
        "3",
        "The level of zstd, if compression.type names it.",
        low=-131072,
        high=22,
    ),
    ConfigSpec("delete.retention.ms", _LONG, "86400000", "How long compaction keeps a deleted key's tombstone.", low=0),
    ConfigSpec("file.delete.delay.ms", _LONG, "60000", "Kafka's wait before it removes a segment's file.", low=0),
    ConfigSpec(
        "flush.messages",
        _LONG,
        str(LONG_MAX),
        "Kafka's records per fsync. Penstock syncs before it acknowledges.",
        low=1,
    ),
    ConfigSpec("flush.ms", _LONG, str(LONG_MAX), "Kafka's time between fsyncs. Penstock syncs first.", low=0),
    ConfigSpec(
        "follower.replication.throttled.replicas",
        _LIST,
        "",
        "Kafka's throttled follower replicas. Penstock does not replicate.",
        pattern=_THROTTLED_REPLICAS,
    ),
    ConfigSpec(
        "leader.replication.throttled.replicas",
        _LIST,
        "",
        "Kafka's throttled leader replicas. Penstock does not replicate.",
        pattern=_THROTTLED_REPLICAS,
    ),
    ConfigSpec("index.interval.bytes", _INT, "4096", "Kafka's distance between index entries of a segment.", low=0),
    ConfigSpec("local.retention.bytes", _LONG, "-2", "Kafka's bytes kept on disk under tiered storage.", low=-2),
    ConfigSpec("local.retention.ms", _LONG, "-2", "Kafka's time on disk under tiered storage.", low=-2),
    ConfigSpec("max.compaction.lag.ms", _LONG, str(LONG_MAX), "The longest that a record waits for compaction.", low=1),
    ConfigSpec(
        "max.message.bytes",
        _INT,
        "1048588",
        "The largest accepted record batch, in bytes as sent.",
        effect=_HONOURED,
        low=0,
    ),
    ConfigSpec(
        "message.timestamp.after.max.ms",
        _LONG,
        "3600000",
        "How far a producer's timestamp may be ahead of the broker's clock.",
        effect=_HONOURED,
        low=0,
    ),
    ConfigSpec(
        "message.timestamp.before.max.ms",
        _LONG,
        str(LONG_MAX),
        "How far a producer's timestamp may be behind the broker's clock.",
        effect=_HONOURED,
        low=0,
    ),
    ConfigSpec(
        TIMESTAMP_TYPE,
        _STRING,
        "CreateTime",
        "The clock of a record's timestamp: the producer's, or the cluster's when it accepts the record.",
        effect=_HONOURED,
        choices=("CreateTime", "LogAppendTime"),
    ),
    ConfigSpec(
        "min.cleanable.dirty.ratio", _DOUBLE, "0.5", "The uncompacted ratio that starts a compaction.", low=0, high=1
    ),
    ConfigSpec("min.compaction.lag.ms", _LONG, "0", "The shortest time before compaction may delete a record.", low=0),
    ConfigSpec(
        "min.insync.replicas", _INT, "1", "Kafka's replicas per write. Here the bucket provides the durability.", low=1
    ),
    ConfigSpec(
        TABLE_COLUMNS,
        _STRING,
        "raw",
        "Which parts of records the table also stores as typed columns, by their registered schemas.",
        effect=_HONOURED,
        choices=("raw", "key", "value", "both"),
    ),
    ConfigSpec(
        TABLE_FILE_BYTES,
        _LONG,
        str(TABLE_FILE_BYTES_DEFAULT),
        "The target size of the table's files. File compaction merges smaller files; 0 turns it off.",
        effect=_HONOURED,
        low=0,
        high=TABLE_FILE_BYTES_MAX,
    ),
    ConfigSpec(
        TABLE_RAW_VALUES,
        _STRING,
        ALWAYS,
        "Which values the table's files also store as bytes beside their typed columns. irreproducible stores only "
        "those whose bytes the columns do not give back.",
        effect=_HONOURED,
        choices=(ALWAYS, IRREPRODUCIBLE),
        former_choices=tuple(FORMER_RAW_VALUES),
    ),
    ConfigSpec(
        TABLE_RETENTION,
        _LONG,
        str(AS_THE_LOG),
        "How long the table keeps records, whether or not the log has them; -1 is indefinitely, -2 as long as the log.",
        effect=_HONOURED,
        low=AS_THE_LOG,
    ),
    ConfigSpec(
        PLACEMENT,
        _STRING,
        AT_PRODUCE,
        "When records of a transaction get their offsets: when they are produced, as in Kafka, or when the transaction "
        "commits. With commit no consumer sees an open or an aborted record, and Produce returns the offset -1.",
        effect=_HONOURED,
        choices=(AT_PRODUCE, AT_COMMIT),
    ),
    ConfigSpec("preallocate", _BOOLEAN, "false", "Whether Kafka reserves a segment's file beforehand."),
    ConfigSpec("remote.log.copy.disable", _BOOLEAN, "false", "Whether Kafka's tiered storage stops copying."),
    ConfigSpec(
        "remote.log.delete.on.disable", _BOOLEAN, "false", "Whether Kafka deletes tiered data when it is turned off."
    ),
    ConfigSpec(
        "remote.storage.enable",
        _BOOLEAN,
        "false",
        "Kafka's tiered storage. Penstock always stores records in the bucket.",
        choices=("false",),
    ),
    ConfigSpec("retention.bytes", _LONG, "-1", "How many bytes a partition keeps; -1 is no limit.", effect=_HONOURED),
    ConfigSpec(
        "retention.ms", _LONG, "604800000", "How long records are kept; -1 is no limit.", effect=_HONOURED, low=-1
    ),
    ConfigSpec("segment.bytes", _INT, "1073741824", "The size at which Kafka begins a new segment.", low=1048576),
    ConfigSpec("segment.index.bytes", _INT, "10485760", "The largest index of a segment in Kafka.", low=4),
    ConfigSpec("segment.jitter.ms", _LONG, "0", "The random delay that Kafka adds to segment.ms.", low=0),
    ConfigSpec("segment.ms", _LONG, "604800000", "The age at which Kafka begins a new segment.", low=1),
    ConfigSpec(
        "unclean.leader.election.enable",
        _BOOLEAN,
        "false",
        "Whether Kafka may elect a replica that lacks records. Penstock has no replicas.",
    ),
)

BROKER_SYNONYMS: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "preallocate": (("log.preallocate", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MINUTE_MS),
        ("log.retention.hours", _HOUR_MS),
    ),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
}
"""The broker configs that give a topic config its default, first one first, each with the factor of its unit.

Source: org.apache.kafka.server.config.ServerTopicConfigSynonyms.
"""


def effective(topic_configs: Mapping[str, str], broker_configs: Mapping[str, str], name: str) -> str:
    """The value that holds: the topic's own, else the broker's, else Kafka's default."""
    value = topic_configs.get(name)
    if value is not None:
        return value
    for synonym, factor in BROKER_SYNONYMS.get(name, ()):
        value = broker_configs.get(synonym)
        if value is not None:
            return scaled(value, factor)
    default = TOPIC_CONFIGS[name].default
    assert default is not None, f"{name} has no default"
    return default


def scaled(value: str, factor: int) -> str:
    """A broker's value in the topic config's unit; negative ones mean "no limit" in every unit."""
    return value if factor == 1 or int(value) < 0 else str(int(value) * factor)


def stamped_by(settings: Mapping[str, str], every_broker: Mapping[str, str]) -> Mapping[str, str]:
    """The override that a topic without one is given by an agent, as applying cannot take it from its settings.

    Timestamps are stamped at apply (safety rule S14), which knows the state alone: what was altered for every broker,
    but not an agent's `settings`. Differs from Kafka: a topic keeps the log.message.timestamp.type that the agent was
    started with through which it was created, or lost an override, as an override of its own.
    """
    (broker_name, _), *_ = BROKER_SYNONYMS[TIMESTAMP_TYPE]
    value = effective({}, settings, TIMESTAMP_TYPE)
    is_known_at_apply = broker_name in every_broker or value == TOPIC_CONFIGS[TIMESTAMP_TYPE].default
    return {} if is_known_at_apply else {TIMESTAMP_TYPE: value}


def are_reproducible_values_omitted(topic_configs: Mapping[str, str]) -> bool:
    """Whether the files of a topic with these overrides omit the bytes of values that typed columns reproduce."""
    value = topic_configs.get(TABLE_RAW_VALUES, ALWAYS)
    return FORMER_RAW_VALUES.get(value, value) == IRREPRODUCIBLE


def validate_topic_config(name: str, value: str) -> None:
    """Raise `InvalidConfig` for an unknown name or a value that it does not take."""
    spec = TOPIC_CONFIGS.get(name)
    if spec is None:
        raise InvalidConfig(f"Unknown topic config name: {shorten(name)}{nearest(name, TOPIC_CONFIGS)}")
    if len(value) > CONFIG_VALUE_CHARS_MAX:
        raise InvalidConfig(f"The value of {name} has {len(value)} characters, {CONFIG_VALUE_CHARS_MAX} is the most.")
    spec.validate(value)


def validate_topic_configs(configs: Mapping[str, str]) -> None:
    """Raise `InvalidConfig` for any of a topic's overrides, for too much of them, or where two contradict each other.

    Source: org.apache.kafka.storage.internals.log.LogConfig.validate. The sizes are limits of our own: all overrides
    have to fit into the one entry that creates the topic.
    """
    for name, value in configs.items():
        validate_topic_config(name, value)
    taken = configs_bytes(configs)
    if taken > CONFIGS_BYTES_MAX:
        raise InvalidConfig(f"The configs have {taken} bytes together, {CONFIGS_BYTES_MAX} is the most.")
    lag_min, lag_max = (
        int(effective(configs, {}, name)) for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    )
    if lag_min > lag_max:
        raise InvalidConfig(f"min.compaction.lag.ms ({lag_min}) is above max.compaction.lag.ms ({lag_max})")
