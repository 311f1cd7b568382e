"""Ten flipped bits of each kind of stored object, in one agent's life; `make damage` runs thousands."""

from pathlib import Path

import pytest

from tests.damage.damages import OF_CLUSTERS, OF_TOPICS, Mode
from tests.damage.lives import Plan, Tally, sweep

SEED = 7


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("damage")
def test_damaged_objects_of_topics_end_nothing_and_are_never_served(tmp_path: Path) -> None:
    tally = Tally()
    sweep(tmp_path, Plan(flips=10, others=1), SEED, tally, OF_TOPICS)
    assert not tally.failures, f"seed {SEED}\n{tally.as_text()}"
    assert len(tally.tried) > len(OF_TOPICS)
    assert {kind for kind, mode in tally.tried if mode is Mode.SWAP} == set(OF_TOPICS)


@pytest.mark.timeout(600)
@pytest.mark.xdist_group("damage")
def test_damaged_objects_of_a_cluster_are_said_or_done_without(tmp_path: Path) -> None:
    """A life each, so few: the test of every flip is `make damage`."""
    tally = Tally()
    sweep(tmp_path, Plan(flips=2, others=1), SEED, tally, OF_CLUSTERS)
    assert not tally.failures, f"seed {SEED}\n{tally.as_text()}"
    assert {kind for kind, _ in tally.tried} == set(OF_CLUSTERS)
