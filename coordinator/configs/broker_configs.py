"""Kafka's broker configs that `--set` and AlterConfigs accept, with their effects here: a table, and its look-up.

Names, types, defaults and limits are those of Kafka 4.3.1 (org.apache.kafka.server.config.AbstractKafkaConfig);
sentences are our own. Those of security are in `coordinator.configs.security_configs`. Configs of replication between
brokers are not accepted, nor any of security that does nothing here: it would promise protection. What `Effect.NONE`
marks is kept and shown, and changes nothing. The values are checked by `coordinator.configs.broker_config_checks`.
More than 500 lines, as the module is data only.
"""

from collections.abc import Mapping
from typing import Final

from coordinator.configs.config_types import (
    GZIP_LEVELS,
    LONG_MAX,
    ConfigSpec,
    ConfigType,
    Effect,
    table,
)
from coordinator.configs.group_broker_configs import group_broker_specs
from coordinator.configs.rules_hold import NOT_HELD, RULES_HOLD
from coordinator.configs.security_configs import SECURITY_CONFIGS
from protocol.limits import RULES_HOLD_MS_MAX

_BOOLEAN, _STRING, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
_DOUBLE, _LIST, _SHORT = ConfigType.DOUBLE, ConfigType.LIST, ConfigType.SHORT
_HONOURED = Effect.HONOURED

QUOTA_SCOPE: Final = "penstock.quota.scope"
QUOTA_SCOPE_AGENT: Final = "agent"
QUOTA_SCOPE_CLUSTER: Final = "cluster"

