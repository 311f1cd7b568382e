"""A transactional producer and its readers, request by request, each on the connection and in the version that a test
says.

Rule: nothing is repeated, remembered or looked up, unless the method's name says so. A connection goes to one agent; a
producer is told which id and epoch to use. So a late request is one that is sent late, and a repeat is one that is sent
twice. Versions 1-11 of Produce, and those of the others that go with them, are V1; later ones are V2 (KIP-890).
"""

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, Self
from uuid import UUID

from protocol.errors import ErrorCode
from protocol.wire import read_string
from tests.compat.protocol_diff.batches import batch
from tests.support.clients.committed_reader import PartitionReader
from tests.support.clients.kafka_requests import ANSWER_SECONDS_MAX, Broken, Entity, framed, read_answer, read_frame
from txn.isolation import IsolationLevel

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_FETCH = 0, 1, 2, 3, 9
FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN = 10, 22, 24, 25, 26
WRITE_TXN_MARKERS, TXN_OFFSET_COMMIT, DESCRIBE_TRANSACTIONS = 27, 28, 65
TIMEOUT = timedelta(seconds=20)
FETCH_BYTES = 1 << 20
LATEST = -1
BEFORE_TRANSACTIONAL_ID = 4 + 1 + 4 + 1 + 2
"""Of DescribeTransactions' answer: correlation id, tagged fields, throttle time, the array's length, error code."""
FIRST_WITH_TOPIC_IDS = 13
FIRST_OF_V2 = 12
COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
NONE = ErrorCode.none


class Producer(NamedTuple):
    """What a producer puts into its requests."""

    transactional_id: str
    producer_id: int = -1
    epoch: int = -1

    @property
    def next(self) -> "Producer":
        return self._replace(epoch=self.epoch + 1)


class Produced(NamedTuple):
    error_code: ErrorCode
    offset: int


class Ended(NamedTuple):
    """`producer`: as it is to go on; None where the version does not say."""

    error_code: ErrorCode
    producer: Producer | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """One generation of the protocol, as clients mix its versions. `adds`: partitions and groups are added first."""

    init: int
    produce: int
    end: int
    offsets: int
    adds: bool


V1 = Versions(init=4, produce=9, end=3, offsets=3, adds=True)
V2 = Versions(init=5, produce=12, end=5, offsets=5, adds=False)


