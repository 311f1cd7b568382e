"""Makes the chunks of an intake object true: offsets, duplicates, rejections. Called by `coordinator.apply.apply`.

Rule: every batch is judged on its own, in the order of its bytes; a rejected batch costs space in the object and no
more. Chunks without producers are accepted whole, without looking at their batches one by one: this is the hot loop of
the cluster (benchmarks/micro/apply.py).
"""

from itertools import accumulate
from typing import Final, assert_never

from coordinator.apply.objects import add_object, is_key_known
from coordinator.apply.producer_bounds import may_begin, note_written
from coordinator.apply.transactions import (
    begin,
    has_unplaced_capacity,
    is_placed_at_commit,
    join_partition,
    wait_for_commit,
)
from coordinator.commands.commands import BatchColumns, ChunksCommitted, CommitChunks, Outcome, Rejected
from coordinator.commands.rules import RULES_CHECKED_ENTRIES
from coordinator.commands.transaction import TransactionPartition
from coordinator.state.chunk_index import NO_CHECKSUM
from coordinator.state.state import NO_TIME, ClusterState, PartitionState
from coordinator.state.unplaced_batches import UnplacedBatch, run_of
from protocol.errors import ErrorCode
from protocol.records.crc import CRC_BYTES, crc_of_crcs, unpack_crcs
from protocol.types import (
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    SEQUENCE_END,
    Milliseconds,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    SessionId,
    TopicId,
)
from storage.refs import ObjectKind, intake_key
from txn.producer_state import Accept, Duplicate, ProducerState, Reject, advance, decide, is_stale
from txn.transaction import TransactionVersion

NO_ERROR: Final = int(ErrorCode.none)
NO_OFFSET: Final = -1
NO_UNKNOWN_PRODUCERS: Final = ProducerId(0)
UNKNOWN_PARTITION: Final = int(ErrorCode.unknown_topic_or_partition)
NOT_STAMPED: Final = int(ErrorCode.not_leader_or_follower)
"""A client's own remedy: it asks again."""
NO_ROOM: Final = int(ErrorCode.request_timed_out)
"""The error where a partition or the cluster has its maximum of producers with open transactions: the client
retries."""


def commit_chunks(state: ClusterState, session_id: SessionId, command: CommitChunks) -> Outcome:
    """Give every acceptable batch of the object its offset."""
    # An object of another session may be on its way to deletion, because that session is dead (S1).
    if command.object_session != session_id:
        return Rejected(
            error_code=ErrorCode.not_leader_or_follower,
            reason=f"the object is of session {command.object_session}, the entry of session {session_id}",
        )
    key = intake_key(session_id, command.object_number)
    # Its batches would get offsets twice, and its references would be counted after it was released (S6).
    if is_key_known(state, key):
        return Rejected(error_code=ErrorCode.invalid_request, reason=f"the object {key!r} was committed already")
    commit = _ChunkColumns(state, command)
    commit.run()
    # Only now: chunks refer to the id that it gets here, and an object of which no batch was accepted is garbage (S6).
    add_object(
        state,
        key=key,
        kind=ObjectKind.INTAKE,
        object_bytes=command.object_bytes,
        references=commit.references,
    )
    return ChunksCommitted(
        error_codes=commit.error_codes,
        base_offsets=commit.base_offsets,
        append_time_ms=commit.append_time_ms,
        log_start=commit.log_start,
        grown=tuple(commit.grown),
        waiting_append_time_ms=commit.waiting_append_time_ms,
    )