BROKER_CONFIGS: Final[Mapping[str, ConfigSpec]] = table(
    ConfigSpec(
        "add.partitions.to.txn.retry.backoff.max.ms",
        _INT,
        "100",
        "Longest wait for a busy transaction.",
        low=0,
        is_read_only=True,
    ),
    ConfigSpec(
        "add.partitions.to.txn.retry.backoff.ms",
        _INT,
        "20",
        "The pause before a partition is added to a busy transaction again.",
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        "auto.create.topics.enable",
        _BOOLEAN,
        "true",
        "Whether a client's request for an unknown topic creates it.",
        effect=_HONOURED,
        is_read_only=True,
    ),
    ConfigSpec(
        "auto.leader.rebalance.enable",
        _BOOLEAN,
        "true",
        "Whether Kafka moves leaders back. Penstock has no leaders.",
        is_read_only=True,
    ),
    ConfigSpec("background.threads", _INT, "10", "Threads for background tasks in Kafka.", low=1),
    ConfigSpec(
        "compression.gzip.level",
        _INT,
        "-1",
        "The default of the topic config of the same name.",
        choices=GZIP_LEVELS,
    ),
    ConfigSpec("compression.lz4.level", _INT, "9", "The default of the topic config of the same name.", low=1, high=17),
    ConfigSpec(
        "compression.type",
        _STRING,
        "producer",
        "The default of the topic config of the same name.",
        effect=_HONOURED,
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    ConfigSpec(
        "compression.zstd.level", _INT, "3", "The default of the topic config of the same name.", low=-131072, high=22
    ),
    ConfigSpec("connections.max.idle.ms", _LONG, "600000", "How long a connection may be idle.", is_read_only=True),
    ConfigSpec(
        "controlled.shutdown.enable",
        _BOOLEAN,
        "true",
        "Whether Kafka hands over its leaders before it stops.",
        is_read_only=True,
    ),
    ConfigSpec(
        "controller.quota.window.num",
        _INT,
        "11",
        "Windows of time whose mutations a client may make at once before its quota of mutations holds.",
        effect=_HONOURED,
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        "controller.quota.window.size.seconds",
        _INT,
        "1",
        "The length of such a window in seconds.",
        effect=_HONOURED,
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        "default.replication.factor",
        _INT,
        "1",
        "Replicas of a topic. Here the bucket provides the copies.",
        is_read_only=True,
    ),
    ConfigSpec("delete.topic.enable", _BOOLEAN, "true", "Whether topics can be deleted.", is_read_only=True),
    ConfigSpec("fetch.max.bytes", _INT, "57671680", "The largest answer to a fetch.", low=1024, is_read_only=True),
    ConfigSpec(
        "follower.replication.throttled.rate",
        _LONG,
        str(LONG_MAX),
        "Kafka's bytes per second from leaders during a reassignment. Penstock does not replicate.",
        low=0,
    ),
    ConfigSpec(
        "group.consumer.assignors",
        _LIST,
        "uniform,range",
        "Assignors of consumer groups (KIP-848). The first one is the default.",
        effect=_HONOURED,
        choices=("uniform", "range"),
        pattern=r".+",
        is_read_only=True,
    ),
    ConfigSpec(
        "group.consumer.heartbeat.interval.ms",
        _INT,
        "5000",
        "The heartbeat interval of a consumer group's members (KIP-848).",
        effect=_HONOURED,
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        "group.consumer.max.heartbeat.interval.ms",
        _INT,
        "15000",
        "The largest consumer.heartbeat.interval.ms of a group.",
        effect=_HONOURED,
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        "group.consumer.max.session.timeout.ms",
        _INT,
        "60000",
        "The largest consumer.session.timeout.ms of a group.",
        effect=_HONOURED,
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        "group.consumer.max.size",
        _INT,
        "2147483647",
        "Members of a consumer group (KIP-848); at most 2000.",
        effect=_HONOURED,
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        "group.consumer.migration.policy",
        _STRING,
        "bidirectional",
        "Whether groups with members may change between the classic and the consumer protocol.",
        effect=_HONOURED,
        choices=("bidirectional", "disabled", "downgrade", "upgrade"),
        is_read_only=True,
    ),
    ConfigSpec(
        "group.consumer.min.heartbeat.interval.ms",
        _INT,
        "5000",
        "The smallest consumer.heartbeat.interval.ms of a group.",
        effect=_HONOURED,
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        "group.consumer.min.session.timeout.ms",
        _INT,
        "45000",
        "The smallest consumer.session.timeout.ms of a group.",
        effect=_HONOURED,
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        "group.consumer.regex.refresh.interval.ms",
        _INT,
        "600000",
        "How often a consumer group's regular expressions are matched against the topics.",
        effect=_HONOURED,
        low=10_000,
        is_read_only=True,
    ),
    ConfigSpec(
        "group.consumer.session.timeout.ms",
        _INT,
        "45000",
        "The session time-out of a consumer group's members (KIP-848).",
        effect=_HONOURED,
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        "group.coordinator.threads", _INT, "4", "Threads of Kafka's group coordinator.", low=1, is_read_only=True
    ),
    ConfigSpec(
        "group.initial.rebalance.delay.ms",
        _INT,
        "3000",
        "How long an empty group waits for more members.",
        effect=_HONOURED,
        is_read_only=True,
    ),
    ConfigSpec(
        "group.max.session.timeout.ms",
        _INT,
        "1800000",
        "The longest session time-out of a classic member.",
        effect=_HONOURED,
        is_read_only=True,
    ),
    ConfigSpec(
        "group.max.size",
        _INT,
        "2147483647",
        "Members of a classic group; at most 2000.",
        effect=_HONOURED,
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        "group.min.session.timeout.ms",
        _INT,
        "6000",
        "The shortest session time-out of a classic member.",
        effect=_HONOURED,
        is_read_only=True,
    ),
    ConfigSpec(
        "leader.replication.throttled.rate",
        _LONG,
        str(LONG_MAX),
        "Kafka's bytes per second to followers during a reassignment. Penstock does not replicate.",
        low=0,
    ),
    ConfigSpec("log.cleaner.backoff.ms", _LONG, "15000", "The pause of idle compaction in Kafka.", low=0),
    ConfigSpec("log.cleaner.dedupe.buffer.size", _LONG, "134217728", "Memory of Kafka's compaction."),
    ConfigSpec("log.cleaner.delete.retention.ms", _LONG, "86400000", "The default of delete.retention.ms.", low=0),
    ConfigSpec("log.cleaner.enable", _BOOLEAN, "true", "Whether Kafka compacts at all.", is_read_only=True),
    ConfigSpec(
        "log.cleaner.io.buffer.load.factor", _DOUBLE, "0.9", "The load factor of the buffer of Kafka's compaction."
    ),
    ConfigSpec(
        "log.cleaner.io.buffer.size", _INT, "524288", "Memory of Kafka's compaction for reading and writing.", low=0
    ),
    ConfigSpec(
        "log.cleaner.io.max.bytes.per.second",
        _DOUBLE,
        "1.7976931348623157E308",
        "Bytes per second that Kafka's compaction reads and writes.",
    ),
    ConfigSpec(
        "log.cleaner.max.compaction.lag.ms", _LONG, str(LONG_MAX), "The default of max.compaction.lag.ms.", low=1
    ),
    ConfigSpec(
        "log.cleaner.min.cleanable.ratio", _DOUBLE, "0.5", "The default of min.cleanable.dirty.ratio.", low=0, high=1
    ),
    ConfigSpec("log.cleaner.min.compaction.lag.ms", _LONG, "0", "The default of min.compaction.lag.ms.", low=0),
    ConfigSpec("log.cleaner.threads", _INT, "1", "Threads of Kafka's compaction.", low=0),
    ConfigSpec(
        "log.cleanup.policy",
        _LIST,
        "delete",
        "The default of cleanup.policy.",
        effect=_HONOURED,
        choices=("compact", "delete"),
    ),
    ConfigSpec("log.flush.interval.messages", _LONG, str(LONG_MAX), "The default of flush.messages.", low=1),
    ConfigSpec("log.flush.interval.ms", _LONG, None, "The default of flush.ms."),
    ConfigSpec(
        "log.flush.scheduler.interval.ms",
        _LONG,
        str(LONG_MAX),
        "The default of flush.ms if log.flush.interval.ms is not set.",
        is_read_only=True,
    ),
    ConfigSpec("log.index.interval.bytes", _INT, "4096", "The default of index.interval.bytes.", low=0),
    ConfigSpec("log.index.size.max.bytes", _INT, "10485760", "The default of segment.index.bytes.", low=4),
    ConfigSpec("log.local.retention.bytes", _LONG, "-2", "The default of local.retention.bytes.", low=-2),
    ConfigSpec("log.local.retention.ms", _LONG, "-2", "The default of local.retention.ms.", low=-2),
    ConfigSpec(
        "log.message.timestamp.after.max.ms",
        _LONG,
        "3600000",
        "The default of message.timestamp.after.max.ms.",
        effect=_HONOURED,
        low=0,
    ),
    ConfigSpec(
        "log.message.timestamp.before.max.ms",
        _LONG,
        str(LONG_MAX),
        "The default of message.timestamp.before.max.ms.",
        effect=_HONOURED,
        low=0,
    ),
    ConfigSpec(
        "log.message.timestamp.type",
        _STRING,
        "CreateTime",
        "The default of message.timestamp.type.",
        effect=_HONOURED,
        choices=("CreateTime", "LogAppendTime"),
    ),
    ConfigSpec("log.preallocate", _BOOLEAN, "false", "The default of preallocate."),
    ConfigSpec("log.retention.bytes", _LONG, "-1", "The default of retention.bytes.", effect=_HONOURED),
    ConfigSpec(
        "log.retention.check.interval.ms",
        _LONG,
        "300000",
        "The interval of the retention check.",
        effect=_HONOURED,
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        "log.retention.hours",
        _INT,
        "168",
        "The default of retention.ms, in hours, if no smaller unit is set.",
        effect=_HONOURED,
        is_read_only=True,
    ),
    ConfigSpec(
        "log.retention.minutes",
        _INT,
        None,
        "The default of retention.ms, in minutes, if log.retention.ms is not set.",
        effect=_HONOURED,
        is_read_only=True,
    ),
    ConfigSpec("log.retention.ms", _LONG, None, "The default of retention.ms.", effect=_HONOURED),
    ConfigSpec(
        "log.roll.hours",
        _INT,
        "168",
        "The default of segment.ms, in hours, if log.roll.ms is not set.",
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        "log.roll.jitter.hours",
        _INT,
        "0",
        "The default of segment.jitter.ms, in hours, if log.roll.jitter.ms is not set.",
        low=0,
        is_read_only=True,
    ),
    ConfigSpec("log.roll.jitter.ms", _LONG, None, "The default of segment.jitter.ms."),
    ConfigSpec("log.roll.ms", _LONG, None, "The default of segment.ms."),
    ConfigSpec("log.segment.bytes", _INT, "1073741824", "The default of segment.bytes.", low=1048576),
    ConfigSpec("log.segment.delete.delay.ms", _LONG, "60000", "The default of file.delete.delay.ms.", low=0),
    ConfigSpec(
        "max.connection.creation.rate",
        _INT,
        "2147483647",
        "Connections that an agent accepts in a second. Further ones are held and closed.",
        effect=_HONOURED,
        low=0,
    ),
    ConfigSpec(
        "max.connections",
        _INT,
        "2147483647",
        "The largest number of connections to an agent.",
        effect=_HONOURED,
        low=0,
    ),
    ConfigSpec(
        "max.connections.per.ip",
        _INT,
        "2147483647",
        "The largest number of connections from one address.",
        effect=_HONOURED,
        low=0,
    ),
    ConfigSpec(
        "max.connections.per.ip.overrides",
        _STRING,
        "",
        "The same for addresses of their own: ADDRESS:COUNT, separated by commas.",
        effect=_HONOURED,
    ),
    ConfigSpec(
        "max.incremental.fetch.session.cache.slots",
        _INT,
        "1000",
        "The largest number of fetch sessions of an agent (KIP-227).",
        low=0,
        is_read_only=True,
    ),
    ConfigSpec("message.max.bytes", _INT, "1048588", "The default of max.message.bytes.", effect=_HONOURED, low=0),
    ConfigSpec("min.insync.replicas", _INT, "1", "The default of the topic config of the same name.", low=1),
    ConfigSpec("num.io.threads", _INT, "8", "Threads that work on requests in Kafka.", low=1),
    ConfigSpec("num.network.threads", _INT, "3", "Threads that read and write sockets in Kafka.", low=1),
    ConfigSpec(
        "num.partitions",
        _INT,
        "1",
        "The default number of partitions of a topic.",
        effect=_HONOURED,
        low=1,
        is_read_only=True,
    ),
    ConfigSpec("num.recovery.threads.per.data.dir", _INT, "2", "Threads that recover Kafka's files at a start.", low=1),
    ConfigSpec("num.replica.fetchers", _INT, "1", "Threads that replicate in Kafka.", low=1),
    ConfigSpec(
        "offset.metadata.max.bytes",
        _INT,
        "4096",
        "The longest metadata of a committed offset.",
        effect=_HONOURED,
        is_read_only=True,
    ),
    ConfigSpec(
        "offsets.commit.timeout.ms",
        _INT,
        "5000",
        "How long an offset commit may take.",
        effect=_HONOURED,
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        "offsets.retention.check.interval.ms",
        _LONG,
        "600000",
        "The interval of the check for expired offsets.",
        effect=_HONOURED,
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        "offsets.retention.minutes",
        _INT,
        "10080",
        "How long the offsets of an empty group are kept.",
        effect=_HONOURED,
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        "offsets.topic.num.partitions", _INT, "50", "Partitions of Kafka's offsets topic.", low=1, is_read_only=True
    ),
    ConfigSpec(
        "offsets.topic.replication.factor",
        _SHORT,
        "3",
        "Replicas of Kafka's offsets topic.",
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        "offsets.topic.segment.bytes",
        _INT,
        "104857600",
        "Segment size of Kafka's offsets topic.",
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        QUOTA_SCOPE,
        _STRING,
        QUOTA_SCOPE_AGENT,
        "Whether quotas of bytes hold for each agent by itself, as in Kafka, or for the whole cluster.",
        effect=_HONOURED,
        choices=(QUOTA_SCOPE_AGENT, QUOTA_SCOPE_CLUSTER),
    ),
    ConfigSpec(
        RULES_HOLD,
        _LONG,
        NOT_HELD,
        "When the rules version was held at the one in force, in ms since 1970; -1 for no hold. --hold-rules sets it.",
        effect=_HONOURED,
        low=-1,
        high=RULES_HOLD_MS_MAX,
    ),
    ConfigSpec(
        "producer.id.expiration.ms",
        _INT,
        "86400000",
        "How long the state of an idle producer is kept.",
        effect=_HONOURED,
        low=1,
    ),
    ConfigSpec(
        "queued.max.requests", _INT, "500", "Requests that wait for a thread in Kafka.", low=1, is_read_only=True
    ),
    ConfigSpec(
        "quota.window.num",
        _INT,
        "11",
        "Windows of time in which quotas of bytes, requests and connections count.",
        effect=_HONOURED,
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        "quota.window.size.seconds",
        _INT,
        "1",
        "The length of such a window in seconds.",
        effect=_HONOURED,
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        _LONG,
        str(LONG_MAX),
        "Kafka's bytes per second while it moves replicas between directories.",
        low=0,
    ),
    ConfigSpec(
        "replica.lag.time.max.ms", _LONG, "30000", "When a replica counts as behind in Kafka.", is_read_only=True
    ),
    ConfigSpec("request.timeout.ms", _INT, "30000", "Time-out of requests between Kafka's brokers.", is_read_only=True),
    ConfigSpec(
        "sasl.kerberos.min.time.before.relogin", _LONG, "60000", "Kafka's pause between two log-ins by Kerberos."
    ),
    ConfigSpec(
        "socket.listen.backlog.size", _INT, "50", "Connections that may wait to be accepted.", low=1, is_read_only=True
    ),
    ConfigSpec(
        "socket.receive.buffer.bytes", _INT, "102400", "The kernel's receive buffer of a connection.", is_read_only=True
    ),
    ConfigSpec(
        "socket.request.max.bytes", _INT, "104857600", "The largest accepted request.", low=1, is_read_only=True
    ),
    ConfigSpec(
        "socket.send.buffer.bytes", _INT, "102400", "The kernel's send buffer of a connection.", is_read_only=True
    ),
    ConfigSpec(
        "telemetry.max.bytes",
        _INT,
        "1048576",
        "The largest telemetry report of a client.",
        effect=_HONOURED,
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        _INT,
        "10000",
        "The interval of the check for transactions beyond their time-outs.",
        effect=_HONOURED,
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        "transaction.max.timeout.ms",
        _INT,
        "900000",
        "The longest time-out of a transactional producer.",
        effect=_HONOURED,
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        "transaction.partition.verification.enable",
        _BOOLEAN,
        "true",
        "Whether Kafka asks the coordinator before a transactional write.",
    ),
    ConfigSpec(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _INT,
        "3600000",
        "The interval of the check for unused transactional ids.",
        effect=_HONOURED,
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        "transaction.state.log.min.isr",
        _INT,
        "2",
        "Replicas per write of Kafka's transactions topic.",
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        "transaction.state.log.num.partitions",
        _INT,
        "50",
        "Partitions of Kafka's transactions topic.",
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        "transaction.state.log.replication.factor",
        _SHORT,
        "3",
        "Replicas of Kafka's transactions topic.",
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        "transaction.two.phase.commit.enable",
        _BOOLEAN,
        "false",
        "Whether another system may decide transactions (KIP-939). Penstock does not support it.",
        choices=("false",),
        is_read_only=True,
    ),
    ConfigSpec(
        "transactional.id.expiration.ms",
        _INT,
        "604800000",
        "How long an unused transactional id is kept.",
        effect=_HONOURED,
        low=1,
        is_read_only=True,
    ),
    ConfigSpec(
        "unclean.leader.election.enable", _BOOLEAN, "false", "The default of the topic config of the same name."
    ),
    *group_broker_specs(),
    *SECURITY_CONFIGS.values(),
)

CLUSTER_WIDE: Final = frozenset(
    {
        "log.cleanup.policy",
        "log.message.timestamp.type",
        "log.retention.bytes",
        "log.retention.ms",
        "producer.id.expiration.ms",
        RULES_HOLD,
    }
)
"""Configs of work that one agent does for all, or that is part of apply: altered for every broker, or for none."""


def broker_value(broker_configs: Mapping[str, str], name: str) -> str:
    """The value of a broker config that has a default, as text: what was set, else Kafka's default."""
    value = broker_configs[name] if name in broker_configs else BROKER_CONFIGS[name].default
    assert value is not None, f"{name} has no default"
    return value
