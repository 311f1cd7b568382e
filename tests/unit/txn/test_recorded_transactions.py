"""Conversations with the coordinator of transactions, with the answers that Apache Kafka 4.3.1 gave.

Each is named as in the recorded conversations of `tests/compat/protocol_diff`, or says what it is. An answer is an
error code, and with InitProducerId, and EndTxn from version 5 on, the epoch; CONCURRENT_TRANSACTIONS was waited out.
Where Penstock differs on purpose, the answer says so: `Differs(Kafka's, ours)`.
"""

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from protocol.errors import ErrorCode
from tests.support.transactions.conversations import (
    OTHER,
    TIME_OUT,
    Coordinator,
    Step,
    abort,
    add,
    add_offsets,
    commit,
    init,
    offsets,
    produce,
)

RECORDED = Path(__file__).parents[2] / "compat" / "protocol_diff" / "kafka-4.3.1.json"


class Differs(NamedTuple):
    """On purpose."""

    kafka: tuple[int, ...]
    ours: tuple[int, ...]


Answer = tuple[int, ...] | Differs


V1_OPEN: list[tuple[Step, Answer]] = [(init(), (0, 0)), (add(), (0,)), (produce(), (0,))]
V2_OPEN: list[tuple[Step, Answer]] = [(init(5), (0, 0)), (produce(12), (0,))]
V2_COMMITTED: list[tuple[Step, Answer]] = [*V2_OPEN, (commit(5), (0, 1))]
V2_ABORTED: list[tuple[Step, Answer]] = [*V2_OPEN, (abort(5), (0, 1))]
KAFKA_20785 = Differs((48, -1), (90, -1))
"""4.3.1 still has the fatal error; later versions answer as Penstock does."""

