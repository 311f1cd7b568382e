"""OffsetForLeaderEpoch."""

from typing import Any

from tests.compat.protocol_diff.cases.pieces import ABSENT, produce, records, topic
from tests.compat.protocol_diff.steps import Cases, Step, T

CASES = Cases()

# OffsetForLeaderEpoch


def epoch_end(epoch: int, *, name: Any = T(), partition: int = 0, current: int = -1, version: int = 4) -> Step:
    return Step(
        "OffsetForLeaderEpoch",
        version,
        {
            **({"ReplicaId": -1} if version >= 3 else {}),
            "Topics": [
                {
                    "Topic": name,
                    "Partitions": [{"Partition": partition, "CurrentLeaderEpoch": current, "LeaderEpoch": epoch}],
                }
            ],
        },
    )


for v in range(2, 5):
    CASES.add(f"epoch-end.v{v}", topic(), produce(records(3), quiet=True), epoch_end(0, version=v))
CASES.add(
    "epoch-end.unknown-epoch", topic(), produce(records(3), quiet=True), epoch_end(7), epoch_end(-1), epoch_end(-5)
)
CASES.add("epoch-end.empty-log", topic(), epoch_end(0))
CASES.add("epoch-end.future-current", topic(), epoch_end(0, current=9))
CASES.add("epoch-end.unknown-topic", epoch_end(0, name=ABSENT))
CASES.add("epoch-end.unknown-partition", topic(), epoch_end(0, partition=9))
