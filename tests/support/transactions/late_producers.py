"""What late producers are answered, as docs/compatibility.md says: what happened to each, and its requests."""

from typing import NamedTuple

from tests.support.transactions.conversations import (
    TIME_OUT,
    TOOL,
    Step,
    abort,
    add,
    add_offsets,
    commit,
    init,
    offsets,
    produce,
)

V1_OPEN = [init(), add(), produce()]
V2_OPEN = [init(5), produce(12)]
HISTORIES: dict[str, list[Step]] = {
    "its transaction timed out (V1)": [*V1_OPEN, TIME_OUT],
    "its transaction timed out (V2)": [*V2_OPEN, TIME_OUT],
    "another instance was initialised": [init(), init()],
    "... during its transaction": [*V1_OPEN, init()],
    "it ended its transaction, and asks again (V2)": [*V2_OPEN, commit(5)],
    "... after its next one began (V2)": [*V2_OPEN, commit(5), produce(12, 1)],
    "a tool aborted its transaction (V2)": [*V2_OPEN, TOOL],
    "an instance before it was initialised late": [init(), init(5, 0), produce(12, 1), init(5, 0)],
}
"""What happened, to a producer whose first epoch was 0."""


class Row(NamedTuple):
    """A row of the table: what happened, then requests that come late, and what Kafka and Penstock answer."""

    history: str
    request: str
    steps: list[Step]
    kafka: str
    penstock: str
    why: str = ""


KAFKA_20785 = "48 is fatal to clients; Kafka answers 90 since KAFKA-20785"
ROWS = [
    Row("its transaction timed out (V1)", "Produce 3-11", [produce(3), produce(9), produce(11)], "47", "47"),
    Row(
        "its transaction timed out (V1)",
        "AddPartitionsToTxn, AddOffsetsToTxn 0-1",
        [add(1), add_offsets(0)],
        "47",
        "47",
    ),
    Row(
        "its transaction timed out (V1)", "AddPartitionsToTxn, AddOffsetsToTxn 2-", [add(3), add_offsets(4)], "90", "90"
    ),
    Row("its transaction timed out (V1)", "TxnOffsetCommit", [offsets(0), offsets(3), offsets(5)], "47", "47"),
    Row("its transaction timed out (V1)", "EndTxn 0-1", [commit(0), abort(1)], "47", "47"),
    Row("its transaction timed out (V1)", "EndTxn 2-4", [commit(2), abort(4)], "90", "90"),
    Row(
        "its transaction timed out (V1)",
        "InitProducerId 3- with its epoch",
        [init(3, 0), init(4, 0)],
        "epoch 1",
        "epoch 1",
    ),
    Row("its transaction timed out (V1)", "InitProducerId without", [init(0)], "epoch 2", "epoch 2"),
    Row("its transaction timed out (V2)", "Produce 12-", [produce(12), produce(13)], "47", "47"),
    Row("its transaction timed out (V2)", "EndTxn 5, commit", [commit(5)], "48", "90", KAFKA_20785),
    Row("its transaction timed out (V2)", "EndTxn 5, abort", [abort(5), abort(5)], "epoch 1", "epoch 1"),
    Row("its transaction timed out (V2)", "InitProducerId 5 with its epoch", [init(5, 0)], "epoch 1", "epoch 1"),
    Row("another instance was initialised", "Produce", [produce(9), produce(12)], "47", "47"),
    Row("another instance was initialised", "EndTxn 2-", [commit(2), abort(3), commit(5), abort(5)], "90", "90"),
    Row("another instance was initialised", "InitProducerId 3 with its epoch", [init(3, 0)], "47", "47"),
    Row("another instance was initialised", "InitProducerId 4- with its epoch", [init(4, 0), init(5, 0)], "90", "90"),
    Row("... during its transaction", "Produce", [produce(9), produce(12)], "47", "47"),
    Row("... during its transaction", "EndTxn 2-", [commit(3), abort(3), commit(5), abort(5)], "90", "90"),
    Row(
        "it ended its transaction, and asks again (V2)",
        "EndTxn 5, the same",
        [commit(5), commit(5)],
        "epoch 1",
        "epoch 1",
    ),
    Row("it ended its transaction, and asks again (V2)", "EndTxn 5, the other", [abort(5)], "48", "48"),
    Row("... after its next one began (V2)", "EndTxn 5", [commit(5), abort(5)], "90", "90"),
    Row(
        "a tool aborted its transaction (V2)",
        "Produce 12-",
        [produce(12)],
        "0",
        "47",
        "in Kafka the producer goes on, and commits what it writes after the abort: half a transaction",
    ),
    Row(
        "a tool aborted its transaction (V2)",
        "EndTxn 5, commit",
        [commit(5)],
        "epoch 1",
        "90",
        "what was aborted is not committed",
    ),
    Row("a tool aborted its transaction (V2)", "EndTxn 5, abort", [abort(5)], "epoch 1", "epoch 1"),
    Row(
        "an instance before it was initialised late",
        "EndTxn 5, commit",
        [commit(5, 1)],
        "48",
        "epoch 2",
        "in Kafka InitProducerId with an old epoch is refused, but has aborted the newer producer's transaction",
    ),
]


def as_written(answer: tuple[int, ...]) -> str:
    """An answer as the table writes it."""
    return f"epoch {answer[1]}" if len(answer) == 2 and not answer[0] else str(answer[0])
