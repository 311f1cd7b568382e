"""Kafka's configs of groups: names, types, defaults, limits, and which of them do something here.

Names and limits are those of Kafka 4.3.1 (org.apache.kafka.coordinator.group.GroupConfig); sentences are our own. A
group that says nothing has what the broker config of the same name behind `group.` says, where there is one.
"""

from collections.abc import Mapping
from typing import Final

from coordinator.configs.broker_configs import BROKER_CONFIGS, broker_value
from coordinator.configs.config_types import ConfigSpec, ConfigType, Effect, InvalidConfig, shorten, table

BROKER_PREFIX: Final = "group."
_BOOLEAN, _STRING, _INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_HONOURED = Effect.HONOURED
_OFFSET_RESET = (
    r"latest|earliest|by_duration:P(?=[0-9T])([0-9]+D)?(T(?=[0-9])([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]+)?S)?)?"
)


GROUP_CONFIGS: Final[Mapping[str, ConfigSpec]] = table(
    ConfigSpec(
        "consumer.assignment.interval.ms",
        _INT,
        "1000",
        "The pause between two assignments of a large group (KIP-1263).",
        effect=_HONOURED,
        low=0,
    ),
    ConfigSpec(
        "consumer.heartbeat.interval.ms",
        _INT,
        "5000",
        "The heartbeat interval of members (KIP-848).",
        effect=_HONOURED,
        low=1,
    ),
    ConfigSpec(
        "consumer.session.timeout.ms",
        _INT,
        "45000",
        "The session time-out of members (KIP-848).",
        effect=_HONOURED,
        low=1,
    ),
    ConfigSpec(
        "share.assignment.interval.ms", _INT, "1000", "The pause between two assignments of a share group.", low=0
    ),
    ConfigSpec(
        "share.auto.offset.reset",
        _STRING,
        "latest",
        "The start of a share group: latest, earliest, or by_duration:DURATION.",
        pattern=_OFFSET_RESET,
    ),
    ConfigSpec(
        "share.delivery.count.limit", _INT, "5", "The largest number of deliveries of a record to a share group.", low=2
    ),
    ConfigSpec(
        "share.heartbeat.interval.ms", _INT, "5000", "The heartbeat interval of a share group's members.", low=1
    ),
    ConfigSpec(
        "share.isolation.level",
        _STRING,
        "read_uncommitted",
        "Whether a share group reads records of open and aborted transactions.",
        choices=("read_committed", "read_uncommitted"),
    ),
    ConfigSpec(
        "share.partition.max.record.locks",
        _INT,
        "2000",
        "The largest number of locked records of a partition.",
        low=100,
    ),
    ConfigSpec("share.record.lock.duration.ms", _INT, "30000", "How long a member may lock a record.", low=1000),
    ConfigSpec("share.renew.acknowledge.enable", _BOOLEAN, "true", "Whether a member may extend the lock of a record."),
    ConfigSpec("share.session.timeout.ms", _INT, "45000", "The session time-out of a share group's members.", low=1),
    ConfigSpec(
        "streams.assignment.interval.ms", _INT, "1000", "The pause between two assignments of a streams group.", low=0
    ),
    ConfigSpec(
        "streams.heartbeat.interval.ms", _INT, "5000", "The heartbeat interval of a streams group's members.", low=1
    ),
    ConfigSpec(
        "streams.initial.rebalance.delay.ms",
        _INT,
        "3000",
        "How long an empty streams group waits for more members.",
        low=0,
    ),
    ConfigSpec("streams.num.standby.replicas", _INT, "0", "Standby replicas of a streams group's state.", low=0),
    ConfigSpec(
        "streams.session.timeout.ms", _INT, "45000", "The session time-out of a streams group's members.", low=1
    ),
)


def broker_name_of(name: str) -> str | None:
    """The broker config that gives a group's config its default; None where no such is known."""
    broker_name = BROKER_PREFIX + name
    return broker_name if broker_name in BROKER_CONFIGS else None


def group_value(configs: Mapping[str, str], broker_configs: Mapping[str, str], name: str) -> str:
    """The value that holds for a group: its own, else the broker's, else Kafka's default."""
    value = configs.get(name)
    if value is not None:
        return value
    broker_name = broker_name_of(name)
    if broker_name is not None:
        return broker_value(broker_configs, broker_name)
    default = GROUP_CONFIGS[name].default
    assert default is not None, f"{name} has no default"
    return default


def validate_group(configs: Mapping[str, str], broker_configs: Mapping[str, str]) -> None:
    """Raise `InvalidConfig` for any of a group's configs, where a broker's bound forbids it, or two contradict."""
    for name, value in configs.items():
        spec = GROUP_CONFIGS.get(name)
        if spec is None:
            raise InvalidConfig(f"Unknown group config name: {shorten(name)}")
        spec.validate(value)
        _check_bounds(name, value, broker_configs)
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if {session, heartbeat} & configs.keys():
            session_ms, heartbeat_ms = (
                int(group_value(configs, broker_configs, name)) for name in (session, heartbeat)
            )
            if session_ms <= heartbeat_ms:
                raise InvalidConfig(f"{session} must be greater than {heartbeat}")


def _check_bounds(name: str, value: str, broker_configs: Mapping[str, str]) -> None:
    kind, _, rest = name.partition(".")
    for bound, is_beyond, words in (("min", int.__lt__, "greater"), ("max", int.__gt__, "less")):
        broker_name = f"{BROKER_PREFIX}{kind}.{bound}.{rest}"
        if broker_name in BROKER_CONFIGS and is_beyond(int(value), int(broker_value(broker_configs, broker_name))):
            raise InvalidConfig(f"{name} must be {words} than or equal to {broker_name}")
