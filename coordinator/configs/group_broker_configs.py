"""Kafka's broker configs of assignment intervals, and of share and streams groups, which do nothing here yet.

They give the configs of groups (`coordinator.configs.group_configs`) their defaults and bounds. Part of
`coordinator.configs.broker_configs`; names, types and defaults are those of Kafka 4.3.1
(org.apache.kafka.coordinator.group.GroupCoordinatorConfig, org.apache.kafka.coordinator.group.modern.share.
ShareGroupConfig), sentences are our own.
"""

from collections.abc import Iterator
from typing import Final

from coordinator.configs.config_types import ConfigSpec, ConfigType, Effect

_KINDS: Final = ("consumer", "share", "streams")
_INTERVAL: Final = "assignment.interval.ms"
_LIMITS: Final = (
    ("share.delivery.count.limit", 5, 2, 10, "The largest number of deliveries of a record to a share group."),
    ("share.heartbeat.interval.ms", 5_000, 5_000, 15_000, "The heartbeat interval of a share group's members."),
    ("share.partition.max.record.locks", 2_000, 100, 4_000, "The largest number of locked records of a partition."),
    ("share.record.lock.duration.ms", 30_000, 15_000, 60_000, "How long a member may lock a record."),
    ("share.session.timeout.ms", 45_000, 45_000, 60_000, "The session time-out of a share group's members."),
    ("streams.heartbeat.interval.ms", 5_000, 5_000, 15_000, "The heartbeat interval of a streams group's members."),
    ("streams.session.timeout.ms", 45_000, 45_000, 60_000, "The session time-out of a streams group's members."),
)
"""Name behind `group.`, default, and the least and the most that a group may have."""
_PLAIN: Final = (
    ("group.share.max.size", 200, "Members of a share group."),
    ("group.streams.initial.rebalance.delay.ms", 3_000, "How long an empty streams group waits for more members."),
    ("group.streams.max.size", (1 << 31) - 1, "Members of a streams group."),
    ("group.streams.max.standby.replicas", 2, "The largest streams.num.standby.replicas of a group."),
    ("group.streams.num.standby.replicas", 0, "Standby replicas of a streams group's state."),
)


def group_broker_specs() -> Iterator[ConfigSpec]:
    """All of them; the assignment intervals alone can be altered while brokers run, as in Kafka."""
    for kind in _KINDS:
        sentence = f"The pause between two assignments of a large {kind} group (KIP-1263)."
        effect = Effect.HONOURED if kind == "consumer" else Effect.NONE
        yield _spec(f"group.{kind}.{_INTERVAL}", 1_000, sentence, is_read_only=False, effect=effect)
        yield from _bounds(f"{kind}.{_INTERVAL}", 0, 15_000)
    for name, default, least, most, sentence in _LIMITS:
        yield _spec(f"group.{name}", default, sentence)
        yield from _bounds(name, least, most)
    for name, default, sentence in _PLAIN:
        yield _spec(name, default, sentence)


def _bounds(name: str, least: int, most: int) -> Iterator[ConfigSpec]:
    kind, _, rest = name.partition(".")
    yield _spec(f"group.{kind}.min.{rest}", least, f"The smallest {name} of a group.")
    yield _spec(f"group.{kind}.max.{rest}", most, f"The largest {name} of a group.")


def _spec(
    name: str, default: int, documentation: str, *, is_read_only: bool = True, effect: Effect = Effect.NONE
) -> ConfigSpec:
    return ConfigSpec(
        name=name,
        type=ConfigType.INT,
        default=str(default),
        documentation=documentation,
        effect=effect,
        low=0,
        is_read_only=is_read_only,
    )