CONVERSATIONS: dict[str, list[tuple[Step, Answer]]] = {
    "init.twice": [(init(), (0, 0)), (init(), (0, 1)), (init(), (0, 2))],
    "init.own-epoch": [(init(), (0, 0)), (init(epoch=0), (0, 1)), (init(epoch=1), (0, 2))],
    "init.retry-of-bump": [(init(), (0, 0)), (init(epoch=0), (0, 1)), (init(epoch=0), (0, 1))],
    "init.old-epoch": [(init(), (0, 0)), (init(), (0, 1)), (init(), (0, 2)), (init(epoch=0), (90, -1))],
    "init.old-epoch-v3": [(init(), (0, 0)), (init(), (0, 1)), (init(), (0, 2)), (init(3, 1), (47, -1))],
    "init.foreign-pid": [(init(), (0, 0)), (init(epoch=0, producer_id=OTHER), (90, -1))],
    "init.unknown-id-with-pid": [(init(epoch=0, producer_id=OTHER), (0, 0))],
    "init.future-epoch": [(init(), (0, 0)), (init(epoch=1), (90, -1))],
    "init.during-transaction": [*V1_OPEN, (init(), (0, 2)), (produce(), (47,)), (commit(), (90,))],
    "init during a transaction, with its epoch": [*V2_OPEN, (init(5, 0), (0, 1)), (init(5, 1), (0, 2))],
    "init during a transaction, with the epoch before": [
        (init(), (0, 0)),
        (init(5, 0), (0, 1)),
        (produce(12, 1), (0,)),
        (init(5, 0), (90, -1)),
        (commit(5, 1), Differs((48, -1), (0, 2))),  # in Kafka the producer before has aborted the transaction
    ],
    "add.v0": [(init(), (0, 0)), (add(0), (0,)), (add(0), (0,))],
    "add.unknown-id": [(add(), (49,))],
    "add.foreign-pid": [(init(), (0, 0)), (add(producer_id=OTHER), (49,))],
    "add.old-epoch": [(init(), (0, 0)), (init(), (0, 1)), (add(), (90,)), (add(1), (47,))],
    "add.future-epoch": [(init(), (0, 0)), (add(epoch=1), (90,))],
    "add-offsets.v3": [(init(), (0, 0)), (add_offsets(), (0,))],
    "add-offsets.unknown-id": [(add_offsets(), (49,))],
    "add-offsets.old-epoch": [(init(), (0, 0)), (init(), (0, 1)), (add_offsets(), (90,)), (add_offsets(1), (47,))],
    "add-offsets.foreign-pid": [(init(), (0, 0)), (add_offsets(producer_id=OTHER), (49,))],
    "txn.not-added-v9": [(init(), (0, 0)), (produce(), (48,))],
    "txn.not-added-v11": [(init(), (0, 0)), (produce(11), (120,))],
    "txn.implicit-add-v12": [(init(5), (0, 0)), (produce(12), (0,)), (commit(5), (0, 1))],
    "txn.implicit-add-wrong-epoch": [(init(5), (0, 0)), (produce(12, 1), (47,))],
    "txn.implicit-add-unknown-id": [(produce(12), (49,))],
    "txn.foreign-id": [(produce(), (49,))],
    "txn.old-epoch-produce": [
        *V1_OPEN,
        (commit(), (0,)),
        (init(), (0, 1)),
        (add(epoch=1), (0,)),
        (produce(epoch=1), (0,)),
        (produce(), (47,)),
    ],
    "txn.produce-after-commit": [*V1_OPEN, (commit(), (0,)), (produce(), (48,))],
    "txn.second-transaction": [*V1_OPEN, (commit(), (0,)), (add(), (0,)), (produce(), (0,)), (abort(), (0,))],
    "txn.timeout": [
        *V1_OPEN,
        (TIME_OUT, (0,)),
        (produce(), (47,)),
        (commit(), (90,)),
        (abort(), (90,)),
        (add(), (90,)),
        (init(epoch=0), (0, 1)),
        (init(), (0, 2)),
    ],
    "txn.timeout-v2-end": [
        *V2_OPEN,
        (TIME_OUT, (0,)),
        (produce(12), (47,)),
        (commit(5), KAFKA_20785),
        (abort(5), (0, 1)),
    ],
    "txn.timeout-v2-init": [*V2_OPEN, (TIME_OUT, (0,)), (init(5, 0), (0, 1))],
    "end.v0": [*V1_OPEN, (commit(0), (0,)), (commit(0), (0,)), (abort(0), (48,))],
    "end.v4": [*V1_OPEN, (commit(4), (0,)), (commit(4), (0,)), (abort(4), (48,))],
    "end.empty-v3": [(init(), (0, 0)), (commit(), (48,)), (abort(), (48,))],
    "end.empty-v4": [(init(), (0, 0)), (commit(4), (48,)), (abort(4), (48,))],
    "end.unknown-id": [(commit(), (49,))],
    "end.foreign-pid": [*V1_OPEN, (commit(producer_id=OTHER), (49,))],
    "end.old-epoch": [
        *V1_OPEN,
        (commit(), (0,)),
        (init(), (0, 1)),
        *[(commit(version), (47 if version < 2 else 90,)) for version in range(5)],
    ],
    "end.future-epoch": [*V1_OPEN, (commit(epoch=1), (90,))],
    "end.abort-after-abort": [*V1_OPEN, (abort(), (0,)), (abort(), (0,)), (commit(), (48,))],
    "end.fenced-by-init": [*V1_OPEN, (init(), (0, 2)), (commit(), (90,)), (abort(), (90,))],
    "end5.commit-retry": [*V2_COMMITTED, (commit(5), (0, 1)), (commit(5), (0, 1))],
    "end5.abort-retry": [*V2_ABORTED, (abort(5), (0, 1)), (abort(5), (0, 1))],
    "end5.commit-then-abort-old-epoch": [*V2_COMMITTED, (abort(5), (48, -1))],
    "end5.abort-then-commit-old-epoch": [*V2_ABORTED, (commit(5), KAFKA_20785)],
    "end5.commit-then-abort-new-epoch": [*V2_COMMITTED, (abort(5, 1), (0, 2)), (abort(5, 2), (0, 3))],
    "end5.commit-then-commit-new-epoch": [*V2_COMMITTED, (commit(5, 1), (48, -1))],
    "end5.abort-then-commit-new-epoch": [*V2_ABORTED, (commit(5, 1), (48, -1))],
    "end5.abort-then-abort-new-epoch": [*V2_ABORTED, (abort(5, 1), (0, 2)), (abort(5, 1), (0, 2))],
    "end5.commit-empty": [(init(5), (0, 0)), (commit(5), (48, -1))],
    "end5.abort-empty": [(init(5), (0, 0)), (abort(5), (0, 1)), (abort(5), (0, 1)), (abort(5, 1), (0, 2))],
    "end5.next-transaction": [
        *V2_COMMITTED,
        (produce(12, 1), (0,)),
        (produce(12), (47,)),
        (commit(5), (90, -1)),
        (commit(5, 1), (0, 2)),
    ],
    "end5.late-commit-of-first": [*V2_COMMITTED, (produce(12, 1), (0,)), (commit(5), (90, -1)), (abort(5), (90, -1))],
    "end5.init-after-commit": [*V2_COMMITTED, (init(5, 0), (0, 1)), (init(5, 1), (0, 2))],
    "end5.mixed-with-v3": [*V2_COMMITTED, (add(epoch=1), (0,)), (commit(epoch=1), (0,)), (commit(epoch=1), (0,))],
    "end after init took its epoch": [
        *V2_COMMITTED,
        (init(5, 0), (0, 1)),
        (commit(5), (90, -1)),
        (abort(5), (90, -1)),
        (commit(5, 1), (48, -1)),
    ],
    "txn-offsets.v5-implicit": [(init(5), (0, 0)), (offsets(5), (0,)), (commit(5), (0, 1))],
    "txn-offsets.v3": [(init(), (0, 0)), (add_offsets(), (0,)), (offsets(), (0,)), (commit(), (0,))],
    "txn-offsets.without-add-v3": [(init(), (0, 0)), (offsets(), (48,))],
    "txn-offsets.without-add-v4": [(init(), (0, 0)), (offsets(4), (120,))],
    "txn-offsets.wrong-epoch": [
        (init(), (0, 0)),
        (add_offsets(), (0,)),
        (offsets(3, 1), (47,)),
        (offsets(5, 1), (47,)),
    ],
    "txn-offsets.foreign-pid": [(init(), (0, 0)), (add_offsets(), (0,)), (offsets(producer_id=OTHER), (49,))],
}

