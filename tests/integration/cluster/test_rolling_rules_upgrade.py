"""A rolling change of apply's rules under load keeps one state; the new rules act once all agents know them (S3)."""

import json
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import tests
from coordinator.commands.rules import RULES_NEWEST
from tests.faults.load import Load, consume_all
from tests.support.cluster.cluster import Cluster, ClusterAgent, ClusterFactory
from tests.support.processes import stand_still

FUTURE = (sys.executable, Path(tests.__path__[0]) / "support" / "modified_agents" / "newer_rules_agent.py")
RULES_FUTURE = RULES_NEWEST + 1
"""What `FUTURE` knows."""
HELD, NOT_HELD = {"PENSTOCK_HOLD_RULES": "true"}, {"PENSTOCK_HOLD_RULES": "false"}
PARTITIONS = 2
COMMON_POSITIONS = 3
SAMPLES_MAX = 2_000


def state_of(agent: ClusterAgent) -> dict[str, str | int]:
    with urlopen(f"http://{agent.http}/api/state", timeout=30) as response:
        told: dict[str, str | int] = json.load(response)
        return told


def assert_one_state(agents: Iterable[ClusterAgent], *, rules: int) -> None:
    """Every agent computes the same digest, at several positions at which all of them were seen."""
    seen: dict[str | int, dict[str, str | int]] = defaultdict(dict)
    agents = list(agents)
    common = 0
    for _ in range(SAMPLES_MAX):
        for agent in agents:
            told = state_of(agent)
            assert told["rules_version"] == rules
            seen[told["position"]][agent.name] = told["digest"]
        common = sum(len(digests) == len(agents) for digests in seen.values())
        if common >= COMMON_POSITIONS:
            break
    assert common, f"no position at which all agents were seen, of {len(seen)}"
    for position, digests in seen.items():
        assert len(set(digests.values())) == 1, f"at position {position} agents differ: {digests}"


def partitions_of_new_topic(agent: ClusterAgent, name: str) -> int:
    admin = AdminClient({"bootstrap.servers": agent.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS)])[name].result(30)
    return len(admin.list_topics(name, timeout=30).topics[name].partitions)


def upgraded(cluster: Cluster, agent: ClusterAgent) -> ClusterAgent:
    assert agent.process.stop() == 0, agent.process.stderr
    return cluster.start(agent.name, listen=agent.bootstrap, program=FUTURE)


@pytest.mark.slow
def test_s3_a_rolling_change_of_rules_keeps_one_digest(clusters: ClusterFactory) -> None:
    cluster = clusters()
    agents = {name: cluster.start(name) for name in ("a", "b", "c")}
    bootstrap = ",".join(agent.bootstrap for agent in agents.values())
    assert partitions_of_new_topic(agents["a"], "load") == PARTITIONS
    with Load(bootstrap=bootstrap, topic="load", partitions=PARTITIONS) as load:
        for name in ("a", "b", "c"):
            load.wait_acknowledged(100)
            assert partitions_of_new_topic(agents[name], f"before-{name}") == PARTITIONS
            agents[name] = upgraded(cluster, agents[name])
            if name != "c":
                assert_one_state(agents.values(), rules=RULES_NEWEST)
        last = agents["c"].process
        last.wait_until(
            lambda: all(state_of(agent)["rules_version"] == RULES_FUTURE for agent in agents.values()),
            "the rules of the future",
        )
        load.wait_acknowledged(100)
        assert_one_state(agents.values(), rules=RULES_FUTURE)
        assert partitions_of_new_topic(agents["b"], "after") == PARTITIONS + 1
    assert_one_state(agents.values(), rules=RULES_FUTURE)
    for agent in agents.values():
        for partition, records in consume_all(agent.bootstrap, "load", PARTITIONS).items():
            assert [(offset, int(key)) for offset, key, _ in records] == [(n, n) for n in range(load.sent[partition])]
    old = cluster.start("d", is_waited_for=False).process
    assert old.wait_ended(seconds_max=60) != 0
    assert "upgrade" in old.stderr
    assert old.stdout == ""


def rules_of(agent: ClusterAgent) -> tuple[object, object, object]:
    """In force, known by all agents, and whether they are held."""
    with urlopen(f"http://{agent.http}/api/agents", timeout=30) as response:
        told = json.load(response)
    return told["rules_version"], told["rules_known_by_all"], told["rules_held_since_ms"] is not None


@pytest.mark.slow
def test_s3_an_upgrade_with_held_rules_is_taken_back_and_then_made(clusters: ClusterFactory) -> None:
    cluster = clusters()
    agents = {name: cluster.start(name) for name in ("a", "b")}
    for name, agent in agents.items():
        assert agent.process.stop() == 0, agent.process.stderr
        agents[name] = cluster.start(name, env=HELD, listen=agent.bootstrap, program=FUTURE)
    last = agents["b"]
    last.process.wait_until(lambda: rules_of(last) == (RULES_NEWEST, RULES_FUTURE, True), "the rules that all know")
    assert partitions_of_new_topic(last, "held") == PARTITIONS
    # Back to the older program, which carries the hold along.
    assert last.process.stop() == 0, last.process.stderr
    last = cluster.start("b", listen=last.bootstrap)
    assert rules_of(last) == (RULES_NEWEST, RULES_NEWEST, True)
    assert last.process.stop() == 0, last.process.stderr
    last = cluster.start("b", listen=last.bootstrap, program=FUTURE)
    assert rules_of(last) == (RULES_NEWEST, RULES_FUTURE, True)
    assert last.process.stop() == 0, last.process.stderr
    last = cluster.start("b", env=NOT_HELD, listen=last.bootstrap, program=FUTURE)
    last.process.wait_until(lambda: rules_of(last) == (RULES_FUTURE, RULES_FUTURE, False), "the rules of the future")
    assert partitions_of_new_topic(agents["a"], "raised") == PARTITIONS + 1
    old = cluster.start("c", is_waited_for=False).process
    assert old.wait_ended(seconds_max=60) != 0
    assert "an upgrade whose rules are in force cannot be taken back" in old.stderr


@pytest.mark.slow
def test_s3_an_agent_that_slept_through_a_change_of_rules_stops_serving(clusters: ClusterFactory) -> None:
    cluster = clusters()
    old = cluster.start("old").process
    future = cluster.start("future", program=FUTURE)
    assert state_of(future)["rules_version"] == RULES_NEWEST
    stand_still(old.pid)
    try:
        future.process.wait_until(
            lambda: state_of(future)["rules_version"] == RULES_FUTURE, "the rules of the future", seconds_max=60
        )
    finally:
        os.kill(old.pid, signal.SIGCONT)
    assert old.wait_ended(seconds_max=60) != 0
    assert f"this program knows {RULES_NEWEST}: upgrade it" in old.stderr
