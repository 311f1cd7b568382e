"""Drawn requests find no bug: a part of `make requests` that is quick enough for every run."""

import json
import subprocess

import pytest

from tests.requests.sweep import OPTIONS, SETTINGS, sweep
from tests.support.cluster.cluster import ClusterFactory
from tests.support.services.local_services import PENSTOCK, PenstockFactory

SEED = 1


def test_drawn_requests_raise_nothing_and_leave_a_clean_cluster(penstock: PenstockFactory) -> None:
    broker = penstock(options=OPTIONS, settings=SETTINGS)
    print(sweep([broker], seed=SEED, requests=1_500))
    assert broker.process.stop() == 0
    again = penstock(data=broker.data, options=OPTIONS)
    assert again.process.stop() == 0
    done = subprocess.run(
        [PENSTOCK, "audit", "--data-dir", broker.data, "--json"], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, json.loads(done.stdout)["disagreements_count"]) == (0, 0), done.stdout + done.stderr


@pytest.mark.slow
def test_drawn_requests_at_two_agents_of_a_cluster_raise_nothing(clusters: ClusterFactory) -> None:
    cluster = clusters()
    agents = [cluster.start(name, options=OPTIONS, settings=SETTINGS) for name in "ab"]
    print(sweep(agents, seed=SEED, requests=10_000))
