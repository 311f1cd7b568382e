"""Commands as tests write them, and a ledger of one that numbers and applies them.

Rule: everything goes through `command_codec`, so that a test applies what an agent would read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from coordinator.apply.apply import apply
from coordinator.codec.codec import encode
from coordinator.commands.commands import (
    AdvanceLogStart,
    ApplyRetention,
    BatchColumns,
    ChunkColumns,
    ChunksCommitted,
    Command,
    CommitChunks,
    CreateTopic,
    Done,
    Endpoint,
    Outcome,
    Proposal,
    RaiseRules,
    StartSession,
)
from coordinator.commands.rules import RULES_CHECKED_STORAGE, RULES_FIRST
from coordinator.invariants import check
from coordinator.ledger.port import LedgerRecord
from coordinator.state.state import ClusterState, PartitionState
from protocol.records.crc import pack_crcs
from protocol.types import Milliseconds, ObjectNumber, PartitionIndex, Position, SessionId, TopicId
from tests.support.commands.entries import since_of

TOPIC = TopicId(bytes(range(16)))
BATCH_BYTES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A record batch as CommitChunks tells of it."""

    records: int = 1
    size: int = BATCH_BYTES
    timestamp: int = 1_000
    producer: int = -1
    epoch: int = -1
    sequence: int = -1
    is_transactional: int = 0
    crc: int = 0


def idempotent(sequence: int, *, records: int = 1, producer: int = 7, epoch: int = 0) -> Batch:
    """A batch of an idempotent producer."""
    return Batch(records=records, producer=producer, epoch=epoch, sequence=sequence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    batches: Sequence[Batch]
    topic_id: TopicId = TOPIC
    partition: int = 0


def commit(number: int, *chunks: Chunk, session: int = 1) -> CommitChunks:
    """The chunks of one intake object, back to back."""
    topic_ids = tuple(dict.fromkeys(chunk.topic_id for chunk in chunks))
    batches = [batch for chunk in chunks for batch in chunk.batches]
    byte_first: list[int] = []
    object_bytes = 0
    for chunk in chunks:
        byte_first.append(object_bytes)
        object_bytes += sum(batch.size for batch in chunk.batches)
    return CommitChunks(
        object_session=SessionId(session),
        object_number=ObjectNumber(number),
        object_bytes=object_bytes,
        topic_ids=topic_ids,
        chunks=ChunkColumns(
            topic=[topic_ids.index(chunk.topic_id) for chunk in chunks],
            partition=[chunk.partition for chunk in chunks],
            byte_first=byte_first,
            batch_count=[len(chunk.batches) for chunk in chunks],
        ),
        batches=BatchColumns(
            record_bytes=[batch.size for batch in batches],
            record_count=[batch.records for batch in batches],
            max_timestamp=[batch.timestamp for batch in batches],
            producer_id=[batch.producer for batch in batches],
            producer_epoch=[batch.epoch for batch in batches],
            base_sequence=[batch.sequence for batch in batches],
            is_transactional=[int(batch.is_transactional) for batch in batches],
        ),
        batch_crcs=pack_crcs([batch.crc for batch in batches]) if any(batch.crc for batch in batches) else b"",
    )


def delete_before(log_start: int, *, topic_id: TopicId = TOPIC, partition: int = 0) -> AdvanceLogStart:
    """Deletes the records of one partition below an offset."""
    return AdvanceLogStart(topic_ids=(topic_id,), topic=[0], partition=[partition], log_start=[log_start])


def retain(now_ms: int, *topic_ids: TopicId, retention_ms: int = -1, retention_bytes: int = -1) -> ApplyRetention:
    """Drops what is too old or too much of the topics (none named: `TOPIC`), with these defaults for all of them."""
    return ApplyRetention(
        now_ms=Milliseconds(now_ms),
        topic_ids=topic_ids or (TOPIC,),
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        is_deleting=True,
    )


def start(name: str = "a", *, node: int = 1, rules: int = 1) -> StartSession:
    return StartSession(
        name=name,
        node_id=node,
        endpoints=(Endpoint(listener="PLAINTEXT", host="127.0.0.1", port=9092),),
        zone=None,
        rules_version=rules,
    )


def create(name: str = "t", *, topic_id: TopicId = TOPIC, partitions: int = 1, **configs: str) -> CreateTopic:
    """A topic; underscores in the names of `configs` stand for dots."""
    return CreateTopic(
        name=name,
        topic_id=topic_id,
        partition_count=partitions,
        configs=_pairs(configs),
    )


def _pairs(configs: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key.replace("_", "."), value) for key, value in configs.items()))


class Cluster:
    """A state and the numbers of its sessions. The invariants are checked after every entry."""

    def __init__(self) -> None:
        self.state = ClusterState.empty("cluster", 1)
        self.numbers: dict[int, int] = {}
        self.records: list[LedgerRecord] = []

    @classmethod
    def started(cls, rules: int = RULES_FIRST, /, **configs: str) -> "Cluster":
        """With session 1 and the topic `t`, one partition; `rules` are in force."""
        cluster = cls()
        cluster.do(start(rules=rules))
        if rules > RULES_FIRST:
            assert cluster.do(RaiseRules(rules_version=rules)) == Done()
        cluster.do(replace(create(), configs=_pairs(configs)))
        return cluster

    def do(self, command: Command, *, session: int = 1, time_ms: int | None = None) -> Outcome:
        """Apply a command as the session's next entry."""
        number = self.numbers.get(session, 0)
        self.numbers[session] = number + 1
        return self.put(command, session=session, number=number, time_ms=time_ms)

    def put(self, command: Command, *, session: int, number: int, time_ms: int | None = None) -> Outcome:
        """Apply a command under a number of the test's choice."""
        time = None if time_ms is None else Milliseconds(time_ms)
        # The fields of all rules, for tests of what apply makes of them; a checksum where the rules in force have one.
        # A command of newer rules is written in their form, which apply rejects.
        rules_version = max(self.state.rules_version, RULES_CHECKED_STORAGE, since_of(command))
        record = LedgerRecord(
            position=Position(len(self.records) + 1),
            session=SessionId(session),
            number=number,
            payload=encode(Proposal(time_ms=time, command=command), rules_version, SessionId(session), number),
        )
        self.records.append(record)
        _, outcome = apply(self.state, record)
        assert check(self.state) == []
        return outcome

    def produce(self, number: int, *batches: Batch) -> ChunksCommitted:
        """Commit one chunk to the topic's first partition."""
        outcome = self.do(commit(number, Chunk(batches=batches)))
        assert isinstance(outcome, ChunksCommitted)
        return outcome

    @property
    def partition(self) -> PartitionState:
        found = self.state.partition(TOPIC, PartitionIndex(0))
        assert found is not None
        return found
