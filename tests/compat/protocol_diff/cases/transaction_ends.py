"""EndTxn in both protocols, offsets committed in transactions, and coordinators found."""

from tests.compat.protocol_diff.cases.pieces import (
    ABSENT,
    add_offsets,
    add_partitions,
    commit,
    committed,
    end,
    fetch,
    init,
    member,
    produce,
    records,
    topic,
    transaction,
    txn_commit,
    wait_state,
)
from tests.compat.protocol_diff.steps import Cases, G, Step, V

CASES = Cases()

# EndTxn

for v in range(5):
    CASES.add(f"end.v{v}", transaction(), end(True, v), wait_state("CompleteCommit"), end(True, v), end(False, v))
CASES.add("end.empty-v3", init(G("x")), end(True), end(False))
CASES.add("end.empty-v4", init(G("x")), end(True, 4), end(False, 4))
CASES.add("end.unknown-id", init(G("y")), end(True))
CASES.add("end.empty-id", init(G("x")), end(True, txn=""))
CASES.add("end.foreign-pid", transaction(), end(True, pid=V("pid", 777777)))
CASES.add(
    "end.old-epoch",
    transaction(),
    end(True, quiet=True),
    wait_state("CompleteCommit"),
    init(G("x"), name="2", quiet=True),
    *[end(True, v) for v in range(5)],
)
CASES.add("end.future-epoch", transaction(), end(True, epoch=V("epoch", 1)))
CASES.add("end.abort-after-abort", transaction(), end(False), wait_state("CompleteAbort"), end(False), end(True))
CASES.add("end.fenced-by-init", transaction(), init(G("x"), name="2", until=("ErrorCode", 0)), end(True), end(False))


def tv2(commit_it: bool, *after: Step, produce_first: bool = True) -> list[Step]:
    first = (
        [produce(records(1, pid=V("pid"), epoch=V("epoch"), seq=0, transactional=True), 12, txn=G("x"), quiet=True)]
        if produce_first
        else []
    )
    done = "CompleteCommit" if commit_it else "CompleteAbort"
    return [
        *topic(),
        init(G("x"), 5),
        *first,
        end(commit_it, 5),
        *([wait_state(done)] if produce_first else []),
        *after,
    ]


CASES.add("end5.commit", tv2(True))
CASES.add("end5.abort", tv2(False))
CASES.add("end5.commit-retry", tv2(True, end(True, 5), end(True, 5)))
CASES.add("end5.abort-retry", tv2(False, end(False, 5), end(False, 5)))
CASES.add("end5.commit-then-abort-old-epoch", tv2(True, end(False, 5)))
CASES.add("end5.abort-then-commit-old-epoch", tv2(False, end(True, 5)))
CASES.add(
    "end5.commit-then-abort-new-epoch",
    tv2(True, end(False, 5, epoch=V("epoch", 1)), end(False, 5, epoch=V("epoch", 2))),
)
CASES.add("end5.commit-then-commit-new-epoch", tv2(True, end(True, 5, epoch=V("epoch", 1))))
CASES.add("end5.abort-then-commit-new-epoch", tv2(False, end(True, 5, epoch=V("epoch", 1))))
CASES.add(
    "end5.abort-then-abort-new-epoch",
    tv2(False, end(False, 5, epoch=V("epoch", 1)), end(False, 5, epoch=V("epoch", 1))),
)
CASES.add("end5.commit-empty", tv2(True, produce_first=False))
CASES.add("end5.abort-empty", tv2(False, end(False, 5), end(False, 5, epoch=V("epoch", 1)), produce_first=False))
CASES.add(
    "end5.next-transaction",
    tv2(
        True,
        produce(records(1, pid=V("pid"), epoch=V("epoch", 1), seq=0, transactional=True), 12, txn=G("x")),
        produce(records(1, pid=V("pid"), epoch=V("epoch"), seq=1, transactional=True), 12, txn=G("x")),
        end(True, 5),
        end(True, 5, epoch=V("epoch", 1)),
        wait_state("CompleteCommit"),
        fetch(0, isolation=1),
    ),
)
CASES.add(
    "end5.next-sequence-not-zero",
    tv2(True, produce(records(1, pid=V("pid"), epoch=V("epoch", 1), seq=1, transactional=True), 12, txn=G("x"))),
)
CASES.add(
    "end5.late-commit-of-first",
    tv2(
        True,
        produce(records(1, pid=V("pid"), epoch=V("epoch", 1), seq=0, transactional=True), 12, txn=G("x")),
        end(True, 5),
        end(False, 5),
        Step("DescribeTransactions", 0, {"TransactionalIds": [G("x")]}),
    ),
)
CASES.add(
    "end5.init-after-commit",
    tv2(
        True,
        init(G("x"), 5, pid=V("pid"), epoch=V("epoch"), name="2"),
        init(G("x"), 5, pid=V("pid"), epoch=V("epoch2"), name="3"),
    ),
)
CASES.add(
    "end5.mixed-with-v3",
    tv2(
        True,
        add_partitions(epoch=V("epoch", 1)),
        end(True, 3, epoch=V("epoch", 1)),
        wait_state("CompleteCommit"),
        end(True, 3, epoch=V("epoch", 1)),
    ),
)

