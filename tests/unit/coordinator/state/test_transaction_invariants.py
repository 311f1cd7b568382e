"""Each invariant of transactions is missed when it is broken by hand."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from coordinator.commands.group import ClaimGroups
from coordinator.invariants import check
from coordinator.state.state import ClusterState
from coordinator.state.transactions import AppliedConnectionEpoch, TransactionalId
from protocol.limits import OFFSET_COMMIT_EPOCHS_MAX
from protocol.types import Milliseconds, Offset, PartitionIndex, Position, ProducerId, SessionId
from tests.support.commands.commands import TOPIC, Cluster
from tests.support.commands.transaction_commands import ID, begin, decided, pending, transactional
from txn.isolation import PartitionTransactions
from txn.transaction import TransactionStatus

OTHER = ProducerId(5)


def sound() -> ClusterState:
    """A transaction that is open in a partition, and for a group."""
    cluster = Cluster.started()
    cluster.do(ClaimGroups(group_ids=("g",)))
    decided(cluster, begin())
    cluster.produce(0, transactional(0))
    cluster.do(pending(5))
    return cluster.state


def held(state: ClusterState) -> TransactionalId:
    return state.transactional_ids[ID]


def transactions(state: ClusterState) -> PartitionTransactions:
    found = state.topics[TOPIC].partitions[0].transactions
    assert found is not None
    return found


def lost_producer(state: ClusterState) -> None:
    state.producers_of_transactions.clear()


def lost_open(state: ClusterState) -> None:
    state.open_transactions.clear()


def id_not_given(state: ClusterState) -> None:
    state.producer_id_next = ProducerId(0)


def never_started(state: ClusterState) -> None:
    held(state).started_ms = Milliseconds(-1)


def ended_with_members(state: ClusterState) -> None:
    held(state).metadata = replace(held(state).metadata, status=TransactionStatus.COMPLETE_ABORT)
    held(state).started_ms = Milliseconds(-1)


def used_in_the_future(state: ClusterState) -> None:
    held(state).updated_ms = Milliseconds(1 << 50)


def no_such_partition(state: ClusterState) -> None:
    held(state).partitions[TOPIC, PartitionIndex(9)] = None


def empty_memory(state: ClusterState) -> None:
    state.topics[TOPIC].partitions[0].transactions = PartitionTransactions()


def open_by_nobody(state: ClusterState) -> None:
    transactions(state).open[OTHER] = Offset(0)


def open_elsewhere(state: ClusterState) -> None:
    held(state).partitions.clear()


def open_beyond_the_log(state: ClusterState) -> None:
    transactions(state).open[ProducerId(0)] = Offset(9)


def runs_of_nobody(state: ClusterState) -> None:
    state.topics[TOPIC].partitions[0].unplaced_batches[OTHER] = []


def runs_miscounted(state: ClusterState) -> None:
    held(state).unplaced_runs += 1


def waits_for_nobody(state: ClusterState) -> None:
    state.groups["g"].pending[OTHER] = state.groups["g"].pending[ProducerId(0)]


def group_not_added(state: ClusterState) -> None:
    held(state).groups.clear()


def nothing_waits(state: ClusterState) -> None:
    state.groups["g"].pending[ProducerId(0)] = {}


def no_partition_waits(state: ClusterState) -> None:
    state.groups["g"].pending[ProducerId(0)] = {TOPIC: {}}


def epochs_without_end(state: ClusterState) -> None:
    connection_epoch = AppliedConnectionEpoch(state.position, SessionId(1), 1)
    held(state).offset_commit_epochs.update(
        (str(number), connection_epoch) for number in range(OFFSET_COMMIT_EPOCHS_MAX + 1)
    )


def epoch_below_those_dropped(state: ClusterState) -> None:
    held(state).offset_commit_epochs["g"] = AppliedConnectionEpoch(Position(1), SessionId(1), 1)
    held(state).offset_commit_epochs_from = Position(3)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lost_producer, "does not mirror transactional_ids"),
        (lost_open, "open_transactions does not mirror transactional_ids"),
        (id_not_given, "has the producer id 0, which was not given yet"),
        (never_started, "is Ongoing, and its transaction began at -1"),
        (ended_with_members, "is CompleteAbort, and has 1 partitions and 1 groups"),
        (used_in_the_future, "was used in the future"),
        (epochs_without_end, f"has connection epochs of {OFFSET_COMMIT_EPOCHS_MAX + 1} groups"),
        (epoch_below_those_dropped, "dropped connection epochs below 3, and has an older one"),
        (no_such_partition, "has partition 9 of a topic"),
        (empty_memory, "remembers that it has no transactions"),
        (open_by_nobody, "producer 5 has a transaction open that is none"),
        (open_elsewhere, "producer 0 has a transaction open that is none"),
        (open_beyond_the_log, "is open from offset 9 on"),
        (runs_of_nobody, "0 runs of producer 5 wait for the commit of no transaction"),
        (runs_miscounted, "counts 1 runs of 0 bytes that wait, and has (0, 0)"),
        (waits_for_nobody, "offsets wait for producer 5"),
        (group_not_added, "offsets wait for producer 0"),
        (nothing_waits, "nothing waits for producer 0"),
        (no_partition_waits, "nothing waits for producer 0"),
    ],
)
def test_a_broken_invariant_is_named(damage: Callable[[ClusterState], None], sentence: str) -> None:
    state = sound()
    assert check(state) == []
    damage(state)
    assert any(sentence in fault for fault in check(state)), check(state)
