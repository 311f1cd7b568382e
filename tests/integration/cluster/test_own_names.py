"""`--take-over-name`: an agent ends the session that holds its name, of a dead process or of one that goes on.

Rule: a producer writes meanwhile, and each of its records is there once, in order.
"""

import time

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from protocol.limits import LEDGER_SESSION_SECONDS
from tests.faults.load import Load, consume_all
from tests.support.cluster.cluster import ClusterAgent, ClusterFactory

TAKE_OVER = {"PENSTOCK_TAKE_OVER_NAME": "true"}
ENDED = "another session held this agent's name, and was ended"
WAITS = "another session holds this agent's name: waiting for it to end"
PARTITIONS = 2
RECORDS = 100


def load_of(agent: ClusterAgent, topic: str = "load") -> Load:
    admin = AdminClient({"bootstrap.servers": agent.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(30)
    return Load(bootstrap=agent.bootstrap, topic=topic, partitions=PARTITIONS)


def check_exactly_once(load: Load, agent: ClusterAgent) -> None:
    for partition, rows in consume_all(agent.bootstrap, load.topic, PARTITIONS).items():
        assert [int(key) for _, key, _ in rows] == list(range(load.sent[partition])), f"partition {partition}"


def test_an_agent_that_was_killed_does_not_wait_for_its_own_lease(clusters: ClusterFactory) -> None:
    cluster = clusters()
    agent = cluster.start("a", env=TAKE_OVER)
    assert ENDED not in agent.process.stderr
    with load_of(agent) as load:
        for _ in range(2):
            load.wait_acknowledged(RECORDS)
            agent.process.kill()
            began_s = time.monotonic()
            agent = cluster.start("a", listen=agent.bootstrap, env=TAKE_OVER)
            # A start that takes as long as the lease finds no session to end.
            assert ENDED in agent.process.stderr or time.monotonic() - began_s > LEDGER_SESSION_SECONDS
            assert WAITS not in agent.process.stderr
    check_exactly_once(load, agent)
    assert agent.process.stop() == 0


@pytest.mark.slow  # half a minute of a core; simulated worlds have such namesakes
def test_of_two_processes_under_one_name_the_newer_serves_and_the_older_waits(clusters: ClusterFactory) -> None:
    cluster = clusters()
    older = cluster.start("a", env=TAKE_OVER)
    with load_of(older) as load:
        load.wait_acknowledged(RECORDS)
        newer = cluster.start("a", env=TAKE_OVER)
        assert ENDED in newer.process.stderr
        older.process.wait_until(lambda: WAITS in older.process.stderr, "the older process waits")
        with load_of(newer, "other") as other:
            other.wait_acknowledged(RECORDS)
        assert WAITS not in newer.process.stderr
        assert ENDED not in older.process.stderr
        assert newer.process.stop() == 0
        load.wait_acknowledged(RECORDS)
    check_exactly_once(load, older)
    check_exactly_once(other, older)
    assert older.process.stop() == 0
