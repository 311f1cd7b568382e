"""Producer ids and epochs below -1, which no client has, in every request that carries them."""

from typing import Any

from tests.compat.protocol_diff.cases.pieces import (
    add_offsets,
    add_partitions,
    end,
    init,
    offsets,
    produce,
    producers,
    records,
    topic,
    transaction,
    txn_commit,
)
from tests.compat.protocol_diff.steps import Cases, G, Step, T, V

CASES = Cases()
LEAST_ID, LEAST_EPOCH = -(1 << 63), -(1 << 15)
WRONG: dict[str, dict[str, Any]] = {
    "id": {"pid": -2},
    "least-id": {"pid": LEAST_ID},
    "epoch": {"epoch": -2},
    "least-epoch": {"epoch": LEAST_EPOCH},
    "both": {"pid": -2, "epoch": -2},
    "no-id": {"pid": -1},
    "no-epoch": {"epoch": -1},
    "neither": {"pid": -1, "epoch": -1},
}


def markers(version: int = 1, *, pid: Any = V("pid"), epoch: Any = V("epoch")) -> Step:
    marker = {
        "ProducerId": pid,
        "ProducerEpoch": epoch,
        "TransactionResult": False,
        "Topics": [{"Name": T(), "PartitionIndexes": [0]}],
        "CoordinatorEpoch": 0,
    }
    return Step("WriteTxnMarkers", version, {"Markers": [marker]})


def batch_of(**wrong: Any) -> Any:
    return records(1, **{"pid": V("pid"), "epoch": V("epoch"), "seq": 0, **wrong})


for name, wrong in WRONG.items():
    CASES.add(f"negative.produce-{name}", topic(), init(), produce(batch_of(**wrong)), offsets(-1), producers())
    CASES.add(
        f"negative.produce-transactional-{name}",
        topic(),
        init(G("x")),
        add_partitions(),
        produce(batch_of(transactional=True, **wrong), txn=G("x")),
        offsets(-1),
    )
    CASES.add(f"negative.add-v3-{name}", topic(), init(G("x")), add_partitions(**wrong))
    CASES.add(f"negative.add-v4-{name}", topic(), init(G("x")), add_partitions(4, **wrong))
    CASES.add(f"negative.add-offsets-{name}", init(G("x")), add_offsets(**wrong))
    CASES.add(f"negative.end-{name}", init(G("x")), end(True, **wrong))
    CASES.add(f"negative.end-v5-{name}", init(G("x")), end(True, 5, **wrong))
    CASES.add(f"negative.txn-commit-{name}", topic(), init(G("x")), add_offsets(), txn_commit(1, **wrong))
    CASES.add(f"negative.init-{name}", init(G("x")), init(G("x"), **{"pid": V("pid"), "epoch": V("epoch"), **wrong}))
    CASES.add(f"negative.init-without-id-{name}", init(None, **wrong))
    CASES.add(f"negative.init-unknown-{name}", init(G("x"), **wrong))
    CASES.add(f"negative.markers-{name}", transaction(), markers(**wrong), producers(mask=("ProducerId",)))
CASES.add("negative.sequence", topic(), init(), produce(batch_of(seq=-2)), offsets(-1))
CASES.add("negative.least-sequence", topic(), init(), produce(batch_of(seq=-(1 << 31))), offsets(-1))
CASES.add("negative.sequence-without-id", topic(), produce(records(1, pid=-1, epoch=-1, seq=5)), offsets(-1))
CASES.add("negative.sequence-below-without-id", topic(), produce(records(1, pid=-1, epoch=-1, seq=-7)), offsets(-1))
CASES.add("negative.epoch-without-id", topic(), produce(records(1, pid=-1, epoch=3, seq=-1)), offsets(-1))
