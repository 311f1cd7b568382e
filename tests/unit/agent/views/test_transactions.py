"""Transactions as people and Prometheus see them."""

import pytest

from agent.views.state import state_summary, topic_details
from agent.views.transactions import transaction_list, transaction_statistics
from coordinator.commands.admin import CreatePartitions
from tests.support.agent.small_agent import rows_of
from tests.support.commands.commands import TOPIC, Chunk, Cluster, commit
from tests.support.commands.transaction_commands import ID, add, begin, decided, end, transactional


def busy() -> Cluster:
    """A transaction that wrote two records at 10 s, one that wrote none at 20 s, two ids without one; now is 70 s."""
    cluster = Cluster.started()
    cluster.do(CreatePartitions(topic_id=TOPIC, partition_count=2))
    for number, name in enumerate((ID, "late", "idle", "used")):
        decided(cluster, begin(transactional_id=name), time_ms=1_000 * number)
    cluster.do(commit(0, Chunk(batches=[transactional(0, records=2)])), time_ms=10_000)
    decided(cluster, add(1, producer=1, transactional_id="late", groups=("g",)), time_ms=20_000)
    decided(cluster, add(1, producer=3, transactional_id="used"), time_ms=30_000)
    decided(cluster, end(producer=3, transactional_id="used"), time_ms=70_000)
    return cluster


def test_the_oldest_open_transaction_comes_first_and_the_ids_that_were_used_last_behind() -> None:
    told = transaction_list(busy().state, 4)
    assert (told["open"], told["ids"]) == (2, 4)
    rows = rows_of(told, "transactions")
    assert [row["transactional_id"] for row in rows] == [ID, "late", "used", "idle"]
    assert [row["state"] for row in rows] == ["Ongoing", "Ongoing", "CompleteCommit", "Empty"]
    assert [row["open_s"] for row in rows] == [60, 50, None, None]
    (oldest,) = rows_of(transaction_list(busy().state, 1, 71_000), "transactions")
    assert oldest["open_s"] == 61
    assert [(row["partitions"], row["groups"], row["first_partition"]) for row in rows] == [
        (1, 0, "t-0"),
        (1, 1, "t-1"),
        (0, 0, None),
        (0, 0, None),
    ]


@pytest.mark.parametrize(("limit", "names"), [(1, [ID]), (3, [ID, "late", "used"])])
def test_what_a_list_has_no_room_for_is_left_out(limit: int, names: list[str]) -> None:
    rows = rows_of(transaction_list(busy().state, limit), "transactions")
    assert [row["transactional_id"] for row in rows] == names


def test_figures_tell_how_many_are_open_since_when_and_how_others_ended() -> None:
    figures = transaction_statistics(busy().state)
    assert (figures.ids, figures.open, figures.open_seconds_max, figures.begun) == (4, 2, 60.0, 3)
    assert figures.ended == {"committed": 1, "aborted": 0, "expired": 0, "fenced": 0, "terminated": 0}
    assert transaction_statistics(busy().state, 100_000).open_seconds_max == 90.0
    assert transaction_statistics(Cluster.started().state).open_seconds_max == 0


def test_a_topic_and_the_summary_tell_of_open_transactions() -> None:
    state = busy().state
    partitions = topic_details(state.topics[TOPIC], ())["partition_list"]
    assert isinstance(partitions, list)
    assert [(row["last_stable"], row["log_end"], row["open_transactions"]) for row in partitions] == [
        (0, 2, 1),
        (1, 1, 0),
    ]
    summary = state_summary(state)
    assert (summary["transactional_ids"], summary["transactions_open"], summary["transaction_version"]) == (4, 2, 2)
