"""A few flipped bits of each kind of stored object, in one agent's life; `make damage` runs thousands."""

import random
from pathlib import Path

import pytest

from tests.damage.cluster_lives import sweep_etcd, sweep_intake
from tests.damage.damages import OF_CLUSTERS, OF_TOPICS, WITHOUT_JOURNAL, Kind, Mode
from tests.damage.lives import Plan, Tally, sweep
from tests.damage.table_reads import OF_TABLES, sweep_tables
from tests.damage.watched_lives import WATCHED, sweep_watched

SEED = 7


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("damage")
@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(frozenset(OF_TOPICS) - WITHOUT_JOURNAL, id="a journal"),
        pytest.param(frozenset(OF_TOPICS) & WITHOUT_JOURNAL, id="packs", marks=pytest.mark.slow),
    ],
)
def test_damaged_objects_of_topics_end_nothing_and_are_never_served(tmp_path: Path, kinds: frozenset[Kind]) -> None:
    tally = Tally()
    sweep(tmp_path, Plan(flips=5, others=1), SEED, tally, kinds)
    assert not tally.failures, f"seed {SEED}\n{tally.as_text()}"
    assert len(tally.tried) > len(kinds)
    assert {kind for kind, mode in tally.tried if mode is Mode.SWAP} == kinds


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("damage")
def test_readers_of_a_damaged_table_get_the_right_rows_or_an_error(tmp_path: Path) -> None:
    """Where what tables consist of has no checksum, 2 of 100 flips in a manifest leave rows out in silence."""
    tally = Tally()
    sweep_tables(tmp_path, Plan(flips=10, others=0), random.Random(SEED), tally, OF_TABLES)
    assert not tally.failures, f"seed {SEED}\n{tally.as_text()}"
    assert {kind for kind, _ in tally.tried} == set(OF_TABLES)


@pytest.mark.slow  # a minute of a core: each try is the life of an agent
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("damage")
def test_damaged_objects_of_a_cluster_are_said_or_done_without(tmp_path: Path) -> None:
    """A life each, so few: the test of every flip is `make damage`."""
    tally = Tally()
    sweep(tmp_path, Plan(flips=1, others=1, is_in_turn=True), SEED, tally, OF_CLUSTERS)
    assert not tally.failures, f"seed {SEED}\n{tally.as_text()}"
    assert {kind for kind, _ in tally.tried} == set(OF_CLUSTERS)
    assert {mode for _, mode in tally.tried} == set(Mode)


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("damage")
def test_damaged_objects_of_a_bucket_and_values_in_etcd_are_said_or_done_without(tmp_path: Path) -> None:
    """Objects are damaged under an agent that has put them; values one in each life."""
    tally = Tally()
    sweep_intake(tmp_path / "bucket", Plan(flips=10, others=1), random.Random(SEED), tally)
    sweep_etcd(tmp_path / "etcd", Plan(flips=5, others=1, is_in_turn=True), random.Random(SEED), tally)
    assert not tally.failures, f"seed {SEED}\n{tally.as_text()}"
    assert {kind for kind, _ in tally.tried} == {Kind.OBJECT, Kind.ETCD}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("damage")
def test_objects_that_are_damaged_under_an_agent_are_never_served(tmp_path: Path) -> None:
    tally = Tally()
    sweep(tmp_path, Plan(flips=10, others=1, is_running=True), SEED, tally, OF_TOPICS)
    assert not tally.failures, f"seed {SEED}\n{tally.as_text()}"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("damage")
def test_objects_of_a_cluster_that_are_damaged_under_an_agent_end_nothing(tmp_path: Path) -> None:
    """Longer than the half minute after which an agent looks whose its bucket is."""
    tally = Tally()
    sweep_watched(tmp_path, Plan(flips=10, others=1, is_running=True), random.Random(SEED), tally, WATCHED)
    assert not tally.failures, f"seed {SEED}\n{tally.as_text()}"
    assert set(tally.tried) == {(kind, mode) for kind in WATCHED for mode in Mode if mode is not Mode.RENAME}