BEGUN_WITH_ANOTHER_ID = {
    "init.unknown-id-with-pid",
    "add.unknown-id",
    "add-offsets.unknown-id",
    "txn.implicit-add-unknown-id",
    "txn.foreign-id",
    "end.unknown-id",
}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_goes_as_it_went_with_kafka(name: str) -> None:
    coordinator = Coordinator()
    for number, (step, expected) in enumerate(CONVERSATIONS[name]):
        ours = expected.ours if isinstance(expected, Differs) else expected
        assert coordinator.answer(step) == ours, f"step {number}, {step}"


def recorded() -> dict[str, list[tuple[int, ...]]]:
    """The recorded answers of the conversations above, without those to requests of other kinds."""
    whole: dict[str, list[tuple[str, Any]]] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return {name: [*chain(*(told(*step) for step in whole[name]))] for name in CONVERSATIONS if name in whole}


def told(label: str, answer: Any) -> Iterator[tuple[int, ...]]:  # noqa: ANN401  a message of any kind
    api, _, version = label.partition(":")[2].rpartition("v")
    match api:
        case "InitProducerId":
            yield answer["ErrorCode"], answer["ProducerEpoch"]
        case "EndTxn":
            yield (answer["ErrorCode"], answer["ProducerEpoch"]) if int(version) >= 5 else (answer["ErrorCode"],)
        case "AddOffsetsToTxn":
            yield (answer["ErrorCode"],)
        case "AddPartitionsToTxn":
            yield (answer["ResultsByTopicV3AndBelow"][0]["ResultsByPartition"][0]["PartitionErrorCode"],)
        case "Produce":
            yield (answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"],)
        case "TxnOffsetCommit":
            yield (answer["Topics"][0]["Partitions"][0]["ErrorCode"],)
        case _:
            return


@pytest.mark.parametrize("name", [name for name in CONVERSATIONS if "." in name])
def test_the_answers_given_here_are_the_recorded_ones(name: str) -> None:
    """But for opening steps, that the record passes over, and for another id that it begins with."""
    ours = iter(expected.kafka if isinstance(expected, Differs) else expected for _, expected in CONVERSATIONS[name])
    answers = recorded()[name][1 if name in BEGUN_WITH_ANOTHER_ID else 0 :]
    assert answers
    assert all(answer in ours for answer in answers)


def test_errors_are_those_of_kafka() -> None:
    told = {
        ErrorCode.invalid_producer_epoch: 47,
        ErrorCode.invalid_txn_state: 48,
        ErrorCode.invalid_producer_id_mapping: 49,
        ErrorCode.producer_fenced: 90,
        ErrorCode.transaction_abortable: 120,
    }
    assert {int(error): number for error, number in told.items()} == {number: number for number in told.values()}
