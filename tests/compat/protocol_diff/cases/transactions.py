"""Producer ids, and transactions until they end."""

from tests.compat.protocol_diff.cases.pieces import (
    ABSENT,
    add_offsets,
    add_partitions,
    commit,
    end,
    fetch,
    init,
    offsets,
    produce,
    producers,
    records,
    topic,
    transaction,
    wait_state,
)
from tests.compat.protocol_diff.steps import Cases, G, Step, T, V

CASES = Cases()

# InitProducerId

for v in range(6):
    CASES.add(f"init.v{v}", init(None, v), init(G("x"), v))
CASES.add("init.empty-id", init(""))
CASES.add("init.timeout-zero", init(G("x"), timeout=0))
CASES.add("init.timeout-negative", init(G("x"), timeout=-1))
CASES.add("init.timeout-large", init(G("x"), timeout=2_000_000_000))
CASES.add("init.timeout-ignored-without-id", init(None, timeout=0))
CASES.add("init.twice", init(G("x")), init(G("x")), init(G("x")))
CASES.add(
    "init.own-epoch",
    init(G("x")),
    init(G("x"), pid=V("pid"), epoch=V("epoch")),
    init(G("x"), pid=V("pid"), epoch=V("epoch")),
)
CASES.add(
    "init.retry-of-bump",
    init(G("x")),
    init(G("x"), pid=V("pid"), epoch=V("epoch"), name="2"),
    init(G("x"), pid=V("pid"), epoch=V("epoch"), name="3"),
)
CASES.add(
    "init.old-epoch", init(G("x"), name="1"), init(G("x")), init(G("x")), init(G("x"), pid=V("pid1"), epoch=V("epoch1"))
)
CASES.add("init.foreign-pid", init(G("x")), init(G("x"), pid=V("pid", 777777), epoch=0, name="2"))
CASES.add("init.unknown-id-with-pid", init(None), init(G("x"), pid=V("pid"), epoch=5, name="2"))
CASES.add("init.future-epoch", init(G("x")), init(G("x"), pid=V("pid"), epoch=V("epoch", 5), name="2"))
CASES.add("init.pid-without-epoch", init(G("x"), pid=1234, epoch=-1))
CASES.add("init.epoch-without-pid", init(G("x"), pid=-1, epoch=3))
CASES.add("init.old-epoch-v2", init(G("x")), init(G("x"), 2))
CASES.add(
    "init.old-epoch-v3",
    init(G("x"), name="1"),
    init(G("x")),
    init(G("x")),
    init(G("x"), 3, pid=V("pid1"), epoch=V("epoch1")),
)
CASES.add("init.no-id-with-pid", init(None), init(None, pid=V("pid"), epoch=V("epoch")))
CASES.add(
    "init.during-transaction",
    transaction(),
    init(G("x"), name="2", raw=True, until=("ErrorCode", 0)),
    fetch(0, isolation=1),
    produce(records(1, pid=V("pid"), epoch=V("epoch"), seq=2, transactional=True), txn=G("x")),
    end(True),
    offsets(-1, isolation=1),
)

# AddPartitionsToTxn, AddOffsetsToTxn

for v in range(4):
    CASES.add(f"add.v{v}", topic(), init(G("x")), add_partitions(v), add_partitions(v))
for v in (4, 5):
    CASES.add(f"add.v{v}", topic(), init(G("x")), add_partitions(v))
