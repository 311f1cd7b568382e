"""Agents of the commit that `deploy/previous` names and agents of this one serve a cluster together, under load.

Rule: it is what the lab's scenario `upgrade` does with images, by processes of this machine alone.
"""

import sys
from pathlib import Path

import pytest

from tests.kube.load import load
from tests.support.cluster.cluster import ClusterFactory
from tests.support.older_sources import extract
from tools.packaging.image import previous_commit
from tools.steps import ROOT

NAMES = ("a", "b", "c")
TEST_SECONDS_MAX = 900
"""Three rounds, each a minute on an idle machine."""


@pytest.fixture
def previous(tmp_path: Path) -> Path:
    """The sources of the commit."""
    return extract(previous_commit(), tmp_path / "previous")


def program(source: Path) -> tuple[str | Path, ...]:
    """The command line of Penstock from its sources."""
    return ("env", f"PYTHONPATH={source}", sys.executable, "-Pm", "penstock")


@pytest.mark.slow
@pytest.mark.timeout(TEST_SECONDS_MAX)
def test_an_upgrade_is_made_taken_back_and_made_again_under_load(clusters: ClusterFactory, previous: Path) -> None:
    cluster = clusters()
    agents = [cluster.start(name, program=program(previous)) for name in NAMES]
    bootstrap = ",".join(agent.bootstrap for agent in agents)
    for way, source in (("forth", ROOT), ("back", previous), ("again", ROOT)):
        with load(bootstrap, way, {}) as running:
            for name in NAMES:
                agent = cluster.agents[name]
                assert agent.process.stop() == 0, agent.process.stderr
                cluster.start(name, listen=agent.bootstrap, program=program(source))
                running.wait_for_records()
        print(f"{way}: longest acknowledgement {running.longest_ack_s:.1f} s, {running.rebalances} rebalances")
