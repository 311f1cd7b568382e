"""Kafka's transactional copiers move every record once, while they and the agents are killed.

Rule: a copier writes each record to the partition that it came from, so what is read of the target at read_committed,
while the copiers run and once more after them, is each source partition's records in their order: none is missing,
repeated or out of place. Kafka has this as a system test (tests/kafkatest/tests/core/transactions_test.py).
"""

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.clients.committed_output import CommittedOutput
from tests.support.cluster.cluster import Cluster, ClusterFactory
from tests.support.processes import Process
from tests.support.services.java import KAFKA_LOGGING

AGENTS: Final = ("a", "b", "c")
SETTINGS: Final = {"group.initial.rebalance.delay.ms": "0"}
COPIER: Final = "org.apache.kafka.tools.TransactionalMessageCopier"
PARTITIONS: Final = 2
TRANSACTION_TIMEOUT_MS: Final = 20_000
"""Longer than a partition is away whose agent was killed: a copier that is told that it is fenced gives up."""
SECONDS_MAX: Final = 150.0


@dataclass(slots=True, kw_only=True)
class Copiers:
    """A copier for each partition of the source, or as many members of one group."""

    java: tuple[str, ...]
    bootstrap: str
    folder: Path
    stack: ExitStack
    transaction_records: int
    is_group: bool
    processes: dict[int, Process] = field(default_factory=dict[int, Process])

    def start(self, number: int) -> None:
        words = [
            "--broker-list",
            self.bootstrap,
            "--transactional-id",
            f"copier-{number}",
            "--consumer-group",
            "copiers",
        ]
        words += ["--input-topic", "source", "--input-partition", str(number), "--output-topic", "target"]
        words += ["--transaction-size", str(self.transaction_records), "--enable-random-aborts"]
        words += ["--transaction-timeout", str(TRANSACTION_TIMEOUT_MS)]
        words += ["--group-mode", "--use-group-metadata"] if self.is_group else []
        copier = Process([*self.java, COPIER, *words], self.folder, name=f"copier-{number}")
        self.processes[number] = self.stack.enter_context(copier)

    def kill(self, number: int) -> None:
        """Kill a copier, and start it again."""
        self.processes[number].kill()
        self.start(number)

    def check_alive(self) -> None:
        """No copier gave up; those that had all copied may have ended."""
        for number, process in self.processes.items():
            assert process.is_running or process.wait_ended() == 0, f"copier {number} failed: {process.stderr[-3000:]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is copied in how large transactions, and how often a copier and an agent are killed meanwhile."""

    records: int
    transaction_records: int
    kills: int
    is_group: bool

    @property
    def sources(self) -> dict[str, list[str]]:
        """The records of the source's partitions, whose keys name their partition."""
        return {str(place): [str(n) for n in range(place, self.records, PARTITIONS)] for place in range(PARTITIONS)}


def fill(bootstrap: str, plan: Plan) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for made in admin.create_topics([NewTopic(name, PARTITIONS) for name in ("source", "target")]).values():
        made.result(SECONDS_MAX)
    settings = {"enable.idempotence": True, "linger.ms": 20, "queue.buffering.max.messages": 200_000, "log_level": 0}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for place, values in plan.sources.items():
        for value in values:
            producer.produce("source", value, key=place, partition=int(place))
    assert producer.flush(SECONDS_MAX) == 0


def copy(plan: Plan, cluster: Cluster, java: Path, kafka_jars: Path, folder: Path) -> None:
    """Carries out a plan on three agents, and holds the target against the source."""
    bootstrap = ",".join(cluster.start(name, settings=SETTINGS).bootstrap for name in AGENTS)
    fill(bootstrap, plan)
    logging = folder / "log4j2.properties"
    logging.write_text(KAFKA_LOGGING, encoding="utf-8")
    options = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={logging}")
    output = CommittedOutput(bootstrap=bootstrap, topic="target", partitions=PARTITIONS)
    with ExitStack() as stack:
        copiers = Copiers(
            java=(str(java), *options, "-cp", f"{kafka_jars}/*"),
            bootstrap=bootstrap,
            folder=folder,
            stack=stack,
            transaction_records=plan.transaction_records,
            is_group=plan.is_group,
        )
        for number in range(PARTITIONS):
            copiers.start(number)
        for turn in range(plan.kills):
            output.wait_for(plan.records * (turn + 1) // (plan.kills + 2), seconds_max=SECONDS_MAX)
            copiers.check_alive()
            agent = cluster.agents[AGENTS[turn % len(AGENTS)]]
            agent.process.kill()
            copiers.kill(turn % PARTITIONS)
            cluster.start(agent.name, listen=agent.bootstrap, settings=SETTINGS)
        output.wait_for(plan.records, seconds_max=SECONDS_MAX)
        copiers.check_alive()
        output.close()
    assert output.by_key == plan.sources
    again = CommittedOutput(bootstrap=bootstrap, topic="target", partitions=PARTITIONS)
    again.wait_for(plan.records, seconds_max=SECONDS_MAX)
    again.close()
    assert again.by_key == plan.sources


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("is_group", [False, True], ids=["assigned partitions", "a group"])
def test_100000_records_are_copied_once_whatever_is_killed(
    clusters: ClusterFactory, java: Path, kafka_jars: Path, tmp_path: Path, is_group: bool
) -> None:
    plan = Plan(records=100_000, transaction_records=500, kills=6, is_group=is_group)
    copy(plan, clusters(), java, kafka_jars, tmp_path)
