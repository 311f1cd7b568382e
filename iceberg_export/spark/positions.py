"""Where a stream stands: the JSON that Spark keeps in its checkpoint.

    {"@": {"cluster": "...", "incarnation": 1, "ids": {"orders": "<32 hexadecimal digits>"}}, "orders": {"0": 12}}

The offsets are the next ones to read, as in the Kafka source's; `@`, which is no topic's name, tells which log they
count: after a recovery of the cluster, or of a topic that was created anew, the same offset is another record. The end
of a query's first batch also has `from`, where that began: Spark asks for it again if the batch has to be repeated.

Rule: pure. Equal positions give equal text, since Spark takes another text for news.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from iceberg_export.spark.options import TopicPartition

LOG: Final = "@"
NextOffsets = Mapping[TopicPartition, int]


class PositionUnreadable(ValueError):
    """The checkpoint is not one of this source: begin with another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPosition:
    cluster_id: str
    incarnation: int
    topic_ids: Mapping[str, str]
    """Topics' ids in hexadecimal digits, by name."""
    offsets: NextOffsets
    begun: NextOffsets | None = field(default=None, compare=False)
    """Of the end of the first batch: where that began."""

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads; topics and partitions in order."""
        log: dict[str, Any] = {
            "cluster": self.cluster_id,
            "incarnation": self.incarnation,
            "ids": {name: self.topic_ids[name] for name in sorted(self.topic_ids)},
        }
        if self.begun is not None:
            log["from"] = _nested(self.begun)
        return {LOG: log, **_nested(self.offsets)}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "StreamPosition":
        """Raises `PositionUnreadable`."""
        try:
            log = found[LOG]
            return cls(
                cluster_id=str(log["cluster"]),
                incarnation=int(log["incarnation"]),
                topic_ids={str(name): str(topic_id) for name, topic_id in log["ids"].items()},
                offsets=_flat({name: offsets for name, offsets in found.items() if name != LOG}),
                begun=_flat(log["from"]) if "from" in log else None,
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise PositionUnreadable(
                f"the checkpoint holds an offset that is not of the source penstock: {found}; a stream that was begun "
                "with another source needs a new checkpoint, and its offsets as startingOffsets"
            ) from error

    def beginning(self) -> "StreamPosition":
        """Where the batch began that ended here, if it was the first."""
        assert self.begun is not None
        return StreamPosition(
            cluster_id=self.cluster_id, incarnation=self.incarnation, topic_ids=self.topic_ids, offsets=self.begun
        )


def share_out(begins: NextOffsets, ends: NextOffsets, offsets_max: int | None) -> dict[TopicPartition, int]:
    """The ends of a batch of about `offsets_max` offsets, of which every partition has its share by what waits there.

    No end is below its beginning. Source: KafkaMicroBatchStream.rateLimit (Spark 4.1).
    """
    waiting = {key: max(0, end - begins[key]) for key, end in ends.items()}
    total = sum(waiting.values())
    if offsets_max is None or total <= offsets_max:
        return {key: begins[key] + count for key, count in waiting.items()}
    shares: dict[TopicPartition, int] = {}
    for key, count in waiting.items():
        share = offsets_max * count // total
        # A share below one is one: a partition in which little waits beside much elsewhere goes on, too.
        shares[key] = begins[key] + min(count, max(1, share))
    return shares


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
