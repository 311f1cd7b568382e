"""Stores and ledgers that reject, lie or are not the cluster's, by drawn worlds and by scripts.

That a world in which a rule does not hold is found out, `tests.simulation.mutations.rejections` proves.
"""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

from agent.lake.table_updates import TableUpdates
from coordinator.apply import producer_bounds
from coordinator.apply import transactions as apply_transactions
from coordinator.state.state import ClusterState, PartitionState
from iceberg_export.tables.edits import TableEdit
from protocol.types import TopicId
from tests.simulation.faults.fault_names import HARD_FAULTS
from tests.simulation.mutations import rejections as _entered  # noqa: F401
from tests.simulation.mutations.patches import patched
from tests.simulation.plan import draw
from tests.simulation.scripted_plans import SEED, calm_plan
from tests.simulation.seeds import SEEDS, assert_sound
from tests.simulation.world import Verdict, run

WORLDS_MIN = 3
WORLDS_MAX = 24
CONSEQUENCES = {"NoRoom", "StoreDenied", "ObjectsNotDeleted", "LedgerUnavailable"}


def drawn_seeds() -> Iterator[int]:
    """The seeds after SEEDS whose worlds have such faults."""
    return (seed for seed in range(SEEDS + 1, 20 * SEEDS) if set(HARD_FAULTS) & set(draw(random.Random(seed)).faults))


def test_every_world_with_such_faults_is_sound_and_none_is_idle() -> None:
    happened = Counter[str]()
    for worlds, seed in enumerate(islice(drawn_seeds(), WORLDS_MAX), start=1):
        verdict = run(seed)
        assert_sound(verdict)
        happened.update(verdict.counts)
        if worlds >= WORLDS_MIN and happened.keys() >= CONSEQUENCES:
            return
    raise AssertionError(f"{WORLDS_MAX} worlds never met {CONSEQUENCES - happened.keys()}")


# People change tables.


def test_tables_hold_what_people_were_told_they_changed() -> None:
    happened = Counter[str]()
    for seed in range(SEED, SEED + WORLDS_MAX):
        verdict = run(seed, calm_plan(table_editors=1))
        assert_sound(verdict)
        happened.update(verdict.counts)
        if {"edits a table", "begins a table again"} <= happened.keys():
            return
    raise AssertionError(f"{WORLDS_MAX} worlds never edited a table and began one again")


def test_an_edit_that_is_acknowledged_and_not_made_is_noticed() -> None:
    async def make(self: TableUpdates, topic_id: TopicId, edit: TableEdit) -> None:
        return

    with patched(TableUpdates, "make", make):
        verdicts = [run(seed, calm_plan(table_editors=1)) for seed in range(SEED, SEED + 2)]
    assert any("not one of" in violation for verdict in verdicts for violation in verdict.violations[:1])


# Safety rule S8: a producer's state is dropped for another one's.


@contextmanager
def one_producer_state_per_partition() -> Iterator[None]:
    with patched(producer_bounds, "PRODUCER_STATES_PER_PARTITION_MAX", 1):
        yield


@contextmanager
def drops_are_not_marked() -> Iterator[None]:
    """Nobody knows later that a producer's state went."""

    def note_dropped(state: ClusterState, partition: PartitionState) -> None:
        state.producers_dropped_count += 1

    with (
        patched(producer_bounds, "note_dropped", note_dropped),
        patched(apply_transactions, "note_dropped", note_dropped),
    ):
        yield


def verdict_of_crowded_partitions() -> Verdict:
    with one_producer_state_per_partition():
        return run(SEED, calm_plan(partitions=1, seconds=10.0))


def test_s8_producers_whose_states_go_for_each_other_go_on() -> None:
    """Nothing is lost and no agent changes, and one request is in flight, so nothing may be refused."""
    verdict = verdict_of_crowded_partitions()
    assert_sound(verdict)
    assert "refused" not in verdict.counts


def test_s8_were_drops_not_marked_producers_would_be_out_of_order() -> None:
    with drops_are_not_marked():
        verdict = verdict_of_crowded_partitions()
    assert verdict.counts["refused"] > 0
