"""What ApiVersions and broken frames are answered, Produce with every kind of wrong batch, and idempotent producers."""

from typing import Any

from tests.compat.protocol_diff.cases.pieces import (
    ABSENT,
    NOBODY,
    committed,
    fetch,
    init,
    joined,
    offsets,
    produce,
    producers,
    records,
    topic,
)
from tests.compat.protocol_diff.steps import Cases, G, Mode, Step, T, V

CASES = Cases()

# ApiVersions and framing

VERSION_BODY = {"ClientSoftwareName": "probe", "ClientSoftwareVersion": "1.0"}
ONLY_ERROR = ("ApiKeys", "SupportedFeatures", "FinalizedFeatures")
CASES.add("versions.v0", Step("ApiVersions", 0, {}, mask=ONLY_ERROR))
CASES.add("versions.v3", Step("ApiVersions", 3, VERSION_BODY, mask=ONLY_ERROR))
CASES.add("versions.v4", Step("ApiVersions", 4, VERSION_BODY, mask=ONLY_ERROR))
CASES.add("versions.apis", Step("ApiVersions", 3, VERSION_BODY, mask=("SupportedFeatures", "FinalizedFeatures")))
CASES.add("versions.features", Step("ApiVersions", 3, VERSION_BODY, mask=("ApiKeys",)))
CASES.add("versions.too-new", Step("ApiVersions", 99, b"\x00\x02a\x02b\x00", mask=("ApiKeys",)))
CASES.add(
    "versions.bad-name",
    Step("ApiVersions", 3, {"ClientSoftwareName": "-", "ClientSoftwareVersion": "1"}, mask=ONLY_ERROR),
)
CASES.add(
    "versions.empty-name",
    Step("ApiVersions", 3, {"ClientSoftwareName": "", "ClientSoftwareVersion": ""}, mask=ONLY_ERROR),
)
CASES.add("frame.unknown-api", Step("ApiVersions", 0, b"", key=999))
CASES.add("frame.unknown-version", Step("Metadata", 99, b"\x00"))
CASES.add("frame.cut-body", Step("Metadata", 9, b"\x05"))
CASES.add("frame.extra-bytes", Step("Metadata", 1, b"\x00\x00\x00\x00" + b"tail"))
CASES.add("frame.length-lie", Step("Metadata", 1, b"\x7f\xff\xff\xff"))
CASES.add(
    "frame.unknown-tag", Step("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": [G()], "_tags": {77: b"abc"}})
)
CASES.add("frame.sasl-unwanted", Step("SaslHandshake", 1, {"Mechanism": "PLAIN"}))

# Produce

for v in range(14):
    CASES.add(f"produce.v{v}", topic(), produce(records(3), v, mask=("RecordErrors",) if v >= 8 else ()))
