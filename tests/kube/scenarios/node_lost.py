"""A node is gone with all that ran on it: its agent comes up elsewhere, and the node is used again when it is back."""

from collections.abc import Callable

from tests.kube.conftest import StartLoad
from tests.kube.release import Release

REPLACED_SECONDS_MAX = 60.0
"""On a machine where nothing else runs."""


def test_a_lost_node(kafka: Release, start_load: StartLoad, note: Callable[[str], None], *, is_idle: bool) -> None:
    with start_load(kafka, limit_s=15) as load:
        seconds = kafka.lose_and_return_node()
        note(f"lost node: its agent was replaced after {seconds:.0f} s")
    assert load.rebalances == 0
    assert seconds <= REPLACED_SECONDS_MAX or not is_idle
