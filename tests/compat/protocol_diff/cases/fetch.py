"""Fetch with its sessions and limits, and ListOffsets."""

import uuid

from tests.compat.protocol_diff.cases.pieces import (
    ABSENT,
    NOBODY,
    end,
    fetch,
    offsets,
    produce,
    records,
    topic,
    transaction,
    wait_state,
)
from tests.compat.protocol_diff.steps import Cases, Step, T, V

CASES = Cases()

# Fetch

for v in range(4, 19):
    CASES.add(f"fetch.v{v}", topic(), produce(records(2), quiet=True), fetch(0, v))
CASES.add("fetch.unknown-topic", fetch(0, 12, topic=ABSENT))
CASES.add("fetch.unknown-topic-id", fetch(0, 13, topic_id=NOBODY))
CASES.add("fetch.zero-topic-id", fetch(0, 13, topic_id=uuid.UUID(int=0)))
CASES.add("fetch.unknown-partition", topic(), fetch(0, partition=9))
CASES.add("fetch.beyond-end", topic(), produce(records(2), quiet=True), fetch(3))
CASES.add("fetch.at-end", topic(), produce(records(2), quiet=True), fetch(2))
CASES.add("fetch.negative-offset", topic(), fetch(-5))
CASES.add("fetch.middle-of-batch", topic(), produce(records(5), quiet=True), fetch(3))
CASES.add(
    "fetch.two-batches", topic(), produce(records(2), quiet=True), produce(records(3), quiet=True), fetch(0), fetch(2)
)
CASES.add(
    "fetch.one-byte-partition",
    topic(),
    produce(records(2), quiet=True),
    produce(records(3), quiet=True),
    fetch(0, most=1),
)
CASES.add(
    "fetch.one-byte-whole", topic(), produce(records(2), quiet=True), produce(records(3), quiet=True), fetch(0, whole=1)
)
CASES.add("fetch.zero-bytes", topic(), produce(records(2), quiet=True), fetch(0, most=0))
CASES.add(
    "fetch.second-partition-starved",
    topic(partitions=2),
    produce(records(2), quiet=True),
    produce(records(2), partition=1, quiet=True),
    Step(
        "Fetch",
        12,
        {
            "ReplicaId": -1,
            "MaxWaitMs": 50,
            "MinBytes": 1,
            "MaxBytes": 1,
            "SessionEpoch": -1,
            "Topics": [
                {
                    "Topic": T(),
                    "Partitions": [{"Partition": p, "FetchOffset": 0, "PartitionMaxBytes": 1000} for p in (0, 1)],
                }
            ],
        },
        records=True,
    ),
)
CASES.add("fetch.future-leader-epoch", topic(), fetch(0, leader_epoch=99))
CASES.add("fetch.current-leader-epoch", topic(), produce(records(1), quiet=True), fetch(0, leader_epoch=0))
CASES.add(
    "fetch.diverging-epoch",
    topic(),
    produce(records(1), quiet=True),
    fetch(1, leader_epoch=0, last_epoch=0),
    fetch(9, leader_epoch=0, last_epoch=0),
)
CASES.add("fetch.min-bytes-unmet", topic(), produce(records(1), quiet=True), fetch(0, least=1 << 20, wait=200))
CASES.add(
    "fetch.session",
    topic(partitions=2),
    produce(records(1), quiet=True),
    fetch(0, epoch=0, save={"session": "SessionId"}),
    fetch(none=True, session=V("session"), epoch=1),
    produce(records(1), quiet=True),
    fetch(none=True, session=V("session"), epoch=2),
    fetch(1, session=V("session"), epoch=3),
    fetch(0, partition=1, session=V("session"), epoch=4),
    fetch(none=True, session=V("session"), epoch=5, forget=[{"Topic": T(), "Partitions": [0]}]),
)
CASES.add("fetch.session-unknown", topic(), fetch(0, session=123456, epoch=1))
CASES.add(
    "fetch.session-bad-epoch",
    topic(),
    fetch(0, epoch=0, save={"session": "SessionId"}),
    fetch(none=True, session=V("session"), epoch=7),
)
CASES.add(
    "fetch.session-close",
    topic(),
    fetch(0, epoch=0, save={"session": "SessionId"}),
    fetch(0, session=V("session"), epoch=-1),
    fetch(none=True, session=V("session"), epoch=1),
)
CASES.add("fetch.session-zero-epoch-5", topic(), fetch(0, session=0, epoch=5))
CASES.add(
    "fetch.compressed-by-topic", topic(configs={"compression.type": "zstd"}), produce(records(2), quiet=True), fetch(0)
)
CASES.add(
    "fetch.after-delete-records",
    topic(),
    produce(records(5), quiet=True),
    Step(
        "DeleteRecords",
        2,
        {"Topics": [{"Name": T(), "Partitions": [{"PartitionIndex": 0, "Offset": 3}]}], "TimeoutMs": 5000},
        quiet=True,
    ),
    fetch(1),
    fetch(3),
    offsets(-2),
)