CASES.add("add.unknown-id", topic(), init(G("y")), add_partitions())
CASES.add("add.foreign-pid", topic(), init(G("x")), add_partitions(pid=V("pid", 777777)))
CASES.add(
    "add.old-epoch",
    topic(),
    init(G("x"), name="1"),
    init(G("x")),
    add_partitions(epoch=V("epoch1")),
    add_partitions(1, epoch=V("epoch1")),
)
CASES.add("add.future-epoch", topic(), init(G("x")), add_partitions(epoch=V("epoch", 1)))
CASES.add("add.unknown-topic", init(G("x")), add_partitions(topics=((ABSENT, (0,)),)))
CASES.add("add.unknown-partition", topic(), init(G("x")), add_partitions(topics=((T(), (0, 9)),)))
CASES.add(
    "add.some-unknown",
    topic(),
    init(G("x")),
    add_partitions(topics=((T(), (0,)), (ABSENT, (0,)))),
    Step("DescribeTransactions", 0, {"TransactionalIds": [G("x")]}),
)
CASES.add("add.no-partitions", init(G("x")), add_partitions(topics=()))
CASES.add("add.empty-id", topic(), init(G("x")), add_partitions(txn=""))
CASES.add(
    "add.offsets-topic",
    topic(),
    commit(1, quiet=True),
    init(G("x")),
    add_partitions(topics=(("__consumer_offsets", (0,)),)),
)
for v in range(5):
    CASES.add(f"add-offsets.v{v}", init(G("x")), add_offsets(v))
CASES.add("add-offsets.unknown-id", init(G("y")), add_offsets())
CASES.add(
    "add-offsets.old-epoch",
    init(G("x"), name="1"),
    init(G("x")),
    add_offsets(epoch=V("epoch1")),
    add_offsets(1, epoch=V("epoch1")),
)
CASES.add("add-offsets.foreign-pid", init(G("x")), add_offsets(pid=V("pid", 777777)))
CASES.add("add-offsets.empty-group", init(G("x")), add_offsets(group=""))

# Transactional produce and its markers

