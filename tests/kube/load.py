"""Clients at work while something happens to the cluster, and what became of their records.

An idempotent producer fills one topic, transactions fill another one. A group of two classic members reads the first,
one of two members of the next generation (KIP-848) the second.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.kube.clients import (
    ClientSettings,
    GroupMember,
    SteadyTransactions,
    committed_offsets,
    leave_groups,
    read_all,
)
from tests.kube.verdict import TopicHistory, problems
from tests.support.cluster.conditions import wait_until
from tests.support.cluster.rolling_restart_load import SteadyProducer

PARTITIONS = 6
RECORDS_PER_SECOND = 50
MEMBERS = 2
CALM_RECORDS = 100
"""So many are acknowledged, and as many transactions committed as members, before a scenario begins."""
START_SECONDS_MAX = 60.0
READ_SECONDS_MAX = 120.0
NEXT_GENERATION = {"group.protocol": "consumer"}


@dataclass(slots=True)
class Load:
    """The clients of one scenario. After its block: `longest_ack_s` and the like."""

    producer: SteadyProducer
    transactions: SteadyTransactions
    members: dict[str, list[GroupMember]]
    """By topic."""
    began_s: float

    @property
    def longest_ack_s(self) -> float:
        """The longest time from handing a record to the idempotent producer until it was acknowledged."""
        return max(self.producer.latencies_s, default=0.0)

    @property
    def longest_transaction_s(self) -> float:
        return max(self.transactions.seconds, default=0.0)

    @property
    def rebalances(self) -> int:
        """How often a member lost partitions."""
        return sum(member.losses for members in self.members.values() for member in members)

    @property
    def errors(self) -> list[str]:
        """Everything that a user of the clients would have to deal with."""
        members = (member for members in self.members.values() for member in members)
        return [*self.producer.errors, *self.transactions.errors, *(text for each in members for text in each.errors)]

    @property
    def acknowledged_count(self) -> int:
        transactions = self.transactions
        return self.producer.acknowledged_count + len(transactions.acknowledged) + len(transactions.without_offset)

    def wait_for_records(self, count: int = CALM_RECORDS) -> None:
        """Return when so many more records are acknowledged to the idempotent producer, and a transaction is."""
        records, transactions = self.producer.acknowledged_count + count, len(self.transactions.seconds) + 1

        def are_there() -> bool:
            assert self.errors == [], "\n".join(self.errors)
            return self.producer.acknowledged_count >= records and len(self.transactions.seconds) >= transactions

        wait_until(are_there, "acknowledgements", seconds_max=START_SECONDS_MAX)


@contextmanager
def load(bootstrap: str, name: str, settings: ClientSettings) -> Iterator[Load]:
    """Clients of two topics with a scenario's name, until the block ends. Fails if any record is not there once and in
    its order, or if a client got an error. The block begins when all of them are at work.
    """
    plain, transactional = f"{name}-plain", f"{name}-transactional"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **settings})
    for created in admin.create_topics([NewTopic(topic, PARTITIONS) for topic in (plain, transactional)]).values():
        created.result(30)
    protocols: dict[str, ClientSettings] = {plain: {}, transactional: NEXT_GENERATION}
    with ExitStack() as stack:
        members = {
            topic: [GroupMember(bootstrap, topic, topic, {**settings, **protocol}) for _ in range(MEMBERS)]
            for topic, protocol in protocols.items()
        }
        stack.callback(leave_groups, [member for group in members.values() for member in group])
        with ExitStack() as writing:
            producer = SteadyProducer(
                bootstrap=bootstrap,
                topic=plain,
                partitions=PARTITIONS,
                settings={"enable.idempotence": True, **settings},
                rate=RECORDS_PER_SECOND,
            )
            transactions = SteadyTransactions(
                bootstrap=bootstrap, topic=transactional, partitions=PARTITIONS, settings=settings
            )
            writing.enter_context(producer)
            writing.enter_context(transactions)
            _wait_for_assignments(members)
            # Members that came first had all partitions, and gave some up: that was no rebalance of the scenario.
            for member in (each for group in members.values() for each in group):
                member.losses = 0
            running = Load(producer, transactions, members, time.monotonic())
            running.wait_for_records()
            yield running
            running.wait_for_records()
        histories = [_plain_history(running, plain), _transactional_history(running, transactional)]
        for history in histories:
            _wait_for_reads(history, members[history.topic])
        for topic, group in members.items():
            _wait_for_commits(bootstrap, topic, group, {**settings, **protocols[topic]})
    errors = running.errors
    if not producer.errors and producer.acknowledged_count != producer.sent:
        errors.append(f"{producer.sent} records were sent, and {producer.acknowledged_count} answers came")
    for history in histories:
        topic, is_plain = history.topic, history.topic == plain
        history.reads = [
            [each._replace(value=_plain_value(each.position[0], each.value)) for each in member.reads]
            if is_plain
            else member.reads
            for member in members[topic]
        ]
        history.rebalances = sum(member.losses for member in members[topic])
        history.committed = committed_offsets(bootstrap, topic, topic, PARTITIONS, {**settings, **protocols[topic]})
        history.stored = {
            position: _plain_value(position[0], value.decode()) if is_plain else value.decode()
            for position, value in read_all(bootstrap, topic, PARTITIONS, settings).items()
        }
        errors += problems(history)
    assert errors == [], "\n".join(errors)


def _wait_for_assignments(members: dict[str, list[GroupMember]]) -> None:
    def are_shared() -> bool:
        return all(
            all(member.partitions for member in group) and sum(len(member.partitions) for member in group) == PARTITIONS
            for group in members.values()
        )

    wait_until(are_shared, "partitions for all members", seconds_max=START_SECONDS_MAX)


def _wait_for_reads(history: TopicHistory, members: Sequence[GroupMember]) -> None:
    """Return when the members have read all that was acknowledged, or time is over: `problems` names the rest."""

    expected = {position for position, _value in history.acknowledged}

    def have_read() -> bool:
        return expected <= {read.position for member in members for read in tuple(member.reads)}

    with suppress(AssertionError):
        wait_until(have_read, "all records", seconds_max=READ_SECONDS_MAX)


def _wait_for_commits(bootstrap: str, topic: str, members: Sequence[GroupMember], settings: ClientSettings) -> None:
    """Return when a group that lost partitions has committed all that it read, or time is over: `problems` names the
    rest. A member that loses a partition may not have committed it; the next one reads and commits it again.
    """
    if not any(member.losses for member in members):
        return  # they commit when they leave

    def have_committed() -> bool:
        committed = committed_offsets(bootstrap, topic, topic, PARTITIONS, settings)
        positions = (read.position for member in members for read in tuple(member.reads))
        return all(offset < committed.get(partition, 0) for partition, offset in positions)

    with suppress(AssertionError):
        wait_until(have_committed, "all commits", seconds_max=READ_SECONDS_MAX)


def _plain_history(running: Load, topic: str) -> TopicHistory:
    producer = running.producer
    return TopicHistory(
        topic,
        sent=[_plain_value(number % PARTITIONS, number // PARTITIONS) for number in range(producer.sent)],
        acknowledged=[
            ((partition, offset), _plain_value(partition, number))
            for partition, rows in producer.acknowledged.items()
            for offset, number in rows
        ],
        without_offset={_plain_value(partition, number) for partition, number in producer.without_offset},
    )


def _transactional_history(running: Load, topic: str) -> TopicHistory:
    transactions = running.transactions
    return TopicHistory(
        topic,
        sent=transactions.sent,
        acknowledged=transactions.acknowledged,
        without_offset=transactions.without_offset,
        aborted=transactions.aborted,
    )


def _plain_value(partition: int, number: int | str) -> str:
    """A value that is unique in the topic: each partition has the numbers from 0 on."""
    return f"{partition}.{number}"
