"""A recovery's new state, out of a snapshot's state and the intake objects that it does not know (safety rule S9).

Rule: no I/O; `agent.recovery.recovery` reads. Offsets, duplicates and refusals come from apply's own code. What was
acknowledged after the snapshot has lost its entries, so it gets new offsets, in the order in which the objects were
written, as far as that is known. A record is rather kept at another offset than lost: a batch whose predecessors are
missing is kept without its producer's sequence, unless a copy of it is still to come: then it was refused, and sent
again. Of transactions nothing comes back but what the snapshot knows to be committed: what became of the others stood
in the entries that are lost, and what was aborted must never be read. Offsets whose objects are lost are never given
again: what is left of the log stays where it was, and the gap is bridged, as the archive's gaps are (safety rule S5).
"""

import itertools
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from coordinator.apply.chunks import NO_ERROR, commit_chunks
from coordinator.apply.objects import add_object, release_references
from coordinator.apply.retention import forget_markers
from coordinator.apply.sessions import end_session
from coordinator.apply.topics import create_topic
from coordinator.apply.transactions import expire_transaction
from coordinator.commands.commands import (
    BatchColumns,
    ChunkColumns,
    ChunksCommitted,
    CommitChunks,
    CreateTopic,
    EndSession,
    Refused,
)
from coordinator.commands.rules import RULES_CHECKED_STORAGE
from coordinator.commands.transaction import ExpireTransaction, TransactionDecided
from coordinator.ledger.port import POSITION_REVISION_BITS, LedgerCorrupt, position_first
from coordinator.state.chunk_index import NO_CHECKSUM, NO_ROWS, OFFSET_FIRST, ChunkRef
from coordinator.state.state import ClusterState, PartitionState
from protocol.errors import ErrorCode, InvalidBatch
from protocol.records.batch import BatchHeader, check_crcs, split_batches
from protocol.records.control_batches import empty_control_batch
from protocol.records.crc import pack_crcs
from protocol.types import (
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Milliseconds,
    ObjectId,
    ObjectNumber,
    PartitionIndex,
    ProducerId,
    SessionId,
    TopicId,
)
from storage.chunk_format import ChunkFormatError, ChunkParts, FooterChunk, check_chunk, describe_object, encode_object
from storage.object_store import Buffer
from storage.refs import ObjectKind, intake_key
from txn.producer_state import OUT_OF_ORDER, ProducerState, decide, sequence_after

PRODUCER_ID_BITS: Final = 40
"""An incarnation has room for so many producer ids: a million a second for twelve days, or a thousand for 34 years."""
KEPT_FOR_EVER: Final = (("retention.bytes", "-1"), ("retention.ms", "-1"))
"""The configs of a topic whose own are lost: none of its records is deleted before an operator has looked."""
RECOVERED_NAME = "recovered-{}"
"""The name of a topic whose creation is lost, by its id."""
NAME_REFUSED: Final = (ErrorCode.invalid_topic_exception, ErrorCode.topic_already_exists)
"""Another name may do."""


def bridge_session(incarnation: int) -> SessionId:
    """The session in the key of what a recovery itself writes: before every session of the incarnation that begins."""
    return SessionId(position_first(incarnation))


def is_bridge_session(session: SessionId) -> bool:
    """Whether it is a recovery's own: its objects hold no records."""
    return session % (1 << POSITION_REVISION_BITS) == 0


def sessions_ended_unseen(state: ClusterState) -> set[SessionId]:
    """The sessions that the last recovery ended, as far as the state shows: it began the state's incarnation, and ended
    those of an earlier one that ended last, all at one time.

    It committed everything of them that was in the bucket. What is there now and unknown came later: of agents that
    went on, for their ledger was another one than was recovered, and acknowledged it (safety rule S9).
    """
    first = position_first(state.incarnation)
    earlier = {session: ended_ms for session, ended_ms in state.sessions_ended.items() if session < first}
    last_ms = max(earlier.values(), default=state.time_ms)
    return {session for session, ended_ms in earlier.items() if ended_ms == last_ms}


