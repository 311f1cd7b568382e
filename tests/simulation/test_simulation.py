"""Whole worlds, seed after seed: nothing acknowledged is lost, doubled, reordered or hidden, whatever goes wrong."""

import pytest

from tests.simulation.seeds import SEEDS, SEEDS_QUICK, assert_sound, verdict_of
from tests.simulation.world import run

SEEDS_PER_TEST = 20


@pytest.mark.parametrize(
    "first",
    [
        first if first <= SEEDS_QUICK else pytest.param(first, marks=pytest.mark.slow)
        for first in range(1, SEEDS + 1, SEEDS_PER_TEST)
    ],
)
def test_every_seed_is_sound(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        assert_sound(verdict_of(seed))


def test_a_static_members_place_is_that_of_whose_request_came_last() -> None:
    """Also where that is the program before it, whose request an agent took up late: its auditor has to know."""
    assert not run(148).violations


def test_the_worlds_are_not_idle() -> None:
    """A harness that lets nothing happen would find nothing."""
    verdicts = [verdict_of(seed) for seed in (*range(1, 13), 51, 69, 93)]
    happened = {kind for verdict in verdicts for kind in verdict.counts}
    assert {
        "AdvanceLogStart",
        "ApplyRetention",
        "CommitChunks",
        "ReplaceChunks",
        "DeleteTopic",
        "EndSession",
        "ForgetObjects",
        "acknowledged",
        "crashes",
        "deleted",
        "deletes records",
        "lease gone",
        "out of range",
        "read",
        "recovered",
        "refuses to serve",
        "refused",
        "repeat recognised",
        "resumes",
        "trimmed",
    } <= happened
    assert all(verdict.records_read > 0 for verdict in verdicts)
