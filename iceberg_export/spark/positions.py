"""The position of a streaming query: the JSON that Spark stores in its checkpoint. Pure.

    {"@": {"cluster": "...", "incarnation": 1, "ids": {"orders": "<32 hexadecimal digits>"}}, "orders": {"0": 12}}

The offsets are the next ones to read, as in the Kafka source's. `@`, which is not a valid topic name, identifies the
log: after a recovery of the cluster, or where a topic was deleted and created again, the same offset is another record.
The end of a query's first batch also has `from`, the batch's begin: Spark asks for it again to repeat the batch.

Equal positions give equal text, because Spark takes another text for new records.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from iceberg_export.spark.options import TopicPartition

LOG: Final = "@"
NextOffsets = Mapping[TopicPartition, int]


class PositionUnreadable(ValueError):
    """The checkpoint is not that of this source: begin with a new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPosition:
    """The next offsets of a streaming query, and the log that they are of."""

    cluster_id: str
    incarnation: int
    topic_ids: Mapping[str, str]
    """The topics' ids as hexadecimal digits, by name."""
    offsets: NextOffsets
    first_batch_begin: NextOffsets | None = field(default=None, compare=False)
    """The begin of the query's first batch, in the position at which that batch ends; else None."""

    def to_json(self) -> dict[str, Any]:
        """The position as JSON, with topics and partitions in order."""
        log: dict[str, Any] = {
            "cluster": self.cluster_id,
            "incarnation": self.incarnation,
            "ids": {name: self.topic_ids[name] for name in sorted(self.topic_ids)},
        }
        if self.first_batch_begin is not None:
            log["from"] = _nested(self.first_batch_begin)
        return {LOG: log, **_nested(self.offsets)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "StreamPosition":
        """The position of its JSON. Raises `PositionUnreadable`."""
        try:
            log = content[LOG]
            return cls(
                cluster_id=str(log["cluster"]),
                incarnation=int(log["incarnation"]),
                topic_ids={str(name): str(topic_id) for name, topic_id in log["ids"].items()},
                offsets=_flat({name: offsets for name, offsets in content.items() if name != LOG}),
                first_batch_begin=_flat(log["from"]) if "from" in log else None,
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise PositionUnreadable(
                f"the checkpoint has an offset that is not of the source penstock: {content}; a query that began "
                "with another source needs a new checkpoint, and its offsets as startingOffsets"
            ) from error

    def beginning(self) -> "StreamPosition":
        """The begin of the first batch, which ends at this position."""
        assert self.first_batch_begin is not None
        return StreamPosition(
            cluster_id=self.cluster_id,
            incarnation=self.incarnation,
            topic_ids=self.topic_ids,
            offsets=self.first_batch_begin,
        )


def share_out(begins: NextOffsets, ends: NextOffsets, offsets_max: int | None) -> dict[TopicPartition, int]:
    """The ends of a batch of about `offsets_max` offsets, divided among partitions in proportion to unread offsets.

    `offsets_max`: None for no limit. No end is below its begin. Source: KafkaMicroBatchStream.rateLimit (Spark 4.1).
    """
    unread = {key: max(0, end - begins[key]) for key, end in ends.items()}
    total = sum(unread.values())
    if offsets_max is None or total <= offsets_max:
        return {key: begins[key] + count for key, count in unread.items()}
    batch_ends: dict[TopicPartition, int] = {}
    for key, count in unread.items():
        # One offset at least: a partition with few unread offsets must not starve beside one with very many.
        batch_ends[key] = begins[key] + min(count, max(1, offsets_max * count // total))
    return batch_ends


def _nested(offsets: NextOffsets) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(partition)] = offset
    return nested


def _flat(nested: Mapping[str, Any]) -> dict[TopicPartition, int]:
    return {
        (topic, int(partition)): int(offset)
        for topic, offsets in nested.items()
        for partition, offset in offsets.items()
    }