# Offsets in transactions

OFFSETS_TXN = [*topic(), init(G("x")), add_offsets(quiet=True)]
for v in range(5):
    CASES.add(
        f"txn-offsets.v{v}",
        OFFSETS_TXN,
        txn_commit(5, v),
        committed(),
        end(True),
        wait_state("CompleteCommit"),
        committed(until=("Topics.0.Partitions.0.CommittedOffset", 5)),
    )
CASES.add(
    "txn-offsets.v5-implicit",
    topic(),
    init(G("x"), 5),
    txn_commit(5, 5),
    Step("DescribeTransactions", 0, {"TransactionalIds": [G("x")]}, mask=("Partitions",)),
    end(True, 5),
    wait_state("CompleteCommit"),
    committed(until=("Topics.0.Partitions.0.CommittedOffset", 5)),
)
CASES.add("txn-offsets.abort", OFFSETS_TXN, txn_commit(5), end(False), wait_state("CompleteAbort"), committed())
CASES.add(
    "txn-offsets.pending-unstable",
    OFFSETS_TXN,
    txn_commit(5),
    committed(stable=True),
    committed(8, stable=True),
    committed(stable=False),
    end(True),
    wait_state("CompleteCommit"),
    committed(stable=True, until=("Topics.0.Partitions.0.CommittedOffset", 5)),
)
CASES.add("txn-offsets.without-add-v3", topic(), init(G("x")), txn_commit(5))
CASES.add("txn-offsets.without-add-v4", topic(), init(G("x")), txn_commit(5, 4))
CASES.add("txn-offsets.unknown-member", OFFSETS_TXN, txn_commit(5, member="nobody", generation=1))
CASES.add("txn-offsets.generation-without-member", OFFSETS_TXN, txn_commit(5, generation=1))
CASES.add(
    "txn-offsets.wrong-generation",
    topic(),
    member(),
    init(G("x")),
    add_offsets(),
    txn_commit(5, member=V("member"), generation=V("generation", 1)),
    txn_commit(6, member="nobody", generation=V("generation")),
    txn_commit(7, member=V("member"), generation=V("generation")),
    end(True),
    wait_state("CompleteCommit"),
    committed(until=("Topics.0.Partitions.0.CommittedOffset", 7)),
)
CASES.add("txn-offsets.no-member-in-live-group", topic(), member(), init(G("x")), add_offsets(), txn_commit(5))
CASES.add(
    "txn-offsets.wrong-epoch",
    topic(),
    init(G("x")),
    add_offsets(),
    txn_commit(5, epoch=V("epoch", 1)),
    txn_commit(5, 5, epoch=V("epoch", 1)),
)
CASES.add("txn-offsets.foreign-pid", OFFSETS_TXN, txn_commit(5, pid=V("pid", 777777)))
CASES.add("txn-offsets.unknown-topic", init(G("x")), add_offsets(), txn_commit(5, topic=ABSENT), end(True))
CASES.add("txn-offsets.large-metadata", OFFSETS_TXN, txn_commit(5, metadata="m" * 5000))
CASES.add("txn-offsets.empty-group", topic(), init(G("x")), txn_commit(5, group=""))
CASES.add(
    "txn-offsets.overtaken-by-plain",
    OFFSETS_TXN,
    txn_commit(5),
    commit(9),
    committed(),
    end(True),
    wait_state("CompleteCommit"),
    committed(stable=True, pause=0.3),
)