CASES.add("produce.unknown-topic", produce(records(), topic=ABSENT))
CASES.add(
    "produce.unknown-topic-id",
    topic(),
    Step(
        "Produce",
        13,
        {
            "Acks": -1,
            "TimeoutMs": 5000,
            "TopicData": [{"TopicId": NOBODY, "PartitionData": [{"Index": 0, "Records": records()}]}],
        },
    ),
)
CASES.add("produce.unknown-partition", topic(), produce(records(), partition=9))
CASES.add("produce.negative-partition", topic(), produce(records(), partition=-1))
CASES.add("produce.acks-2", topic(), produce(records(), acks=2))
CASES.add(
    "produce.acks-0",
    topic(),
    produce(records(), acks=0, mode=Mode.MUTE),
    offsets(-1, until=("Topics.0.Partitions.0.Offset", 1)),
    fetch(0),
)
CASES.add("produce.acks-1", topic(), produce(records(2), acks=1), produce(records(1), acks=1))
CASES.add("produce.bad-crc", topic(), produce(records(2, bad_crc=True)), offsets(-1))
CASES.add("produce.cut-batch", topic(), produce(records(2, cut=4)), offsets(-1))
CASES.add("produce.magic-1", topic(), produce(records(2, magic=1)), offsets(-1))
CASES.add("produce.magic-3", topic(), produce(records(2, magic=3)), offsets(-1))
CASES.add("produce.no-records", topic(), produce(None), offsets(-1))
CASES.add("produce.empty-records", topic(), produce(b""), offsets(-1))
CASES.add("produce.no-record-in-batch", topic(), produce(records([])), offsets(-1))
CASES.add("produce.count-too-high", topic(), produce(records(2, count=3, last_delta=2)), offsets(-1))
CASES.add("produce.count-differs", topic(), produce(records(2, count=3)), offsets(-1))
CASES.add("produce.last-delta-differs", topic(), produce(records(2, last_delta=5)), offsets(-1))
CASES.add("produce.base-offset-set", topic(), produce(records(2, base_offset=700)), fetch(0))
CASES.add("produce.control-batch", topic(), produce(records(1, control=True)), offsets(-1))
CASES.add("produce.two-batches", topic(), produce(joined(records(2), records(3))), offsets(-1), fetch(0))
CASES.add("produce.gzip", topic(), produce(records(3, compression=1)), fetch(0))
CASES.add("produce.compression-5", topic(), produce(records(3, compression=5)), offsets(-1))
CASES.add("produce.bad-gzip", topic(), produce(records(3, compression=2)), offsets(-1))
CASES.add(
    "produce.too-large",
    topic(configs={"max.message.bytes": "200"}),
    produce(records([b"x" * 400])),
    produce(records([b"y"])),
)
CASES.add("produce.compacted-no-key", topic(configs={"cleanup.policy": "compact"}), produce(records(2)), offsets(-1))
CASES.add(
    "produce.compacted-some-keys",
    topic(configs={"cleanup.policy": "compact"}),
    produce(records([b"a", b"b", b"c"], keys=[b"k", None, b"k"])),
    offsets(-1),
)
CASES.add(
    "produce.compacted-tombstone",
    topic(configs={"cleanup.policy": "compact"}),
    produce(records([b"a", None], keys=[b"k", b"k"])),
    fetch(0),
)
CASES.add(
    "produce.future-timestamp",
    topic(configs={"message.timestamp.after.max.ms": "1000"}),
    produce(records(2, timestamp=4_000_000_000_000)),
)
CASES.add(
    "produce.old-timestamp",
    topic(configs={"message.timestamp.before.max.ms": "1000"}),
    produce(records(2, timestamp=1_000_000)),
)
CASES.add("produce.no-timestamp", topic(), produce(records(1, timestamp=-1)), fetch(0))
CASES.add(
    "produce.log-append-time", topic(configs={"message.timestamp.type": "LogAppendTime"}), produce(records(2)), fetch(0)
)
CASES.add(
    "produce.codec-conversion",
    topic(configs={"compression.type": "gzip"}),
    produce(records(3)),
    fetch(0, mask=("crc_ok",)),
)
CASES.add(
    "produce.same-partition-twice",
    topic(),
    Step(
        "Produce",
        9,
        {
            "Acks": -1,
            "TimeoutMs": 5000,
            "TopicData": [
                {
                    "Name": T(),
                    "PartitionData": [{"Index": 0, "Records": records(1)}, {"Index": 0, "Records": records(2)}],
                }
            ],
        },
    ),
    offsets(-1),
)
CASES.add(
    "produce.some-partitions-bad",
    topic(partitions=2),
    Step(
        "Produce",
        9,
        {
            "Acks": -1,
            "TimeoutMs": 5000,
            "TopicData": [
                {
                    "Name": T(),
                    "PartitionData": [
                        {"Index": 0, "Records": records(1)},
                        {"Index": 7, "Records": records(2)},
                        {"Index": 1, "Records": records(1, bad_crc=True)},
                    ],
                },
                {"Name": ABSENT, "PartitionData": [{"Index": 0, "Records": records(1)}]},
            ],
        },
    ),
)
CASES.add("produce.to-offsets-topic", committed(), produce(records(1), topic="__consumer_offsets"))

# Idempotent produce


def idem(n: int, seq: int, epoch: Any = 0, **how: Any) -> Step:
    return produce(records(n, pid=V("pid"), epoch=epoch, seq=seq, **how))


CASES.add("idempotent.in-order", topic(), init(), idem(2, 0), idem(3, 2), idem(1, 5), producers(mask=("ProducerId",)))
CASES.add("idempotent.duplicate", topic(), init(), idem(2, 0), idem(3, 2), idem(3, 2), idem(2, 0), offsets(-1))
CASES.add(
    "idempotent.duplicate-beyond-window",
    topic(),
    init(),
    *[idem(1, n) for n in range(7)],
    idem(1, 2),
    idem(1, 1),
    idem(1, 0),
    offsets(-1),
)
CASES.add("idempotent.gap", topic(), init(), idem(2, 0), idem(1, 5), offsets(-1))
CASES.add("idempotent.first-not-zero", topic(), init(), idem(1, 5), offsets(-1))
CASES.add("idempotent.overlap", topic(), init(), idem(3, 0), idem(3, 1), offsets(-1))
CASES.add("idempotent.subset-duplicate", topic(), init(), idem(4, 0), idem(2, 0), offsets(-1))
CASES.add("idempotent.old-epoch", topic(), init(), idem(1, 0, 3), idem(1, 1, 2), offsets(-1))
CASES.add("idempotent.new-epoch-from-zero", topic(), init(), idem(2, 0), idem(1, 0, 1), idem(1, 1, 1), offsets(-1))
CASES.add("idempotent.new-epoch-not-zero", topic(), init(), idem(2, 0), idem(1, 2, 1), offsets(-1))
CASES.add("idempotent.pid-no-epoch", topic(), init(), produce(records(1, pid=V("pid"), epoch=-1, seq=0)), offsets(-1))
CASES.add(
    "idempotent.pid-no-sequence", topic(), init(), produce(records(1, pid=V("pid"), epoch=0, seq=-1)), offsets(-1)
)
CASES.add("idempotent.wrap", topic(), init(), idem(2, 2147483646), idem(2, 0), idem(2, 0), offsets(-1))
CASES.add("idempotent.wrap-inside", topic(), init(), idem(4, 2147483646), idem(1, 2), offsets(-1))
CASES.add(
    "idempotent.two-batches",
    topic(),
    init(),
    produce(joined(records(1, pid=V("pid"), epoch=0, seq=0), records(1, pid=V("pid"), epoch=0, seq=1))),
    offsets(-1),
)
CASES.add("idempotent.acks-1", topic(), init(), produce(records(1, pid=V("pid"), epoch=0, seq=0), acks=1), offsets(-1))