class _ChunkColumns:
    """The outcome's columns while they are being filled, one chunk after the other."""

    def __init__(self, state: ClusterState, command: CommitChunks) -> None:
        self.state = state
        self.command = command
        self.object_id = state.object_id_next
        self.now_ms = state.known_time_ms
        self.position = state.position
        self.is_run_kept = state.rules_version >= RULES_CHECKED_ENTRIES
        self.crcs = unpack_crcs(command.batch_crcs) or (NO_CHECKSUM,) * len(command.batches.record_bytes)
        self.references = 0
        self.error_codes: list[int] = []
        self.base_offsets: list[int] = []
        self.append_time_ms: list[int] = []
        self.log_start: list[int] = []
        self.waiting_append_time_ms: dict[int, int] = {}
        self.grown: dict[tuple[TopicId, PartitionIndex], None] = {}

    def run(self) -> None:
        """Commit every chunk of the command."""
        topics = [self.state.topics.get(topic_id) for topic_id in self.command.topic_ids]
        chunks = self.command.chunks
        batches = self.command.batches
        first = 0
        for topic_index, partition_index, byte_first, count in zip(
            chunks.topic, chunks.partition, chunks.byte_first, chunks.batch_count, strict=True
        ):
            topic = topics[topic_index]
            end = first + count
            if topic is None or partition_index >= len(topic.partitions):
                # The topic was deleted while the object was on its way. On this error clients refresh their metadata.
                self._reject_chunk(count, UNKNOWN_PARTITION)
            elif topic.is_log_append_time and self.state.time_ms == NO_TIME:
                # No agent with a checked clock has proposed a time yet (S2), and what is stamped stays so (S14): the
                # producer tries again. Later the state's time is used, however old: agents check clocks at their start.
                self._reject_chunk(count, NOT_STAMPED)
            else:
                partition = topic.partitions[partition_index]
                log_end = partition.log_end
                append_time_ms = self.state.time_ms if topic.is_log_append_time else NO_TIMESTAMP
                if count == 1:
                    key = (topic.topic_id, PartitionIndex(partition_index))
                    self._commit_one(key, partition, first, byte_first, append_time_ms)
                elif _is_plain(batches, first, end):
                    self._commit_whole(partition, first, end, byte_first, append_time_ms)
                else:
                    key = (topic.topic_id, PartitionIndex(partition_index))
                    self._commit_batches(key, partition, first, end, byte_first, append_time_ms)
                self.append_time_ms.append(append_time_ms)
                self.log_start.append(partition.log_start)
                if partition.log_end > log_end:
                    self.grown[topic.topic_id, PartitionIndex(partition_index)] = None
            first = end

    def _reject_chunk(self, count: int, error_code: int) -> None:
        self.error_codes.extend([error_code] * count)
        self.base_offsets.extend([NO_OFFSET] * count)
        self.append_time_ms.append(NO_TIMESTAMP)
        self.log_start.append(NO_OFFSET)

    def _commit_one(
        self,
        key: TransactionPartition,
        partition: PartitionState,
        row: int,
        byte_first: int,
        append_time_ms: Milliseconds,
    ) -> None:
        """A chunk of one batch, which is most of them."""
        batches = self.command.batches
        record_count = batches.record_count[row]
        base_offset = partition.log_end
        producer_id = ProducerId(batches.producer_id[row])
        version = batches.is_transactional[row]
        if producer_id != NO_PRODUCER_ID or version:
            producer = partition.producers.get(producer_id)
            base_sequence = batches.base_sequence[row]
            # Such a batch `decide` would accept: it goes on where the producer's last one ended, in the same epoch.
            # Everything else is judged below, with the reasons for its errors.
            if (
                producer is None
                or producer.epoch != batches.producer_epoch[row]
                or producer.sequence_next != base_sequence
                or self._is_special(key, partition, producer_id, version)
            ):
                self._commit_batches(key, partition, row, row + 1, byte_first, append_time_ms)
                return
            if version:
                rejected = self._join(key, row)
                if rejected is not ErrorCode.none:
                    self.error_codes.append(int(rejected))
                    self.base_offsets.append(NO_OFFSET)
                    return
                # Not for a rejected batch: the last stable offset is that of the first record in the log (KIP-98).
                begin(partition, producer_id, base_offset)
            producer.record(base_sequence, record_count, base_offset, self.now_ms, is_run_kept=self.is_run_kept)
            producer.last_position = self.position
        self.error_codes.append(NO_ERROR)
        self.base_offsets.append(base_offset)
        offset_end = Offset(base_offset + record_count)
        self._add_row(
            partition,
            offset_end,
            byte_first,
            batches.record_bytes[row],
            batches.max_timestamp[row],
            append_time_ms,
            self.crcs[row],
        )

    def _commit_whole(
        self, partition: PartitionState, first: int, end: int, byte_first: int, append_time_ms: Milliseconds
    ) -> None:
        """A chunk that nothing can be said against: one row, and the batches' offsets one after the other."""
        batches = self.command.batches
        offsets = list(accumulate(batches.record_count[first:end], initial=partition.log_end))
        offset_end = Offset(offsets.pop())
        self.error_codes.extend([NO_ERROR] * (end - first))
        self.base_offsets.extend(offsets)
        byte_count = sum(batches.record_bytes[first:end])
        max_timestamp = max(batches.max_timestamp[first:end])
        checksum = self._checksum(first, end)
        self._add_row(partition, offset_end, byte_first, byte_count, max_timestamp, append_time_ms, checksum)

    def _commit_batches(
        self,
        key: TransactionPartition,
        partition: PartitionState,
        first: int,
        end: int,
        byte_first: int,
        append_time_ms: Milliseconds,
    ) -> None:
        """A chunk whose batches are judged one by one: a row for every run of accepted bytes."""
        batches = self.command.batches
        run_first, byte_run = first, byte_first
        byte_end = byte_first
        offset_end = partition.log_end
        max_timestamp: int = NO_TIMESTAMP

        def add_run(run_end: int) -> None:
            if offset_end > partition.log_end:
                checksum, byte_count = self._checksum(run_first, run_end), byte_end - byte_run
                self._add_row(partition, offset_end, byte_run, byte_count, max_timestamp, append_time_ms, checksum)

        for row in range(first, end):
            error_code, base_offset = self._judge(key, partition, row, offset_end, byte_end, append_time_ms)
            self.error_codes.append(error_code)
            self.base_offsets.append(base_offset)
            is_accepted = error_code == NO_ERROR and base_offset == offset_end
            if not is_accepted:
                # The bytes of this batch stay in the object, between two chunks, and no offset leads to them.
                add_run(row)
                run_first, byte_run = row + 1, byte_end + batches.record_bytes[row]
                max_timestamp = NO_TIMESTAMP
            else:
                offset_end = Offset(offset_end + batches.record_count[row])
                max_timestamp = max(max_timestamp, batches.max_timestamp[row])
            byte_end += batches.record_bytes[row]
        add_run(end)

    def _judge(
        self,
        key: TransactionPartition,
        partition: PartitionState,
        row: int,
        offset_next: Offset,
        byte_at: int,
        append_time_ms: Milliseconds,
    ) -> tuple[int, int]:
        """The error and the base offset of a batch. `offset_next` as base offset means that it is accepted; -1 without
        an error, that it waits for its transaction's commit, or repeats one that did."""
        batches = self.command.batches
        producer_id = batches.producer_id[row]
        version = batches.is_transactional[row]
        if producer_id == NO_PRODUCER_ID:
            # A transaction is that of a producer id (KIP-98): nothing would ever end one without.
            return (int(ErrorCode.invalid_txn_state), NO_OFFSET) if version else (NO_ERROR, offset_next)
        epoch, base_sequence = batches.producer_epoch[row], batches.base_sequence[row]
        producer = partition.producers.get(ProducerId(producer_id))
        # Before sequences, as Kafka verifies a transaction before it appends (KIP-890, AddPartitionsToTxnManager).
        if version:
            rejected = self._judge_transaction(key, producer, row)
            if rejected is not ErrorCode.none:
                return int(rejected), NO_OFFSET
        decision = decide(
            producer,
            producer_id=producer_id,
            epoch=epoch,
            base_sequence=base_sequence,
            record_count=batches.record_count[row],
            unknown_producers_below=NO_UNKNOWN_PRODUCERS
            if version >= TransactionVersion.V2
            else partition.unknown_producers_below,
            is_outside_transaction=not version and partition.has_open_transaction(producer_id),
        )
        match decision:
            case Duplicate(base_offset):
                # No error: a repeat is a success for its producer, at the first copy's offset (UnifiedLog.append).
                if base_offset == NO_OFFSET and producer is not None:
                    self._report_repeat(partition, producer, row)
                return NO_ERROR, base_offset
            case Reject(error_code):
                return int(error_code), NO_OFFSET
            case Accept():
                return self._accept(key, partition, row, offset_next, byte_at, append_time_ms)
            case _:
                assert_never(decision)

    def _accept(
        self,
        key: TransactionPartition,
        partition: PartitionState,
        row: int,
        offset_next: Offset,
        byte_at: int,
        append_time_ms: Milliseconds,
    ) -> tuple[int, int]:
        """Takes a batch that `decide` accepted, unless a limit is reached. Returns what `_judge` returns."""
        batches = self.command.batches
        producer_id, version = batches.producer_id[row], batches.is_transactional[row]
        producer = partition.producers.get(ProducerId(producer_id))
        is_waiting = bool(version) and is_placed_at_commit(
            self.state.topics[key[0]], partition, ProducerId(producer_id)
        )
        # Not retriable: there is no room until the transaction ends, so its producer has to abort it.
        if is_waiting and not has_unplaced_capacity(self.state, ProducerId(producer_id), batches.record_bytes[row]):
            return int(ErrorCode.policy_violation), NO_OFFSET
        # Last: it drops another producer's state, and must not for a batch that is rejected after all.
        if producer is None and not may_begin(self.state, key, partition):
            return NO_ROOM, NO_OFFSET
        advance(
            partition.producers,
            producer_id=producer_id,
            epoch=batches.producer_epoch[row],
            base_sequence=batches.base_sequence[row],
            record_count=batches.record_count[row],
            base_offset=NO_OFFSET if is_waiting else offset_next,
            time_ms=self.now_ms,
            is_run_kept=self.is_run_kept,
        )
        note_written(self.state, key, partition, ProducerId(producer_id), is_new=producer is None)
        if is_waiting:
            self._wait(partition, row, byte_at, append_time_ms)
            return NO_ERROR, NO_OFFSET
        if version:
            begin(partition, ProducerId(producer_id), offset_next)
        return NO_ERROR, offset_next

    def _wait(self, partition: PartitionState, row: int, byte_at: int, append_time_ms: Milliseconds) -> None:
        batches = self.command.batches
        is_stamped = append_time_ms != NO_TIMESTAMP
        run = UnplacedBatch(
            object_id=self.object_id,
            byte_first=byte_at,
            byte_count=batches.record_bytes[row],
            record_count=batches.record_count[row],
            max_timestamp=append_time_ms if is_stamped else Milliseconds(batches.max_timestamp[row]),
            append_time_ms=append_time_ms,
            checksum=self.crcs[row],
        )
        self.references += wait_for_commit(self.state, partition, ProducerId(batches.producer_id[row]), run)
        if is_stamped:
            self.waiting_append_time_ms[row] = append_time_ms

    def _report_repeat(self, partition: PartitionState, producer: ProducerState, row: int) -> None:
        """When the first copy of a batch that waits was appended. Sequences count the records behind it."""
        batches = self.command.batches
        runs = partition.unplaced_batches.get(ProducerId(batches.producer_id[row]), ())
        run = run_of(runs, (producer.sequence_next - batches.base_sequence[row]) % SEQUENCE_END)
        if run is not None and run.append_time_ms != NO_TIMESTAMP:
            self.waiting_append_time_ms[row] = run.append_time_ms

    def _judge_transaction(self, key: TransactionPartition, producer: ProducerState | None, row: int) -> ErrorCode:
        """Whether the batch may be written as part of its producer's transaction."""
        # First: a producer recovers from INVALID_PRODUCER_EPOCH, while INVALID_TXN_STATE is fatal to it (KAFKA-19690).
        if is_stale(producer, self.command.batches.producer_epoch[row]):
            return ErrorCode.invalid_producer_epoch
        return self._join(key, row)

    def _join(self, key: TransactionPartition, row: int) -> ErrorCode:
        batches = self.command.batches
        producer_id, epoch = ProducerId(batches.producer_id[row]), ProducerEpoch(batches.producer_epoch[row])
        return join_partition(self.state, key, producer_id, epoch, batches.is_transactional[row])

    def _is_special(
        self, key: TransactionPartition, partition: PartitionState, producer_id: ProducerId, version: int
    ) -> bool:
        """Whether the producer's next batch may be more than one that takes the next offset: it waits for its commit,
        or comes without a transaction while one is open."""
        if version:
            return is_placed_at_commit(self.state.topics[key[0]], partition, producer_id)
        return partition.has_open_transaction(producer_id)

    def _checksum(self, first: int, end: int) -> int:
        """That of the batches of rows `[first, end)`, which lie back to back."""
        packed = self.command.batch_crcs[first * CRC_BYTES : end * CRC_BYTES]
        return crc_of_crcs(packed) if packed else NO_CHECKSUM

    def _add_row(
        self,
        partition: PartitionState,
        offset_end: Offset,
        byte_first: int,
        byte_count: int,
        max_timestamp: int,
        append_time_ms: Milliseconds,
        checksum: int,
    ) -> None:
        """Add a chunk to the index. Where the broker stamps records, its time is their timestamp too (S14)."""
        if append_time_ms != NO_TIMESTAMP:
            max_timestamp = append_time_ms
        partition.index.append(
            offset_end, self.object_id, byte_first, byte_count, max_timestamp, append_time_ms, checksum
        )
        partition.log_end = offset_end
        self.references += 1


def _is_plain(batches: BatchColumns, first: int, end: int) -> bool:
    """Whether no batch has a producer or a transaction: nothing can be said against such batches."""
    return max(batches.producer_id[first:end]) == NO_PRODUCER_ID and not any(batches.is_transactional[first:end])
