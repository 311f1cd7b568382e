"""Members of consumer groups, by several client libraries, each in a thread of its own.

Rule: a member polls all the time, keeps what it read and what it was assigned, and commits what it read; it knows
nothing of the others. `stop` lets it leave its group.
"""

import asyncio
import itertools
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.errors import KafkaError
from confluent_kafka import Consumer, KafkaException

from tests.support.processes import Process, provided
from tests.support.services.java import JavaProgram
from tools.go_clients import go_client

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # this library reads its own files in a deprecated way
    import kafka
    import kafka.errors

_program_numbers = itertools.count()
SECONDS_MAX = 60.0
POLL_SECONDS = 0.1
SESSION_MS = 45_000
"""The default of Java and librdkafka; where it is no longer than an agent's lease, members give up on coordinators."""
HEARTBEAT_MS = 500


class Place(Protocol):
    """A partition, as Python's libraries name them."""

    partition: int


class Member:
    """One member. What the thread finds is only ever added to, so that others may look at any time."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.bootstrap, self.group, self.topic = bootstrap, group, topic
        self.read: list[tuple[int, int]] = []
        """Partition and offset of every record, in the order of coming."""
        self.partitions: frozenset[int] = frozenset()
        """Assigned now."""
        self.assignments_count = 0
        self.losses: list[int] = []
        """Partitions that were taken away, in order."""
        self.error: Exception | None = None
        self._is_leaving = threading.Event()
        self._thread = threading.Thread(target=self._main, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Leave the group."""
        self._is_leaving.set()
        self._thread.join(SECONDS_MAX)
        assert not self._thread.is_alive(), "a member does not end"
        if self.error is not None:
            raise self.error

    def _main(self) -> None:
        try:
            self._run()
        except Exception as error:
            self.error = error

    def _run(self) -> None:
        raise NotImplementedError

    def _assigned(self, partitions: set[int]) -> None:
        self.partitions = self.partitions | partitions
        self.assignments_count += 1

    def _revoked(self, partitions: set[int]) -> None:
        self.partitions = self.partitions - partitions
        self.losses += sorted(partitions)


class ConfluentMember(Member):
    """librdkafka, by whatever more configs."""

    def __init__(self, bootstrap: str, group: str, topic: str, **configs: str) -> None:
        super().__init__(bootstrap, group, topic)
        self._configs = {name.replace("_", "."): value for name, value in configs.items()}

    def _run(self) -> None:
        is_classic = self._configs.get("group.protocol") != "consumer"
        times = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS} if is_classic else {}
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **times,
                "topic.metadata.refresh.interval.ms": 1_000,
                **self._configs,
            }
        )
        consumer.subscribe(
            [self.topic],
            on_assign=lambda _, found: self._assigned({each.partition for each in found}),
            on_revoke=lambda _, found: self._revoked({each.partition for each in found}),
            on_lost=lambda _, found: self._revoked({each.partition for each in found}),
        )
        try:
            while not self._is_leaving.is_set():
                for message in consumer.consume(100, POLL_SECONDS):
                    if message.error() is None:
                        partition, offset = message.partition(), message.offset()
                        assert partition is not None
                        assert offset is not None
                        self.read.append((partition, offset))
                with suppress(KafkaException):  # nothing to commit, or a rebalance: it is committed later
                    consumer.commit(asynchronous=False)
        finally:
            consumer.close()


class KafkaPythonMember(Member):
    def _run(self) -> None:
        member = self

        class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_revoked(self, revoked: Iterable[Place]) -> None:
                member._revoked({each.partition for each in revoked})

            def on_partitions_assigned(self, assigned: Iterable[Place]) -> None:
                member._assigned({each.partition for each in assigned})

        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=1_000,
        )
        consumer.subscribe([self.topic], listener=Listener())
        try:
            while not self._is_leaving.is_set():
                for records in consumer.poll(timeout_ms=int(POLL_SECONDS * 1000)).values():
                    self.read += [(record.partition, record.offset) for record in records]
                with suppress(kafka.errors.KafkaError):
                    consumer.commit()
        finally:
            consumer.close()


class AioKafkaMember(Member):
    def _run(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        member = self

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_revoked(self, revoked: Iterable[Place]) -> None:
                member._revoked({each.partition for each in revoked})

            def on_partitions_assigned(self, assigned: Iterable[Place]) -> None:
                member._assigned({each.partition for each in assigned})

        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=1_000,
        )
        consumer.subscribe([self.topic], listener=Listener())
        await consumer.start()
        try:
            while not self._is_leaving.is_set():
                for records in (await consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))).values():
                    self.read += [(record.partition, record.offset) for record in records]
                with suppress(KafkaError):
                    await consumer.commit()
        finally:
            await consumer.stop()


class ProgramMember(Member):
    """A client in a process of its own, which says what `tests/integration/java/GroupMember.java` says."""

    def __init__(self, bootstrap: str, group: str, topic: str, command: Sequence[str | Path], folder: Path) -> None:
        super().__init__(bootstrap, group, topic)
        self._command = command
        self._folder = folder

    def _run(self) -> None:
        with Process(self._command, self._folder, name=f"member-{next(_program_numbers)}") as process:
            while not self._is_leaving.is_set():
                assert process.is_running, process.stderr
                self._take(process.read_lines())
                self._is_leaving.wait(POLL_SECONDS)
            process.stop()
            self._take(process.read_lines())

    def _take(self, lines: Iterable[str]) -> None:
        for line in lines:
            what, _, told = line.partition(" ")
            if what == "read":
                partition, offset = told.split(" ")
                self.read.append((int(partition), int(offset)))
            elif what in {"assigned", "revoked"}:
                partitions = {int(number) for number in told.split(",") if number}
                if what == "assigned":
                    self._assigned(partitions)
                else:
                    self._revoked(partitions)
            # Other lines are of the client's log, such as what Java's says of a rebalance that its end interrupts.


class JavaMember(ProgramMember):
    """Kafka's own client."""

    def __init__(
        self, bootstrap: str, group: str, topic: str, *configs: str, program: JavaProgram, folder: Path
    ) -> None:
        super().__init__(bootstrap, group, topic, program.command(bootstrap, group, topic, *configs), folder)


class FranzGoMember(ProgramMember):
    def __init__(self, bootstrap: str, group: str, topic: str, *, folder: Path) -> None:
        command: list[str | Path] = [provided(go_client("torture")), "member", bootstrap, group, topic]
        super().__init__(bootstrap, group, topic, command, folder)


MEMBERS: dict[str, Callable[[str, str, str], Member]] = {
    "confluent": ConfluentMember,
    "confluent-cooperative": lambda bootstrap, group, topic: ConfluentMember(
        bootstrap, group, topic, partition_assignment_strategy="cooperative-sticky"
    ),
    "kafka-python": KafkaPythonMember,
    "aiokafka": AioKafkaMember,
}


def wait_until(is_true: Callable[[], bool], what: str, *, seconds_max: float = SECONDS_MAX) -> None:
    """Return once it is; fail where it does not come true."""
    deadline_s = time.monotonic() + seconds_max
    while not is_true():
        assert time.monotonic() < deadline_s, f"{what} did not come within {seconds_max} s"
        threading.Event().wait(0.02)
