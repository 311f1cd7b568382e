"""Offsets in transactions beyond what one client does: who commits for whom, what others do meanwhile, deletions."""

from typing import Any

from tests.compat.protocol_diff.cases.consumer_protocol import live
from tests.compat.protocol_diff.cases.pieces import (
    add_offsets,
    commit,
    committed,
    end,
    init,
    join,
    member,
    topic,
    txn_commit,
    wait_state,
)
from tests.compat.protocol_diff.steps import Cases, G, Step, T, V

CASES = Cases()
ADDED = [*topic(partitions=2), init(G("x")), add_offsets(quiet=True)]
OTHER: dict[str, Any] = {"txn": G("y"), "pid": V("pidy"), "epoch": V("epochy")}
SECOND = [init(G("y"), name="y", quiet=True), add_offsets(quiet=True, **OTHER)]
LIVE = "AAAAAAAAAAAAAAAAAAAAAA"
MINE: dict[str, Any] = {"pid": V("pidp"), "epoch": V("epochp")}
"""A producer beside a member of a consumer group: `epoch` is the member's."""


def ended(commit_it: bool = True, **producer: Any) -> list[Step]:
    """The transaction of `x`, and what both partitions have then."""
    return [
        end(commit_it, **producer),
        wait_state("CompleteCommit" if commit_it else "CompleteAbort"),
        committed(partitions=(0, 1), stable=True, pause=0.3),
    ]


def forget(*partitions: int) -> Step:
    rows = [{"PartitionIndex": index} for index in partitions]
    return Step("OffsetDelete", 0, {"GroupId": G("g"), "Topics": [{"Name": T(), "Partitions": rows}]})


# What is seen

CASES.add(
    "pending.all-of-group",
    ADDED,
    commit(3, quiet=True),
    txn_commit(5),
    txn_commit(6, partition=1),
    committed(every=True),
    committed(every=True, stable=True),
    ended(),
    committed(every=True),
)
CASES.add("pending.all-of-pending-group", ADDED, txn_commit(5), committed(every=True, stable=True))
CASES.add(
    "pending.group-alone",
    ADDED,
    txn_commit(5),
    Step("DescribeGroups", 5, {"Groups": [G("g")]}),
    Step("DescribeGroups", 6, {"Groups": [G("g")]}),
    ended(commit_it=False),
    Step("DescribeGroups", 6, {"Groups": [G("g")]}),
)
CASES.add("pending.same-partition-again", ADDED, txn_commit(5), txn_commit(3, metadata=None), ended())
CASES.add("pending.negative-offset", ADDED, txn_commit(-1), txn_commit(-5, partition=1), ended())
CASES.add("pending.unknown-partition", ADDED, txn_commit(5, partition=9), txn_commit(5, partition=-1))
CASES.add("pending.empty-transactional-id", topic(), init(None), txn_commit(5, txn=""), txn_commit(5, 5, txn=""))

# What others commit meanwhile

CASES.add("pending.plain-first", ADDED, commit(9, quiet=True), txn_commit(5), ended())
CASES.add("pending.plain-later-and-abort", ADDED, txn_commit(5), commit(9, quiet=True), ended(commit_it=False))
CASES.add(
    "pending.two-transactions-first-ends-last",
    ADDED,
    SECOND,
    txn_commit(5),
    txn_commit(7, **OTHER),
    end(True, **OTHER),
    wait_state("CompleteCommit", G("y")),
    committed(stable=True, pause=0.3),
    committed(),
    ended(),
)
CASES.add(
    "pending.two-transactions-first-ends-first",
    ADDED,
    SECOND,
    txn_commit(5),
    txn_commit(7, **OTHER),
    ended(),
    end(True, **OTHER),
    wait_state("CompleteCommit", G("y")),
    committed(stable=True, pause=0.3),
)

# Deletions

