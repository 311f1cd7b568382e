"""Members of groups for tests: librdkafka's consumer in a thread, Java's in a process, of either protocol.

Rule: a member remembers every record that it read, by partition and offset, and what it has now; it commits by itself,
as its library does. What still runs is stopped after the test.
"""

import threading
from collections.abc import Iterable
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.support.cluster.conditions import wait_until
from tests.support.processes import Process
from tests.support.services.java import JavaProgram

SECONDS_MAX = 60.0
Read = tuple[int, int]
"""Partition and offset of a record."""


class Member:
    """A librdkafka consumer that polls in a thread until it is told to `leave`."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        name: str,
        *,
        topics: Iterable[str] | None = None,
        protocol: str = "consumer",
        instance: str | None = None,
        **configs: str,
    ) -> None:
        """`topics`: by default the one with the group's name. `protocol`: `consumer`, or a classic assignor's name."""
        self.name = name
        self.read: list[Read] = []
        self.has: frozenset[int] = frozenset()
        self.changes_count = 0
        """How often it was given or had to give up partitions."""
        self.errors: list[str] = []
        self._topics = [group] if topics is None else list(topics)
        self._is_leaving = threading.Event()
        self._settings: dict[str, str | int | bool] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": name,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 200,
            "topic.metadata.refresh.interval.ms": 1000,
            "log_level": 0,
            **configs,
        }
        if protocol == "consumer":
            self._settings["group.protocol"] = "consumer"
        else:
            self._settings |= {
                "partition.assignment.strategy": protocol,
                "heartbeat.interval.ms": 500,
                "session.timeout.ms": 10_000,
            }
        if instance is not None:
            self._settings["group.instance.id"] = instance
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def leave(self) -> None:
        """Commit, leave the group, and return when that is done. A static member leaves for a while."""
        self._is_leaving.set()
        self._thread.join(SECONDS_MAX)
        assert not self._thread.is_alive(), f"{self.name} does not end"

    def _run(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe(self._topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        try:
            while not self._is_leaving.is_set():
                message = consumer.poll(0.1)
                if message is None:
                    continue
                error = message.error()
                if error is not None:
                    self.errors.append(str(error))
                    continue
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                self.read.append((partition, offset))
        except KafkaException as error:
            self.errors.append(str(error))
        finally:
            consumer.close()

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.changes_count += 1
        given = frozenset(each.partition for each in partitions)
        # The consumer protocol and the cooperative one give what is new, the eager ones everything.
        self.has |= given

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.changes_count += 1
        self.has -= frozenset(each.partition for each in partitions)


class JavaMember:
    """A Java consumer in a process of its own."""

    def __init__(self, program: JavaProgram, bootstrap: str, group: str, folder: Path, *, protocol: str) -> None:
        """It reads the topic with the group's name. `protocol`: `consumer`, or a classic assignor's class."""
        self._stop = folder / "stop"
        folder.mkdir(parents=True)
        command = program.command(bootstrap, group, group, protocol, str(self._stop))
        self.process = Process(command, folder, name="java-member")
        self.process.__enter__()

    @property
    def read(self) -> list[Read]:
        rows = (line.split() for line in self.process.stdout.splitlines() if line.startswith("record "))
        return [(int(row[1]), int(row[2])) for row in rows if len(row) == 3]

    @property
    def has(self) -> frozenset[int]:
        told = [line for line in self.process.stdout.splitlines() if line.startswith("has")]
        return frozenset(map(int, told[-1].split()[1:])) if told else frozenset()

    def leave(self) -> None:
        """Leave the group, and return when that is done."""
        if self._stop.exists():
            return
        self._stop.touch()
        try:
            wait_until(lambda: "left" in self.process.stdout, "a Java member's departure")
        finally:
            self.process.__exit__(None, None, None)


AnyMember = Member | JavaMember


def shared_out(members: Iterable[AnyMember], partitions: int) -> bool:
    """Whether the members have all partitions, each one of them."""
    had = [index for member in members for index in member.has]
    return sorted(had) == list(range(partitions))