class Connection:
    """One connection to one agent; `topic` is what its producers write to and its readers read."""

    def __init__(self, connection: socket.socket, topic: str, client_id: str | None = None) -> None:
        self._connection = connection
        self._client_id = client_id
        self.topic = topic

    def ask(self, api_key: int, version: int, values: Mapping[str, Any]) -> Entity:
        """The answer, as kio's entity. Raises `Broken` where the agent hangs up."""
        self.send(api_key, version, values)
        return self.receive(api_key, version)

    def send(self, api_key: int, version: int, values: Mapping[str, Any]) -> None:
        """Send a request whose answer is received later, or never."""
        try:
            self._connection.sendall(framed(api_key, version, values, self._client_id))
        except OSError as error:
            raise Broken(str(error)) from error

    def receive(self, api_key: int, version: int) -> Entity:
        return read_answer(read_frame(self._connection), api_key, version)

    def init(
        self, transactional_id: str, version: int = 4, *, producer: Producer | None = None, timeout: timedelta = TIMEOUT
    ) -> Ended:
        """InitProducerId, with the producer's id and epoch where it has one."""
        was = producer or Producer(transactional_id)
        told = self.ask(
            INIT_PRODUCER_ID,
            version,
            {
                "transactional_id": transactional_id,
                "transaction_timeout": timeout,
                "producer_id": was.producer_id,
                "producer_epoch": was.epoch,
            },
        )
        return Ended(told.error_code, Producer(transactional_id, told.producer_id, told.producer_epoch))

    def begun(self, transactional_id: str, *, timeout: timedelta = TIMEOUT) -> Producer:
        """A producer as it is after InitProducerId."""
        error_code, producer = self.init(transactional_id, timeout=timeout)
        assert error_code is NONE, error_code
        assert producer is not None
        return producer

    def add(self, producer: Producer, *partitions: int, version: int = 3) -> ErrorCode:
        """The first error of the partitions, 0 where none is named."""
        told = self.ask(
            ADD_PARTITIONS,
            version,
            {
                "v3_and_below_transactional_id": producer.transactional_id,
                "v3_and_below_producer_id": producer.producer_id,
                "v3_and_below_producer_epoch": producer.epoch,
                "v3_and_below_topics": [{"name": self.topic, "partitions": partitions or (0,)}],
                "transactional_id": producer.transactional_id,
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "topics": [{"name": self.topic, "partitions": partitions or (0,)}],
            },
        )
        rows = told.results_by_topic_v3_and_below[0].results_by_partition
        codes = [ErrorCode(int(row.partition_error_code)) for row in rows]
        return next((code for code in codes if code is not NONE), NONE)

    def add_offsets(self, producer: Producer, group: str, version: int = 3) -> ErrorCode:
        told = self.ask(ADD_OFFSETS, version, {**_asked_by(producer), "group_id": group})
        return ErrorCode(int(told.error_code))

    def commit_offsets(
        self, producer: Producer, group: str, offsets: Mapping[int, int], version: int = 3
    ) -> list[ErrorCode]:
        """TxnOffsetCommit of nobody in particular: the agent has to be the group's coordinator."""
        rows = [
            {"partition_index": index, "committed_offset": offset, "committed_metadata": None}
            for index, offset in offsets.items()
        ]
        topics = [{"name": self.topic, "partitions": rows}]
        told = self.ask(TXN_OFFSET_COMMIT, version, {**_asked_by(producer), "group_id": group, "topics": topics})
        return [ErrorCode(int(row.error_code)) for row in told.topics[0].partitions]

    def produce(
        self,
        producer: Producer,
        sequence: int,
        *values: bytes,
        partition: int = 0,
        version: int = 9,
        timeout: timedelta = TIMEOUT,
    ) -> Produced:
        """One batch of the producer's transaction."""
        self.send_batch(producer, sequence, *values, partition=partition, version=version, timeout=timeout)
        return self.receive_produced(version)

    def send_batch(
        self,
        producer: Producer,
        sequence: int,
        *values: bytes,
        partition: int = 0,
        version: int = 9,
        timeout: timedelta = TIMEOUT,
    ) -> None:
        """The same without waiting for the answer."""
        records = batch(list(values), pid=producer.producer_id, epoch=producer.epoch, seq=sequence, transactional=True)
        name = {"topic_id": self.topic_id()} if version >= FIRST_WITH_TOPIC_IDS else {"name": self.topic}
        body = {
            "transactional_id": producer.transactional_id,
            "acks": -1,
            "timeout": timeout,
            "topic_data": [{**name, "partition_data": [{"index": partition, "records": records}]}],
        }
        self.send(PRODUCE, version, body)

    def receive_produced(self, version: int = 9) -> Produced:
        told = self.receive(PRODUCE, version).responses[0].partition_responses[0]
        return Produced(ErrorCode(int(told.error_code)), int(told.base_offset))

    def end(self, producer: Producer, *, is_commit: bool = True, version: int = 3) -> Ended:
        self.send_end(producer, is_commit=is_commit, version=version)
        return self.receive_end(producer, version)

    def send_end(self, producer: Producer, *, is_commit: bool = True, version: int = 3) -> None:
        """EndTxn, without waiting for the answer."""
        self.send(END_TXN, version, {**_asked_by(producer), "committed": is_commit})

    def receive_end(self, producer: Producer, version: int = 3) -> Ended:
        told = self.receive(END_TXN, version)
        following = None
        if version >= V2.end:
            following = Producer(producer.transactional_id, int(told.producer_id), int(told.producer_epoch))
        return Ended(ErrorCode(int(told.error_code)), following)

    def abort_by_tool(self, producer: Producer, partition: int = 0) -> ErrorCode:
        """WriteTxnMarkers as kafka-transactions.sh abort sends it."""
        marker = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "transaction_result": False,
            "topics": [{"name": self.topic, "partition_indexes": (partition,)}],
            "coordinator_epoch": 0,
        }
        told = self.ask(WRITE_TXN_MARKERS, 1, {"markers": [marker]})
        return ErrorCode(int(told.markers[0].topics[0].partitions[0].error_code))

    def state_of(self, transactional_id: str) -> str:
        """Its state in Kafka's words. Read by hand: kio knows no start time that is not there."""
        self.send(DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": (transactional_id,)})
        answer = memoryview(read_frame(self._connection))
        _, position = read_string(answer, BEFORE_TRANSACTIONAL_ID, is_flexible=True)
        state, _ = read_string(answer, position, is_flexible=True)
        return state

    def topic_id(self) -> UUID:
        body = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
        told = self.ask(METADATA, 12, {**body, "topics": [{"topic_id": UUID(int=0), "name": self.topic}]})
        found: UUID = told.topics[0].topic_id
        return found

    def end_offset(self, partition: int = 0, isolation: IsolationLevel = UNCOMMITTED) -> int:
        """The log end, or for those who read what is committed the last stable offset."""
        rows = [{"partition_index": partition, "timestamp": LATEST}]
        body = {
            "replica_id": -1,
            "isolation_level": int(isolation),
            "topics": [{"name": self.topic, "partitions": rows}],
        }
        (told,) = self.ask(LIST_OFFSETS, 7, body).topics[0].partitions
        assert told.error_code is NONE, told
        return int(told.offset)

    def fetch(
        self,
        offset: int,
        partition: int = 0,
        isolation: IsolationLevel = COMMITTED,
        *,
        wait: timedelta = timedelta(0),
        bytes_max: int = FETCH_BYTES,
    ) -> Entity:
        """The partition's part of a Fetch's answer."""
        rows = [{"partition": partition, "fetch_offset": offset, "partition_max_bytes": bytes_max}]
        body = {
            "replica_id": -1,
            "max_wait": wait,
            "min_bytes": 1,
            "max_bytes": bytes_max,
            "isolation_level": int(isolation),
            "topics": [{"topic": self.topic, "partitions": rows}],
            "forgotten_topics_data": (),
            "rack_id": "",
        }
        (told,) = self.ask(FETCH, 12, body).responses[0].partitions
        return told

    def read(
        self, partition: int = 0, isolation: IsolationLevel = COMMITTED, *, bytes_max: int = FETCH_BYTES
    ) -> list[tuple[int, bytes]]:
        """What a consumer is given of the whole partition: offsets and values."""
        reader = PartitionReader(0, is_committed=isolation is COMMITTED)
        end = self.end_offset(partition, isolation)
        while reader.position < end:
            told = self.fetch(reader.position, partition, isolation, wait=timedelta(seconds=1), bytes_max=bytes_max)
            if told.error_code is ErrorCode.not_leader_or_follower:
                continue
            assert told.error_code is NONE, told
            aborted = [(int(each.producer_id), int(each.first_offset)) for each in told.aborted_transactions or ()]
            reader.take(bytes(told.records or b""), aborted)
        return [(record.offset, record.value or b"") for record in reader.records]

    def values(
        self, partition: int = 0, isolation: IsolationLevel = COMMITTED, *, bytes_max: int = FETCH_BYTES
    ) -> list[bytes]:
        return [value for _, value in self.read(partition, isolation, bytes_max=bytes_max)]

    def committed(self, group: str, partition: int = 0, *, is_stable: bool = False) -> tuple[ErrorCode, int]:
        """OffsetFetch of one partition; the agent has to be the group's coordinator."""
        topics = [{"name": self.topic, "partition_indexes": (partition,)}]
        told = self.ask(OFFSET_FETCH, 7, {"group_id": group, "topics": topics, "require_stable": is_stable})
        if told.error_code is not NONE:
            return ErrorCode(int(told.error_code)), -1
        row = told.topics[0].partitions[0]
        return ErrorCode(int(row.error_code)), int(row.committed_offset)


def _asked_by(producer: Producer) -> dict[str, Any]:
    return {
        "transactional_id": producer.transactional_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
    }


class Script:
    """A producer that does as clients do, in one generation of the protocol: its sequences, epochs and partitions."""

    def __init__(self, producer: Producer, versions: Versions, topic: str) -> None:
        self.producer = producer
        self.topic = topic
        self.versions = versions
        self._sequences: dict[int, int] = {}
        self._added: set[int] = set()

    @classmethod
    def begun(cls, connection: Connection, transactional_id: str, versions: Versions = V1) -> Self:
        return cls(connection.begun(transactional_id), versions, connection.topic)

    def send(self, through: Connection, value: bytes, partition: int = 0) -> int:
        """One record of the transaction that is open, or begins; its offset, which is -1 where it has none yet."""
        if self.versions.adds and partition not in self._added:
            assert through.add(self.producer, partition) is NONE
        self._added.add(partition)
        sequence = self._sequences.get(partition, 0)
        told = through.produce(self.producer, sequence, value, partition=partition, version=self.versions.produce)
        assert told.error_code is NONE, told
        self._sequences[partition] = sequence + 1
        return told.offset

    def end(self, through: Connection, *, is_commit: bool) -> None:
        """It has to succeed."""
        told = through.end(self.producer, is_commit=is_commit, version=self.versions.end)
        assert told.error_code is NONE, told
        self.ended(told)

    def ended(self, told: Ended) -> None:
        """It was told so."""
        self._added.clear()
        if told.producer is not None and told.producer != self.producer:
            self.producer = told.producer
            self._sequences.clear()

    def commit(self, through: Connection) -> None:
        self.end(through, is_commit=True)

    def abort(self, through: Connection) -> None:
        self.end(through, is_commit=False)


@contextmanager
def connected(bootstrap: str, topic: str, client_id: str | None = None) -> Iterator[Connection]:
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS_MAX) as connection:
        yield Connection(connection, topic, client_id)


@contextmanager
def connections(topic: str, bootstraps: Sequence[str]) -> Iterator[list[Connection]]:
    """One to each."""
    with ExitStack() as stack:
        yield [stack.enter_context(connected(bootstrap, topic)) for bootstrap in bootstraps]


def coordinator_of(group: str, through: Sequence[Connection]) -> Connection:
    """Whichever of them leads to the group's coordinator."""
    for connection in through:
        error_code, _ = connection.committed(group)
        if error_code is NONE:
            return connection
    raise AssertionError(f"nobody coordinates {group}")