CASES.add(
    "txn.commit",
    transaction(),
    fetch(0, isolation=1),
    fetch(0),
    end(True),
    wait_state("CompleteCommit"),
    fetch(0, isolation=1),
    offsets(-1),
)
CASES.add(
    "txn.abort",
    transaction(),
    end(False),
    wait_state("CompleteAbort"),
    fetch(0, isolation=1),
    fetch(0, isolation=0),
    offsets(-1, isolation=1),
)
CASES.add(
    "txn.aborted-list",
    transaction(),
    end(False),
    wait_state("CompleteAbort"),
    init(G("y"), name="y", quiet=True),
    add_partitions(txn=G("y"), pid=V("pidy"), epoch=V("epochy"), quiet=True),
    produce(records(3, pid=V("pidy"), epoch=V("epochy"), seq=0, transactional=True), txn=G("y"), quiet=True),
    end(False, txn=G("y"), pid=V("pidy"), epoch=V("epochy"), quiet=True),
    wait_state("CompleteAbort", G("y")),
    produce(records(1), quiet=True),
    fetch(0, isolation=1),
    fetch(3, isolation=1),
    fetch(7, isolation=1),
)
CASES.add(
    "txn.open-holds-stable-offset",
    transaction(),
    produce(records(4), quiet=True),
    fetch(0, isolation=1),
    fetch(2, isolation=1),
    fetch(6, isolation=1, wait=20),
)
CASES.add(
    "txn.not-added-v9",
    topic(),
    init(G("x")),
    produce(records(1, pid=V("pid"), epoch=V("epoch"), seq=0, transactional=True), 9, txn=G("x")),
)
CASES.add(
    "txn.not-added-v11",
    topic(),
    init(G("x")),
    produce(records(1, pid=V("pid"), epoch=V("epoch"), seq=0, transactional=True), 11, txn=G("x")),
)
CASES.add(
    "txn.implicit-add-v12",
    topic(),
    init(G("x"), 5),
    produce(records(1, pid=V("pid"), epoch=V("epoch"), seq=0, transactional=True), 12, txn=G("x")),
    Step("DescribeTransactions", 0, {"TransactionalIds": [G("x")]}),
    end(True, 5),
    wait_state("CompleteCommit"),
    fetch(0, isolation=1),
)
CASES.add(
    "txn.implicit-add-wrong-epoch",
    topic(),
    init(G("x"), 5),
    produce(records(1, pid=V("pid"), epoch=V("epoch", 1), seq=0, transactional=True), 12, txn=G("x")),
)
CASES.add(
    "txn.implicit-add-unknown-id",
    topic(),
    init(None),
    produce(records(1, pid=V("pid"), epoch=V("epoch"), seq=0, transactional=True), 12, txn=G("x")),
)
CASES.add(
    "txn.batch-without-id",
    topic(),
    init(G("x")),
    add_partitions(quiet=True),
    produce(records(1, pid=V("pid"), epoch=V("epoch"), seq=0, transactional=True), 9),
)
CASES.add(
    "txn.id-without-flag",
    topic(),
    init(G("x")),
    add_partitions(quiet=True),
    produce(records(1, pid=V("pid"), epoch=V("epoch"), seq=0), 9, txn=G("x")),
)
CASES.add("txn.plain-batch-in-open", transaction(), produce(records(1, pid=V("pid"), epoch=V("epoch"), seq=2), 9))
CASES.add("txn.id-with-plain-batch", topic(), produce(records(1), 9, txn=G("x")))
CASES.add(
    "txn.foreign-id",
    topic(),
    init(G("x")),
    add_partitions(quiet=True),
    produce(records(1, pid=V("pid"), epoch=V("epoch"), seq=0, transactional=True), 9, txn=G("y")),
)
CASES.add(
    "txn.old-epoch-produce",
    transaction(),
    end(True),
    wait_state("CompleteCommit"),
    init(G("x"), name="2"),
    add_partitions(epoch=V("epoch2")),
    produce(records(1, pid=V("pid"), epoch=V("epoch2"), seq=0, transactional=True), 9, txn=G("x")),
    produce(records(1, pid=V("pid"), epoch=V("epoch"), seq=2, transactional=True), 9, txn=G("x")),
)
CASES.add(
    "txn.produce-after-commit",
    transaction(),
    end(True),
    wait_state("CompleteCommit"),
    produce(records(1, pid=V("pid"), epoch=V("epoch"), seq=2, transactional=True), 9, txn=G("x")),
)
CASES.add(
    "txn.second-transaction",
    transaction(),
    end(True),
    wait_state("CompleteCommit"),
    add_partitions(),
    produce(records(1, pid=V("pid"), epoch=V("epoch"), seq=2, transactional=True), 9, txn=G("x")),
    end(False),
    wait_state("CompleteAbort"),
    fetch(0, isolation=1),
)
CASES.add(
    "txn.second-transaction-bad-sequence",
    transaction(),
    end(True),
    wait_state("CompleteCommit"),
    add_partitions(),
    produce(records(1, pid=V("pid"), epoch=V("epoch"), seq=0, transactional=True), 9, txn=G("x")),
    produce(records(1, pid=V("pid"), epoch=V("epoch"), seq=9, transactional=True), 9, txn=G("x")),
)
CASES.add(
    "txn.producers-open",
    transaction(),
    producers(),
    end(True),
    wait_state("CompleteCommit"),
    producers(mask=("LastSequence",)),
)
CASES.add(
    "txn.timeout",
    topic(),
    init(G("x"), timeout=1000),
    add_partitions(),
    produce(records(1, pid=V("pid"), epoch=V("epoch"), seq=0, transactional=True), txn=G("x")),
    wait_state("CompleteAbort"),
    produce(records(1, pid=V("pid"), epoch=V("epoch"), seq=1, transactional=True), txn=G("x")),
    end(True),
    end(False),
    add_partitions(),
    init(G("x"), pid=V("pid"), epoch=V("epoch"), name="2"),
    init(G("x"), name="3"),
)
CASES.add(
    "txn.timeout-v2-end",
    topic(),
    init(G("x"), 5, timeout=1000),
    produce(records(1, pid=V("pid"), epoch=V("epoch"), seq=0, transactional=True), 12, txn=G("x")),
    wait_state("CompleteAbort"),
    produce(records(1, pid=V("pid"), epoch=V("epoch"), seq=1, transactional=True), 12, txn=G("x")),
    end(True, 5),
    end(False, 5),
)
CASES.add(
    "txn.timeout-v2-init",
    topic(),
    init(G("x"), 5, timeout=1000),
    produce(records(1, pid=V("pid"), epoch=V("epoch"), seq=0, transactional=True), 12, txn=G("x")),
    wait_state("CompleteAbort"),
    init(G("x"), 5, pid=V("pid"), epoch=V("epoch"), name="2"),
)