@dataclass(slots=True, kw_only=True)
class TopicRecovered:
    """The outcome of the recovery for one topic's batches."""

    topic: str
    is_name_lost: bool = False
    are_configs_lost: bool = False
    """The topic is created again: no snapshot and no entry has it."""
    records: int = 0
    batches: int = 0
    duplicates: int = 0
    without_sequence: int = 0
    """Batches that are kept although others of their producer are missing before them."""
    refused: int = 0
    """Batches that no ledger would take: of a stale epoch, or repeats of what is long gone."""
    of_transactions: int = 0
    """Batches of transactions whose end is lost: left out, as if they had been aborted."""
    offsets_lost: int = 0
    """Offsets whose objects are not in the bucket any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bridge:
    """An intake object without records, to put: chunks of the index that lost theirs lead to it."""

    key: str
    parts: Sequence[Buffer]


@dataclass(frozen=True, slots=True)
class _Gap:
    """A row of the index whose object is lost."""

    topic_id: TopicId
    partition: PartitionIndex
    row: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundObject:
    """An intake object as a commit of it, and what of it is damaged, in words."""

    key: str
    modified_ms: Milliseconds
    command: CommitChunks
    faults: tuple[str, ...]


def read_object(key: str, content: bytes, *, session: SessionId, number: ObjectNumber, modified_ms: int) -> FoundObject:
    """The content of an intake object, without damaged chunks. Raises `ChunkFormatError` if nothing can be read."""
    described = describe_object(content, len(content))
    if (described.session, described.number) != (session, number):
        raise ChunkFormatError(f"it says that it is object {described.number} of session {described.session}")
    chunks: list[tuple[FooterChunk, list[BatchHeader]]] = []
    faults: list[str] = []
    view = memoryview(content)
    for chunk in described.chunks:
        run = view[chunk.byte_first : chunk.byte_first + chunk.byte_count]
        try:
            check_chunk(run, chunk)
            chunks.append((chunk, split_batches(run)))
        except (ChunkFormatError, InvalidBatch) as error:
            faults.append(f"partition {chunk.partition} of topic {chunk.topic_id.hex()}: {error}")
    return FoundObject(
        key=key,
        modified_ms=Milliseconds(modified_ms),
        command=_commit(session, number, len(content), chunks),
        faults=tuple(faults),
    )


def _commit(
    session: SessionId, number: ObjectNumber, object_bytes: int, chunks: list[tuple[FooterChunk, list[BatchHeader]]]
) -> CommitChunks:
    """The command that the agent which wrote the object submitted, or would have."""
    topic_ids = tuple(dict.fromkeys(chunk.topic_id for chunk, _ in chunks))
    batches = [header for _, headers in chunks for header in headers]
    return CommitChunks(
        object_session=session,
        object_number=number,
        object_bytes=object_bytes,
        topic_ids=topic_ids,
        chunks=ChunkColumns(
            topic=[topic_ids.index(chunk.topic_id) for chunk, _ in chunks],
            partition=[chunk.partition for chunk, _ in chunks],
            byte_first=[chunk.byte_first for chunk, _ in chunks],
            batch_count=[len(headers) for _, headers in chunks],
        ),
        batches=BatchColumns(
            record_bytes=[header.batch_bytes for header in batches],
            record_count=[header.record_count for header in batches],
            max_timestamp=[header.max_timestamp for header in batches],
            producer_id=[header.producer_id for header in batches],
            producer_epoch=[header.producer_epoch for header in batches],
            base_sequence=[header.base_sequence for header in batches],
            is_transactional=[int(header.is_transactional) for header in batches],
        ),
        batch_crcs=pack_crcs([header.crc for header in batches]),
    )


@dataclass(slots=True)
class StateRecovery:
    """A state on its way into the next incarnation. `finish` last."""

    state: ClusterState
    topic_names: dict[TopicId, str]
    """Names that the bucket knows, for topics that the state does not."""
    topics: dict[TopicId, TopicRecovered] = field(default_factory=dict[TopicId, TopicRecovered])
    sessions_ended_count: int = 0
    transactions_aborted_count: int = 0
    _copies: Counter["_Batch"] = field(default_factory=Counter["_Batch"])
    """How often each batch is in the objects that are still to be committed."""

    def abort_transactions(self) -> None:
        """Abort what is open, and forget who had transactional ids; before anything else.

        What was committed after the snapshot is dropped by that, which is a loss; to take what was aborted for
        committed would be an error that is never noticed. Epochs that were given after the snapshot must not be given
        again, so producers start again, with producer ids of the incarnation.
        """
        state = self.state
        for transactional_id in list(state.open_transactions):
            metadata = state.transactional_ids[transactional_id].metadata
            expired = ExpireTransaction(
                transactional_id=transactional_id,
                producer_id=metadata.producer_id,
                epoch=metadata.epoch,
                serial=metadata.serial,
            )
            decided = expire_transaction(state, expired)
            assert isinstance(decided, TransactionDecided), decided
            assert decided.error_code is ErrorCode.none, decided
            self.transactions_aborted_count += 1
        state.transactional_ids.clear()
        state.producers_of_transactions.clear()

    @property
    def _has_checksums(self) -> bool:
        """Whether agents of the rules in force, which the state keeps, know checksums of chunks."""
        return self.state.rules_version >= RULES_CHECKED_STORAGE

    def expect(self, intake_object: FoundObject) -> None:
        """Learn what an object holds that will be committed later: first all of them, then `commit` each."""
        self._copies.update(batch for batch, _ in _sequenced(intake_object.command))

    def is_in_order(self, intake_object: FoundObject) -> bool:
        """Whether, by their sequences, no batch has a predecessor of its producer that is still to come."""
        return next(self._rows_out_of_order(intake_object.command), None) is None

    def commit(self, intake_object: FoundObject) -> None:
        """Give what the object holds its place."""
        command = intake_object.command
        self.state.time_ms = max(self.state.time_ms, intake_object.modified_ms)
        for topic_index, partition in zip(command.chunks.topic, command.chunks.partition, strict=True):
            self._ensure(command.topic_ids[topic_index], partition)
        gaps = set(self._rows_out_of_order(command))
        self._copies.subtract(batch for batch, _ in _sequenced(command))
        columns = command.batches
        producer_ids = [
            NO_PRODUCER_ID if row in gaps else producer_id for row, producer_id in enumerate(columns.producer_id)
        ]
        ends = {topic_id: self._ends(topic_id) for topic_id in command.topic_ids}
        batch_crcs = command.batch_crcs if self._has_checksums else b""
        committed = replace(command, batches=replace(columns, producer_id=producer_ids), batch_crcs=batch_crcs)
        outcome = commit_chunks(self.state, command.object_session, committed)
        assert isinstance(outcome, ChunksCommitted), outcome
        self._count(command, outcome, gaps, ends)

    def forget_lost(self, keys: Container[str], incarnation: int) -> Bridge | None:
        """Let go of objects that are not in the bucket any more, and bridge what they held, in `incarnation`.

        A log that begins with a gap begins behind it. A gap behind archived records is an archived chunk without rows,
        which is served as an empty control batch. What is lost behind other records is led to an object that holds
        nothing but such batches (safety rule S5); it is returned, to put before the state is used.
        """
        self._forget_tables(keys)
        lost = {object_id for object_id, found in self.state.objects.items() if found.key in keys}
        gaps = [
            _Gap(topic_id, PartitionIndex(number), row)
            for topic_id, topic in self.state.topics.items()
            for number, partition in enumerate(topic.partitions)
            for row in self._close_gaps(topic_id, partition, lost)
        ]
        for object_id in lost:
            del self.state.object_ids[self.state.objects.pop(object_id).key]
        return self._bridge(gaps, bridge_session(incarnation)) if gaps else None

    def _forget_tables(self, keys: Container[str]) -> None:
        """Drop a table that lost a file: readers would fail. It is built again from what the log has."""
        for topic in self.state.topics.values():
            if topic.table is not None and any(
                self.state.objects[object_id].key in keys for object_id in topic.table.objects
            ):
                release_references(self.state, sorted(topic.table.objects))
                topic.table = None

    def _close_gaps(self, topic_id: TopicId, partition: PartitionState, lost: Container[int]) -> list[int]:
        """The rows that only a bridge can stand in for."""
        index = partition.index
        object_ids = index.object_ids()
        offsets = [index.row(row) for row, object_id in enumerate(object_ids) if object_id in lost]
        if not offsets:
            return []
        recovered = self.topics.setdefault(topic_id, TopicRecovered(topic=self.state.topics[topic_id].name))
        recovered.offsets_lost += sum(chunk.offset_end - chunk.offset_first for chunk in offsets)
        leading = next((row for row, object_id in enumerate(object_ids) if object_id not in lost), len(index))
        if leading:
            index.truncate_before(index.row(leading - 1).offset_end)
            partition.log_start = max(partition.log_start, index.first)
            partition.table_start = max(partition.table_start, index.first)
            forget_markers(partition, OFFSET_FIRST, index.first)
        rows: list[int] = []
        for row in range(1, len(index)):
            chunk, before = index.row(row), index.row(row - 1)
            if chunk.object_id in lost and before.is_archived:
                index.replace(row, row + 1, [_without_rows(chunk, before.object_id)])
                self.state.objects[before.object_id].references += 1
            elif chunk.object_id in lost:
                rows.append(row)
        return rows

    def _bridge(self, gaps: Sequence[_Gap], session: SessionId) -> Bridge:
        indexes = [self.state.topics[gap.topic_id].partitions[gap.partition].index for gap in gaps]
        chunks = [index.row(gap.row) for gap, index in zip(gaps, indexes, strict=True)]
        batches = [empty_control_batch(0, chunk.offset_end - chunk.offset_first) for chunk in chunks]
        encoded = encode_object(
            session,
            ObjectNumber(0),
            [
                ChunkParts(topic_id=gap.topic_id, partition=gap.partition, parts=[batch])
                for gap, batch in zip(gaps, batches, strict=True)
            ],
        )
        bridge = Bridge(key=intake_key(session, ObjectNumber(0)), parts=encoded.parts)
        object_id = self.state.object_id_next
        add_object(
            self.state,
            key=bridge.key,
            kind=ObjectKind.INTAKE,
            object_bytes=encoded.object_bytes,
            references=len(gaps),
        )
        for gap, index, chunk, batch, byte_first in zip(
            gaps, indexes, chunks, batches, encoded.byte_firsts, strict=True
        ):
            row = ChunkRef(
                offset_first=chunk.offset_first,
                offset_end=chunk.offset_end,
                object_id=object_id,
                byte_first=byte_first,
                byte_count=len(batch),
                max_timestamp=NO_TIMESTAMP,
                append_time_ms=NO_TIMESTAMP,
                row_group=NO_ROWS,
                row_first=NO_ROWS,
                row_count=NO_ROWS,
                checksum=check_crcs(batch) if self._has_checksums else NO_CHECKSUM,
            )
            index.replace(gap.row, gap.row + 1, [row])
        self.state.sessions_ended[session] = self.state.time_ms
        return bridge

    def advance_time(self, now_ms: Milliseconds) -> None:
        """Let the state's time be no earlier than now, by a checked clock (safety rule S2).

        The grace of objects that the ended sessions left begins now: while no agent ran they could not be looked at.
        """
        self.state.time_ms = max(self.state.time_ms, now_ms)

    def end_sessions(self, others: set[SessionId]) -> None:
        """End every session, and the `others`, which wrote what the state does not know: what is left of it is garbage
        now.
        """
        for session in list(self.state.sessions):
            end_session(self.state, EndSession(session=session))
            self.sessions_ended_count += 1
        for session in sorted(others - self.state.sessions_ended.keys()):
            self.state.sessions_ended[session] = self.state.time_ms
            self.sessions_ended_count += 1

    def finish(self, incarnation: int) -> None:
        """Make the state the one in which the incarnation begins.

        Producer ids that were given out after the snapshot must not be given again, so those of an incarnation begin
        where no earlier one comes. Producers from before may have lost their state, as where it was dropped (S8).
        """
        self.state.incarnation = incarnation
        self.state.position = position_first(incarnation)
        self.state.appends_count = 0
        first = ProducerId((incarnation - 1) << PRODUCER_ID_BITS)
        self.state.producer_id_next = max(self.state.producer_id_next, first)
        self.state.producers_before_deletion = self.state.producer_id_next
        for topic in self.state.topics.values():
            for partition in topic.partitions:
                partition.unknown_producers_below = self.state.producer_id_next

    def _rows_out_of_order(self, command: CommitChunks) -> Iterator[int]:
        """The batches that are not next although they are no repeats, nor repeated: their predecessors are missing."""
        next_by_producer: dict[tuple[TopicId, int, int], tuple[int, int]] = {}
        passed: Counter[_Batch] = Counter()
        for batch, row in _sequenced(command):
            passed[batch] += 1
            topic_id, partition, producer_id, epoch, sequence = batch
            key, record_count = (topic_id, partition, producer_id), command.batches.record_count[row]
            partition_state = self.state.partition(topic_id, partition)
            is_next = next_by_producer.get(key) == (epoch, sequence)
            if is_next or not _is_gap(partition_state, producer_id, epoch, sequence, record_count):
                next_by_producer[key] = epoch, sequence_after(sequence, record_count)
            elif self._copies[batch] <= passed[batch]:
                yield row

    def _ensure(self, topic_id: TopicId, partition: int) -> None:
        """The topic and its partitions, whose entries may be lost. Raises `LedgerCorrupt` where it cannot be made."""
        if topic_id not in self.state.topics:
            self._name(topic_id)
        topic = self.state.topics[topic_id]
        while len(topic.partitions) <= partition:
            topic.partitions.append(PartitionState(unknown_producers_below=self.state.producers_before_deletion))
            self.state.partitions_count += 1

    def _name(self, topic_id: TopicId) -> None:
        """Make the topic under the first name that is free."""
        known, made_up = self.topic_names.get(topic_id), RECOVERED_NAME.format(topic_id.hex())
        names = (name for name in (known, made_up) if name is not None)
        further = (f"{made_up}-{number}" for number in itertools.count(2))
        name = next(names)
        refused = self._create(topic_id, name)
        while refused is not None:
            if refused.error_code not in NAME_REFUSED:
                raise LedgerCorrupt(f"the topic {topic_id.hex()} cannot be made again: {refused.reason}")
            name = next(names, None) or next(further)
            refused = self._create(topic_id, name)
        self.topics[topic_id] = TopicRecovered(topic=name, is_name_lost=name != known, are_configs_lost=True)

    def _create(self, topic_id: TopicId, name: str) -> Refused | None:
        outcome = create_topic(
            self.state, CreateTopic(name=name, topic_id=topic_id, partition_count=1, configs=KEPT_FOR_EVER)
        )
        return outcome if isinstance(outcome, Refused) else None

    def _ends(self, topic_id: TopicId) -> list[int]:
        return [partition.log_end for partition in self.state.topics[topic_id].partitions]

    def _count(
        self, command: CommitChunks, outcome: ChunksCommitted, gaps: set[int], ends: dict[TopicId, list[int]]
    ) -> None:
        for topic_id, partition, row in _batch_rows(command):
            recovered = self.topics.setdefault(topic_id, TopicRecovered(topic=self.state.topics[topic_id].name))
            if command.batches.is_transactional[row]:
                assert outcome.error_codes[row] != NO_ERROR, "`abort_transactions` forgot every transactional id"
                recovered.of_transactions += 1
            elif outcome.error_codes[row] != NO_ERROR:
                recovered.refused += 1
            elif outcome.base_offsets[row] < ends[topic_id][partition]:
                recovered.duplicates += 1
            else:
                recovered.batches += 1
                recovered.records += command.batches.record_count[row]
                recovered.without_sequence += row in gaps


def _without_rows(lost: ChunkRef, object_id: ObjectId) -> ChunkRef:
    """Its offsets as a chunk of a file that has no rows of them, such as archive passes make of aborted records: so
    readers of the table know that no file answers for them."""
    times = lost._replace(max_timestamp=NO_TIMESTAMP, append_time_ms=NO_TIMESTAMP, checksum=NO_CHECKSUM)
    return times._replace(object_id=object_id, byte_first=0, byte_count=0, row_group=0, row_first=0, row_count=0)


def _batch_rows(command: CommitChunks) -> Iterator[tuple[TopicId, PartitionIndex, int]]:
    """Topic and partition of each row of the batches."""
    row = 0
    chunks = command.chunks
    for topic_index, partition, count in zip(chunks.topic, chunks.partition, chunks.batch_count, strict=True):
        for _ in range(count):
            yield command.topic_ids[topic_index], PartitionIndex(partition), row
            row += 1


_Batch = tuple[TopicId, PartitionIndex, int, int, int]
"""A batch as its producer names it: topic, partition, producer id, epoch, base sequence."""


def _sequenced(command: CommitChunks) -> Iterator[tuple[_Batch, int]]:
    """The batches of idempotent producers, and their rows."""
    batches = command.batches
    for topic_id, partition, row in _batch_rows(command):
        producer_id = batches.producer_id[row]
        if producer_id != NO_PRODUCER_ID and not batches.is_transactional[row]:
            yield (topic_id, partition, producer_id, batches.producer_epoch[row], batches.base_sequence[row]), row


def _is_gap(
    partition_state: PartitionState | None, producer_id: int, epoch: int, sequence: int, record_count: int
) -> bool:
    """Whether a batch is refused as out of order because something before it is missing, and not because it is old."""
    producer: ProducerState | None = (
        None if partition_state is None else partition_state.producers.get(ProducerId(producer_id))
    )
    decision = decide(
        producer,
        producer_id=producer_id,
        epoch=epoch,
        base_sequence=sequence,
        record_count=record_count,
        unknown_producers_below=ProducerId(0) if partition_state is None else partition_state.unknown_producers_below,
    )
    if decision != OUT_OF_ORDER:
        return False
    return producer is None or epoch > producer.epoch or sequence > producer.sequence_next