# ListOffsets

for v in range(1, 12):
    CASES.add(f"offsets.v{v}", topic(), produce(records(3), quiet=True), offsets(-1, v), offsets(-2, v))
TEN = 1_700_000_000_000
CASES.add(
    "offsets.timestamps",
    topic(),
    produce(records(3), quiet=True),
    produce(records(3, timestamp=TEN + 1000), quiet=True),
    *[offsets(t) for t in (0, TEN - 1, TEN, TEN + 1, TEN + 2, TEN + 3, TEN + 1000, TEN + 1002, TEN + 1003)],
)
CASES.add(
    "offsets.timestamps-unordered",
    topic(),
    produce(records(1, timestamp=TEN + 500), quiet=True),
    produce(records(1), quiet=True),
    *[offsets(t) for t in (TEN, TEN + 1, TEN + 500, TEN + 501)],
)
CASES.add(
    "offsets.max-timestamp",
    topic(),
    offsets(-3),
    produce(records(2, timestamp=TEN + 500), quiet=True),
    produce(records(1), quiet=True),
    offsets(-3),
)
CASES.add("offsets.max-timestamp-v6", topic(), offsets(-3, 6))
CASES.add("offsets.earliest-local", topic(), produce(records(2), quiet=True), offsets(-4, 8), offsets(-4, 7))
CASES.add("offsets.latest-tiered", topic(), produce(records(2), quiet=True), offsets(-5, 9), offsets(-5, 8))
CASES.add("offsets.earliest-pending-upload", topic(), produce(records(2), quiet=True), offsets(-6, 11), offsets(-6, 10))
CASES.add("offsets.negative-timestamp", topic(), produce(records(2), quiet=True), offsets(-9))
CASES.add("offsets.unknown-topic", offsets(-1, topic=ABSENT))
CASES.add("offsets.unknown-partition", topic(), offsets(-1, partition=9))
CASES.add("offsets.future-leader-epoch", topic(), offsets(-1, epoch=99))
CASES.add(
    "offsets.same-partition-twice",
    topic(),
    Step(
        "ListOffsets",
        7,
        {
            "ReplicaId": -1,
            "Topics": [
                {
                    "Name": T(),
                    "Partitions": [{"PartitionIndex": 0, "Timestamp": -1}, {"PartitionIndex": 0, "Timestamp": -2}],
                }
            ],
        },
    ),
)
CASES.add("offsets.empty-partition", topic(), offsets(-1), offsets(-2), offsets(-3), offsets(5))
CASES.add(
    "offsets.read-committed",
    transaction(),
    offsets(-1, isolation=0),
    offsets(-1, isolation=1),
    offsets(-3, isolation=1),
    offsets(TEN, isolation=1),
    end(True),
    wait_state("CompleteCommit"),
    offsets(-1, isolation=1, until=("Topics.0.Partitions.0.Offset", 3)),
)
