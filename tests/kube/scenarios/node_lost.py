"""A node is gone with all that ran on it: its agent comes up elsewhere, and the node is used again when it is back."""

from collections.abc import Callable

from tests.kube.conftest import StartLoad
from tests.kube.release import Release


def test_a_lost_node(kafka: Release, start_load: StartLoad, note: Callable[[str], None]) -> None:
    with start_load(kafka, limit_s=15) as load:
        note(f"lost node: its agent was replaced after {kafka.lose_and_return_node():.0f} s")
    assert load.rebalances == 0
