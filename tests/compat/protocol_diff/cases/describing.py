"""Transactions and producers described; markers written by tools."""

from tests.compat.protocol_diff.cases.pieces import (
    ABSENT,
    end,
    fetch,
    init,
    produce,
    producers,
    records,
    topic,
    transaction,
    wait_state,
)
from tests.compat.protocol_diff.steps import Cases, G, Step, T, V

CASES = Cases()

# Describing transactions and producers

CASES.add("txns.describe-unknown", Step("DescribeTransactions", 0, {"TransactionalIds": [G("none")]}))
CASES.add("txns.describe-empty-id", Step("DescribeTransactions", 0, {"TransactionalIds": [""]}))
CASES.add("txns.describe-fresh", init(G("x")), Step("DescribeTransactions", 0, {"TransactionalIds": [G("x")]}))
CASES.add(
    "txns.describe-open",
    transaction(),
    Step("DescribeTransactions", 0, {"TransactionalIds": [G("x")]}),
    end(True),
    wait_state("CompleteCommit"),
    Step("DescribeTransactions", 0, {"TransactionalIds": [G("x")]}),
)
CASES.add("txns.describe-twice", init(G("x")), Step("DescribeTransactions", 0, {"TransactionalIds": [G("x"), G("x")]}))
CASES.add(
    "txns.list-bad-state", Step("ListTransactions", 0, {"StateFilters": ["NoSuchState"], "ProducerIdFilters": [-77]})
)
CASES.add(
    "txns.list-by-pid",
    transaction(),
    *[Step("ListTransactions", v, {"StateFilters": [], "ProducerIdFilters": [V("pid")]}) for v in range(3)],
    Step("ListTransactions", 0, {"StateFilters": ["Ongoing"], "ProducerIdFilters": [V("pid")]}),
    Step("ListTransactions", 0, {"StateFilters": ["Empty"], "ProducerIdFilters": [V("pid")]}),
    Step("ListTransactions", 1, {"StateFilters": [], "ProducerIdFilters": [V("pid")], "DurationFilter": 3_600_000}),
)
CASES.add(
    "txns.list-by-pattern",
    init(G("x")),
    Step(
        "ListTransactions",
        2,
        {"StateFilters": [], "ProducerIdFilters": [V("pid")], "TransactionalIdPattern": "nothing-like-it"},
    ),
    Step(
        "ListTransactions", 2, {"StateFilters": [], "ProducerIdFilters": [V("pid")], "TransactionalIdPattern": "pd.*"}
    ),
    Step("ListTransactions", 2, {"StateFilters": [], "ProducerIdFilters": [V("pid")], "TransactionalIdPattern": "["}),
)
CASES.add("producers.unknown-topic", producers(ABSENT))
CASES.add("producers.unknown-partition", topic(), producers(partition=9))
CASES.add("producers.none", topic(), produce(records(1), quiet=True), producers())
CASES.add(
    "markers.unknown-partition",
    init(None),
    Step(
        "WriteTxnMarkers",
        1,
        {
            "Markers": [
                {
                    "ProducerId": V("pid"),
                    "ProducerEpoch": 0,
                    "TransactionResult": False,
                    "Topics": [{"Name": ABSENT, "PartitionIndexes": [0]}],
                    "CoordinatorEpoch": 0,
                }
            ]
        },
    ),
)
CASES.add(
    "markers.unknown-producer",
    topic(),
    init(None),
    Step(
        "WriteTxnMarkers",
        1,
        {
            "Markers": [
                {
                    "ProducerId": V("pid"),
                    "ProducerEpoch": 0,
                    "TransactionResult": False,
                    "Topics": [{"Name": T(), "PartitionIndexes": [0]}],
                    "CoordinatorEpoch": 0,
                }
            ]
        },
    ),
    fetch(0),
)
CASES.add(
    "markers.abort-open",
    transaction(),
    Step(
        "WriteTxnMarkers",
        1,
        {
            "Markers": [
                {
                    "ProducerId": V("pid"),
                    "ProducerEpoch": V("epoch"),
                    "TransactionResult": False,
                    "Topics": [{"Name": T(), "PartitionIndexes": [0]}],
                    "CoordinatorEpoch": 0,
                }
            ]
        },
    ),
    fetch(0, isolation=1),
    producers(),
)
