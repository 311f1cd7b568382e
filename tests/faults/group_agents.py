"""Three agents that are killed, paused and drained, and the topic that groups read through them.

Rule: an agent has the same address whenever it is started. Who coordinates a group is what an agent says that is there.
"""

import os
import signal
import struct

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from protocol.errors import ErrorCode
from tests.faults.consumers.line_protocol import value_of
from tests.support.cluster.cluster import Cluster
from tests.support.ports import free_port
from tests.support.processes import Process, stand_still
from tests.torture.direct_reader import direct_reader
from tests.torture.schedule import Act

AGENTS = ("a", "b", "c")
OPTIONS = {"archive-interval-s": "10", "drain-timeout-s": "5", "log-level": "info"}
TOPIC = "read"
PARTITIONS = 12
FIND_COORDINATOR = 10
PRODUCE_SECONDS_MAX = 120.0


class Agents:
    """Three agents, each at the address that it has whenever it is started."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ports = {name: free_port() for name in AGENTS}
        self.away: set[str] = set()
        for name in AGENTS:
            self.start(name)
        for name in AGENTS:
            self.wait_ready(name)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def process(self, name: str) -> Process:
        return self._cluster.agents[name].process

    def start(self, name: str) -> None:
        listen = f"127.0.0.1:{self._ports[name]}"
        self._cluster.start(name, options=OPTIONS, listen=listen, is_waited_for=False)
        self.away.discard(name)

    def wait_ready(self, name: str) -> None:
        process = self.process(name)
        process.wait_until(lambda: "ready kafka=" in process.stdout, f"agent {name}")

    def coordinator(self, group: str) -> str | None:
        """Who coordinates a group, as an agent that is there says; None while it says nobody does."""
        asked = next(name for name in AGENTS if name not in self.away)
        with direct_reader(f"127.0.0.1:{self._ports[asked]}", TOPIC, PARTITIONS) as reader:
            key = group.encode()
            answer = reader.ask(FIND_COORDINATOR, 0, struct.pack(">h", len(key)) + key)
        if ErrorCode(int(answer.error_code)) is not ErrorCode.none:
            return None
        return next(name for name, port in self._ports.items() if port == int(answer.port))

    def begin(self, act: Act, name: str) -> None:
        """Returns when the agent is away."""
        self.away.add(name)
        match act:
            case Act.KILL:
                self.process(name).kill()
            case Act.PAUSE:
                stand_still(self.process(name).pid)
            case Act.STOP:
                status = self.process(name).stop()
                assert status == 0, self.process(name).failed(f"a drained agent ended with {status}")

    def end(self, act: Act, name: str) -> None:
        """Returns when the agent serves."""
        if act is Act.PAUSE:
            os.kill(self.process(name).pid, signal.SIGCONT)
            self.away.discard(name)
        else:
            self.start(name)
            self.wait_ready(name)

    def go_on(self) -> None:
        """Whatever is paused can be ended only when it goes on."""
        for name in self.away:
            if self.process(name).is_running:
                os.kill(self.process(name).pid, signal.SIGCONT)

    def ended(self) -> list[str]:
        """What agents said last that ended although nobody ended them."""
        gone = [name for name in AGENTS if name not in self.away and not self.process(name).is_running]
        return [str(self.process(name).failed(f"agent {name} ended")) for name in gone]


def produce(bootstrap: str, records: int) -> list[int]:
    """Fill a new topic: every record's value says where it is. The ends of the partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, config={"retention.ms": "-1"})]).values():
        future.result(60)
    errors: list[KafkaError] = []
    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20, "log_level": 0}
    producer = Producer(settings)
    for number in range(records):
        offset, partition = divmod(number, PARTITIONS)
        while True:
            try:
                producer.produce(
                    TOPIC,
                    value_of(partition, offset),
                    partition=partition,
                    on_delivery=lambda error, _: errors.append(error) if error is not None else None,
                )
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(PRODUCE_SECONDS_MAX) == 0
    assert errors == []
    return [(records - partition + PARTITIONS - 1) // PARTITIONS for partition in range(PARTITIONS)]
