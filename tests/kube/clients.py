"""Clients that write and read all the time, each in a thread: a producer of transactions, and members of a group.

Their settings are the defaults where these concern errors and retries: what a user would see is what is noted.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.kube.verdict import Position, Read
from tests.support.cluster.rolling_restart_load import NOTICES

TRANSACTION_TIMEOUT_MS = 300_000
"""Longer than any outage here: by default a transaction is aborted after a minute, which is no fault."""
COMMIT_SECONDS_MAX = 300.0
END_SECONDS_MAX = 120.0
ClientSettings = Mapping[str, str | int | float | bool]
"""Settings of librdkafka, as how to log in."""
RECORDS_PER_TRANSACTION = 6
ABORTED_EACH = 5
"""The fifth transaction is aborted, the tenth, and so on."""
PAUSE_S = 0.1


@dataclass(slots=True, kw_only=True)
class SteadyTransactions:
    """Writes one transaction after the other while its block lasts."""

    bootstrap: str
    topic: str
    partitions: int
    settings: ClientSettings = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)
    acknowledged: list[tuple[Position, str]] = field(default_factory=list)
    """Position and value of each record of a committed transaction."""
    without_offset: set[str] = field(default_factory=set)
    """Values of committed transactions whose acknowledgements had no offset: old repeats."""
    aborted: set[str] = field(default_factory=set)
    seconds: list[float] = field(default_factory=list)
    """How long each committed transaction took from its begin."""
    errors: list[str] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="steady transactions")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        assert self._thread is not None
        self._thread.join()

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": f"{self.topic}-writer",
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "log_level": 0,
                **self.settings,
            }
        )
        try:
            producer.init_transactions(COMMIT_SECONDS_MAX)
            number = 0
            while not self._stopping.wait(PAUSE_S):
                number += 1
                self._transaction(producer, number)
        except Exception as error:  # whatever ends the thread is a problem of the scenario
            self.errors.append(f"transaction: {error!r}")
            producer.purge()

    def _transaction(self, producer: Producer, number: int) -> None:
        delivered = _Delivered()
        began_s = time.monotonic()
        producer.begin_transaction()
        values = [f"{number}.{row}" for row in range(RECORDS_PER_TRANSACTION)]
        self.sent += values
        for row, value in enumerate(values):
            partition = (number + row) % self.partitions
            producer.produce(self.topic, value, partition=partition, on_delivery=delivered)
        if number % ABORTED_EACH == 0:
            producer.abort_transaction(COMMIT_SECONDS_MAX)
            self.aborted.update(values)
            return
        producer.commit_transaction(COMMIT_SECONDS_MAX)
        self.seconds.append(time.monotonic() - began_s)
        if delivered.count < len(values):
            self.errors.append(f"transaction {number} is committed with {delivered.count} of {len(values)} records")
        self.acknowledged += delivered.positions
        self.without_offset |= delivered.without_offset


@dataclass(slots=True)
class _Delivered:
    """The acknowledged records of one transaction."""

    positions: list[tuple[Position, str]] = field(default_factory=list)
    without_offset: set[str] = field(default_factory=set)

    @property
    def count(self) -> int:
        return len(self.positions) + len(self.without_offset)

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        if error is not None or partition is None or value is None:
            return
        if offset is None:
            self.without_offset.add(value.decode())
        else:
            self.positions.append(((partition, offset), value.decode()))


class GroupMember:
    """A consumer of a group, which reads from its creation on until `leave_group`."""

    def __init__(self, bootstrap: str, group: str, topic: str, settings: ClientSettings) -> None:
        self.reads: list[Read] = []
        self.partitions: frozenset[int] = frozenset()
        """Assigned now."""
        self.losses = 0
        """How often partitions were taken away before the end."""
        self.errors: list[str] = []
        self._topic = topic
        self._settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 1000,
            "log_level": 0,
            **settings,
        }
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name=group)
        self._thread.start()

    def stop_reading(self) -> None:
        """From now on it reads nothing, and whatever it loses is no loss."""
        self._leaving.set()

    def leave_group(self) -> None:
        self.stop_reading()
        self._thread.join(END_SECONDS_MAX)
        assert not self._thread.is_alive(), f"{self._thread.name}: a member does not end"

    def _run(self) -> None:
        consumer = Consumer(self._settings, error_cb=self._note)
        consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        try:
            while not self._leaving.is_set():
                for message in consumer.consume(500, timeout=0.2):
                    self._take(message)
            self._commit(consumer)
        except Exception as error:  # whatever ends the thread is a problem of the scenario
            self.errors.append(f"member: {error!r}")
        finally:
            consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        """Commit what was read, again while the client looks for the coordinator, as after the end of an agent."""
        deadline_s = time.monotonic() + END_SECONDS_MAX
        while True:
            try:
                committed = consumer.commit(asynchronous=False) or ()
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError._NO_OFFSET:  # all is committed
                    return
                if code not in (KafkaError._WAIT_COORD, KafkaError._TRANSPORT) or time.monotonic() > deadline_s:
                    raise
                threading.Event().wait(PAUSE_S)
            else:
                failed = [each for each in committed if each.error is not None]
                self.errors += [f"member: its last commit of partition {e.partition}: {e.error}" for e in failed]
                return

    def _take(self, message: Message) -> None:
        error, partition, offset, value = message.error(), message.partition(), message.offset(), message.value()
        if error is not None:
            self._note(error)
        elif partition is None or offset is None or value is None:
            self.errors.append("member: a record without partition, offset or value")
        else:
            self.reads.append(Read(time.monotonic(), (partition, offset), value.decode()))

    def _assigned(self, _consumer: Consumer, assigned: list[TopicPartition]) -> None:
        self.partitions |= {each.partition for each in assigned}

    def _revoked(self, _consumer: Consumer, revoked: list[TopicPartition]) -> None:
        self.partitions -= {each.partition for each in revoked}
        if not self._leaving.is_set():
            self.losses += 1

    def _note(self, error: KafkaError) -> None:
        if error.code() not in NOTICES:
            self.errors.append(f"member: {error}")


def leave_groups(members: Sequence[GroupMember]) -> None:
    """Let all members leave their groups. Each stops reading before the first one leaves: else the members that are
    left would get its partitions, and that would look like a rebalance of the scenario.
    """
    for member in members:
        member.stop_reading()
    for member in members:
        member.leave_group()


def committed_offsets(
    bootstrap: str, group: str, topic: str, partitions: int, settings: ClientSettings
) -> dict[int, int]:
    """The offset that a group has committed, by partition; without those of which it has committed none."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0, **settings})
    try:
        asked = [TopicPartition(topic, partition) for partition in range(partitions)]
        return {each.partition: each.offset for each in consumer.committed(asked, END_SECONDS_MAX) if each.offset >= 0}
    finally:
        consumer.close()


def read_all(bootstrap: str, topic: str, partitions: int, settings: ClientSettings) -> dict[Position, bytes]:
    """Values of all committed records of a topic, from its beginning to its end as it is now."""
    fixed = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({**fixed, "enable.partition.eof": True, "auto.offset.reset": "error", **settings})
    values: dict[Position, bytes] = {}
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        unread = set(range(partitions))
        deadline_s = time.monotonic() + END_SECONDS_MAX
        while unread:
            assert time.monotonic() < deadline_s, f"partitions {unread} of {topic} cannot be read to their ends"
            for message in consumer.consume(1000, timeout=0.2):
                error, partition, offset, value = (
                    message.error(),
                    message.partition(),
                    message.offset(),
                    message.value(),
                )
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    unread.discard(partition if partition is not None else -1)
                elif partition is not None and offset is not None and value is not None:
                    values[partition, offset] = value
    finally:
        consumer.close()
    return values