CASES.add("pending.offset-deleted", ADDED, txn_commit(5), txn_commit(6, partition=1), forget(0), ended())
CASES.add(
    "pending.offset-deleted-and-committed-again", ADDED, txn_commit(5), forget(0), txn_commit(7, partition=1), ended()
)
CASES.add(
    "pending.group-deleted",
    ADDED,
    txn_commit(5),
    Step("DeleteGroups", 2, {"GroupsNames": [G("g")]}),
    Step("DescribeGroups", 6, {"Groups": [G("g")]}),
    ended(),
)
CASES.add(
    "pending.group-deleted-and-committed-again",
    ADDED,
    txn_commit(5),
    Step("DeleteGroups", 2, {"GroupsNames": [G("g")]}),
    txn_commit(6, partition=1),
    ended(),
)

# Members of classic groups

CASES.add(
    "pending.static-member",
    topic(partitions=2),
    member(instance="i1"),
    init(G("x")),
    add_offsets(quiet=True),
    txn_commit(5, member=V("member"), generation=V("generation"), instance="i1"),
    txn_commit(6, member="nobody", generation=V("generation"), instance="i1"),
    txn_commit(6, member=V("member"), generation=V("generation"), instance="i2"),
    txn_commit(6, member=V("member"), generation=V("generation")),
    txn_commit(7, member="", generation=-1, instance="i1"),
    ended(),
)
CASES.add(
    "pending.before-assignment",
    topic(partitions=2),
    join(5, quiet=True, raw=True),
    join(5, member=V("member"), quiet=True),
    init(G("x")),
    add_offsets(quiet=True),
    txn_commit(5, member=V("member"), generation=V("generation")),
    commit(6, member=V("member"), generation=V("generation"), raw=True),
    ended(),
)
CASES.add(
    "pending.old-version-in-live-group",
    topic(partitions=2),
    member(),
    init(G("x")),
    add_offsets(quiet=True),
    txn_commit(5, 2),
    ended(),
)
CASES.add(
    "pending.member-without-generation",
    topic(partitions=2),
    member(),
    init(G("x")),
    add_offsets(quiet=True),
    txn_commit(5, member=V("member")),
    txn_commit(5, member="nobody"),
)

# Members of consumer groups (KIP-848)

CASES.add(
    "pending.live-member",
    topic(partitions=2),
    live(0),
    init(G("x"), name="p"),
    add_offsets(quiet=True, **MINE),
    txn_commit(5, member=LIVE, generation=V("epoch"), **MINE),
    txn_commit(6, member=LIVE, generation=V("epoch", 1), **MINE),
    txn_commit(6, member=LIVE, generation=V("epoch", -1), **MINE),
    txn_commit(6, member="nobody", generation=V("epoch"), **MINE),
    txn_commit(6, member="", generation=-1, instance="i1", **MINE),
    txn_commit(7, partition=1, **MINE),
    ended(**MINE),
)
CASES.add(
    "pending.live-member-v5",
    topic(partitions=2),
    live(0),
    init(G("x"), 5, name="p"),
    txn_commit(6, 5, member=LIVE, generation=V("epoch", 1), **MINE),
    txn_commit(5, 5, member=LIVE, generation=V("epoch"), **MINE),
    end(True, 5, **MINE),
    wait_state("CompleteCommit"),
    committed(partitions=(0, 1), stable=True, pause=0.3),
)

# Both the group and the transaction refuse

CASES.add(
    "pending.refused-by-both",
    ADDED,
    txn_commit(5, epoch=V("epoch", 1), member="nobody", generation=1),
    txn_commit(5, 5, epoch=V("epoch", 1), member="nobody", generation=1),
)
CASES.add(
    "pending.refused-by-group-v5",
    topic(),
    init(G("x"), 5),
    txn_commit(5, 5, member="nobody", generation=1),
    Step("DescribeTransactions", 0, {"TransactionalIds": [G("x")]}, mask=("Partitions",)),
    end(False, 5),
)
