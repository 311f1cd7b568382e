"""Safety rule S3: of three real agents the one whose state differs stops serving, alone, and nothing is lost by it."""

import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import tests
from tests.faults.load import Load, consume_all
from tests.support.cluster.cluster import ClusterAgent, ClusterFactory
from tests.support.modified_agents.diverging_agent import TRIGGER

DIVERGING = (sys.executable, Path(tests.__path__[0]) / "support" / "modified_agents" / "diverging_agent.py")
OPTIONS = {"snapshot-entries": "20"}
PARTITIONS = 2
SECONDS_MAX = 90.0


def create_topic(agent: ClusterAgent, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": agent.bootstrap})
    admin.create_topics([NewTopic(name, partitions)])[name].result(30)


def comparisons(agent: ClusterAgent, outcome: str) -> float:
    with urlopen(f"http://{agent.http}/metrics", timeout=30) as response:
        text = response.read().decode()
    name = f'penstock_corruption_checks_total{{outcome="{outcome}"}} '
    return sum(float(line.removeprefix(name)) for line in text.splitlines() if line.startswith(name))


def wait_compared(agent: ClusterAgent) -> None:
    agent.process.wait_until(lambda: comparisons(agent, "agreed") > 0, "a comparison", seconds_max=SECONDS_MAX)


@pytest.mark.slow  # simulated worlds show the same: tests/simulation/test_diverging.py
def test_s3_an_agent_that_computes_another_state_stops_alone_and_nothing_acknowledged_is_lost(
    clusters: ClusterFactory,
) -> None:
    cluster = clusters()
    sound = [cluster.start(name, options=OPTIONS) for name in ("a", "b")]
    wrong = cluster.start("c", options=OPTIONS, program=DIVERGING)
    agents = [*sound, wrong]
    create_topic(wrong, "load", PARTITIONS)
    with Load(bootstrap=",".join(agent.bootstrap for agent in agents), topic="load", partitions=PARTITIONS) as load:
        for agent in agents:
            wait_compared(agent)
        create_topic(sound[0], TRIGGER, 1)
        assert wrong.process.wait_ended(seconds_max=SECONDS_MAX) == 1
        load.wait_acknowledged(100)
    told = wrong.process.stderr.splitlines()[-1]
    assert "the state digest of this agent differs from the majority: at position" in told
    assert "Start it again" in told
    assert "docs/operations/troubleshooting.md" in told
    for agent in sound:
        assert agent.process.is_running
        assert comparisons(agent, "others_differ") == 1
        assert "the state digest of another agent differs from the majority" in agent.process.stderr
    again = cluster.start("c", options=OPTIONS)
    for agent in (*sound, again):
        found = consume_all(agent.bootstrap, "load", PARTITIONS)
        for partition, records in found.items():
            assert [(offset, int(key)) for offset, key, _ in records] == [(n, n) for n in range(load.sent[partition])]
        for (partition, offset), number in load.acknowledged.items():
            assert int(found[partition][offset][1]) == number
