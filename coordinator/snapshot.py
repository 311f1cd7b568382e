"""The whole state as canonical bytes, and back.

Layout: MessagePack, compressed by zstd, with a checksum (`coordinator.codec.snapshot_frame`). Everything is in a fixed
order (sessions, topics and objects by id, keys by name, transactional ids as they came, for which of them expire first
follows from that), so equal states give equal bytes in every process; the digest is taken before compression.

Rule: the bytes are in the form of the rules in force (`coordinator.commands.forms`), so that programs of every
version that is live give one state one digest. Derived fields are not stored but rebuilt. Anything unreadable raises
`LedgerCorrupt`. Golden files: tests/golden.
"""

import hashlib
import struct
from collections.abc import Iterator, Sequence
from typing import Final, cast

import cramjam
import msgspec

from coordinator.apply.tables import unneeded_files
from coordinator.codec.admin_wire import (
    configs_from_wire,
    configs_to_wire,
    quotas_from_wire,
    quotas_to_wire,
)
from coordinator.codec.group_wire import group_to_wire
from coordinator.codec.registry_wire import registry_to_wire
from coordinator.codec.snapshot_frame import framed, has_checksum, unframed
from coordinator.codec.snapshot_wire import (
    SnapshotComparison,
    SnapshotContent,
    SnapshotPartition,
    SnapshotSession,
    SnapshotTopic,
)
from coordinator.codec.transaction_wire import transactional_id_to_wire
from coordinator.commands.commands import Endpoint
from coordinator.commands.delegation_tokens import TokenRow
from coordinator.commands.forms import WireStruct, in_form, parts_in_form
from coordinator.commands.group_values import vacant_of
from coordinator.commands.rules import RULES_CHECKED_ENTRIES, RULES_CHECKED_STORAGE, RULES_NEWEST
from coordinator.commands.security import AclRow, ScramRow
from coordinator.configs.topic_names import shape
from coordinator.ledger.port import LedgerCorrupt, newer_rules
from coordinator.security.acl_index import AclIndex
from coordinator.state.chunk_index import COLUMNS_UNCHECKED, NO_CHECKSUM, ChunkIndex
from coordinator.state.state import (
    NO_TIME,
    ClusterState,
    DigestComparison,
    ObjectState,
    PartitionState,
    SessionState,
    TableState,
    TopicState,
)
from coordinator.state.unplaced_batches import UnplacedBatch
from protocol.decoding import DAMAGE, MsgpackDecoder, Undecodable
from protocol.types import (
    Milliseconds,
    ObjectId,
    Offset,
    PartitionIndex,
    Position,
    ProducerEpoch,
    ProducerId,
    SessionId,
    TopicId,
)
from protocol.types import Sequence as SequenceNumber
from storage.refs import ObjectKind
from txn.isolation import PartitionTransactions
from txn.producer_state import NO_POSITION, NO_SEQUENCE, ProducerState, RememberedBatch

NO_TRANSACTIONS: Final = PartitionTransactions()
ZSTD_LEVEL = 1
DIGEST_BYTES = 32

_encoder = msgspec.msgpack.Encoder()
_decoder = MsgpackDecoder(SnapshotContent)
_fields_decoder = MsgpackDecoder(list[msgspec.Raw])
_number_decoder = MsgpackDecoder(int)
_RULES_FIELD: Final = SnapshotContent.__struct_fields__.index("rules_version")
"""The same in all forms: a later version adds its fields at the end."""


class Frozen:
    """A state as it was at one moment. What is made of it can be made in a thread, while the state itself goes on.

    Taking it copies the index; a thread may do that too, as long as nothing is applied. The rest is the costly part. It
    is done in pieces, so that a thread does not keep the interpreter's lock for long.
    """

    __slots__ = ("_wire", "appends_count", "position", "rules_version")

    def __init__(self, state: ClusterState) -> None:
        self.position = state.position
        self.appends_count = state.appends_count
        self.rules_version = state.rules_version
        self._wire = _to_wire(state)

    def encode_with_digest(self) -> tuple[bytes, bytes]:
        """The bytes of a snapshot object and the state's `digest`."""
        canonical = self._canonical()
        compressed = bytes(cramjam.zstd.compress(canonical, level=ZSTD_LEVEL))
        return framed(compressed), _digest_of(canonical)

    def digest(self) -> bytes:
        """The digest of the frozen state, equal to that of `digest`."""
        return _digest_of(self._canonical())

    def _canonical(self) -> bytes:
        """The bytes that the encoder would give for the whole, made of a piece for each partition."""
        return b"".join(_pieces(self._wire, self.rules_version))


def encode_snapshot(state: ClusterState) -> bytes:
    """The state as the bytes of a snapshot object."""
    return encode_with_digest(state)[0]


def encode_with_digest(state: ClusterState) -> tuple[bytes, bytes]:
    """The bytes of a snapshot object and the state's `digest`, for one walk over the state."""
    return Frozen(state).encode_with_digest()


def digest(state: ClusterState) -> bytes:
    """Equal for equal states, different for others (safety rule S3): BLAKE2b of the canonical bytes, 32 bytes."""
    return Frozen(state).digest()


def decode_snapshot(data: bytes) -> ClusterState:
    """The state of a snapshot object. Raises `LedgerCorrupt` if it cannot be read: do not serve."""
    return decode_with_digest(data)[0]


def decode_with_digest(data: bytes) -> tuple[ClusterState, bytes]:
    """The state of a snapshot object, and the digest of the bytes that are in it.

    Raises `LedgerCorrupt`: `NewerRules` where a newer program wrote it in a form that this one does not know.

    That digest is what the snapshot's pointer says, whichever version of this program wrote it: one that knows more
    fields would write the same state in other bytes, and `digest` of what it read would differ (safety rule S3).
    """
    compressed = unframed(data)
    canonical = memoryview(b"")
    try:
        canonical = memoryview(cramjam.zstd.decompress(compressed))
        return _to_state(_decoder.decode(canonical)), _digest_of(canonical)
    except (cramjam.DecompressionError, AssertionError, *DAMAGE) as error:  # S20: an invariant may not hold either
        # Where the checksum matches, a form that cannot be read is a newer one: to recover from an older snapshot would
        # lose what came after it.
        if has_checksum(data) and (rules_version := _rules_version(canonical)) > RULES_NEWEST:
            raise newer_rules(rules_version, RULES_NEWEST) from error
        raise LedgerCorrupt(f"a snapshot cannot be read: {error!r}") from error


def _rules_version(canonical: memoryview) -> int:
    """The rules version of a state in any form; 0 where it cannot be read."""
    try:
        return _number_decoder.decode(bytes(_fields_decoder.decode(canonical)[_RULES_FIELD]))
    except (Undecodable, IndexError):
        return 0


def _digest_of(canonical: bytes | memoryview) -> bytes:
    return hashlib.blake2b(canonical, digest_size=DIGEST_BYTES).digest()


def _pieces(value: WireStruct, rules_version: int) -> Iterator[bytes]:
    """The bytes of a `SnapshotContent`, or of one of its topics, in order and in the form of a version of the rules."""
    parts = list(parts_in_form(value, rules_version))
    yield _array_header(len(parts))
    for name, part, is_newer in parts:
        if name == "topics" or name == "partitions":
            items = cast("list[WireStruct]", part)
            yield _array_header(len(items))
            for item in items:
                if isinstance(item, SnapshotTopic):
                    yield from _pieces(item, rules_version)
                else:
                    yield _encoder.encode(in_form(item, rules_version))
        else:
            yield _encoder.encode(in_form(part, rules_version) if is_newer else part)


def _array_header(count: int) -> bytes:
    """MessagePack's, in the fewest bytes."""
    if count < 16:
        return bytes([0x90 | count])
    return struct.pack(">BH", 0xDC, count) if count < 1 << 16 else struct.pack(">BI", 0xDD, count)


def _to_wire(state: ClusterState) -> SnapshotContent:
    return SnapshotContent(
        cluster_id=state.cluster_id,
        incarnation=state.incarnation,
        position=state.position,
        appends_count=state.appends_count,
        time_ms=state.time_ms,
        rules_version=state.rules_version,
        producer_id_next=state.producer_id_next,
        object_id_next=state.object_id_next,
        producers_before_deletion=state.producers_before_deletion,
        sessions=[_from_session(session_id, session) for session_id, session in sorted(state.sessions.items())],
        sessions_ended=sorted(state.sessions_ended.items()),
        topics=[_from_topic(topic, state.rules_version) for _, topic in sorted(state.topics.items())],
        objects=[
            (object_id, known.key, known.kind, known.object_bytes, known.references)
            for object_id, known in sorted(state.objects.items())
        ],
        released=sorted(state.released.items()),
        maintenance_leader=state.maintenance_leader,
        maintenance_leader_epoch=state.maintenance_leader_epoch,
        comparison=_from_comparison(state.comparison),
        groups=[group_to_wire(group) for _, group in sorted(state.groups.items())],
        group_claims_count=state.group_claims_count,
        broker_configs=configs_to_wire(state.broker_configs),
        group_configs=configs_to_wire(state.group_configs),
        client_metrics_configs=configs_to_wire(state.client_metrics_configs),
        client_quotas=quotas_to_wire(state.client_quotas),
        transactional_ids=[
            transactional_id_to_wire(name, id_state) for name, id_state in state.transactional_ids.items()
        ],
        transaction_version=state.transaction_version,
        features_epoch=state.features_epoch,
        registry=registry_to_wire(state.registry),
        acls=list(map(AclRow.of, state.acls)),
        scram=[ScramRow.of(credential_id, credential) for credential_id, credential in sorted(state.scram.items())],
        is_security_set_up=state.is_security_set_up,
        is_acls_confirmed=state.is_acls_confirmed,
        tokens=[TokenRow.of(token_id, token) for token_id, token in state.tokens.items()],
    )


def _from_comparison(comparison: DigestComparison | None) -> SnapshotComparison | None:
    if comparison is None:
        return None
    return comparison.position, comparison.shape, sorted(comparison.digests.items()), comparison.asked_count


def _from_session(session_id: SessionId, session: SessionState) -> SnapshotSession:
    return SnapshotSession(
        session=session_id,
        name=session.name,
        node_id=session.node_id,
        endpoints=[(endpoint.listener, endpoint.host, endpoint.port) for endpoint in session.endpoints],
        zone=session.zone,
        rules_version=session.rules_version,
        entry_next=session.entry_next,
        is_draining=session.is_draining,
        http_url=session.http_url,
        version=session.version,
        started_ms=session.started_ms,
        is_drain_requested=session.is_drain_requested,
        draining_since_ms=session.draining_since_ms,
    )


def _from_topic(topic: TopicState, rules_version: int) -> SnapshotTopic:
    return SnapshotTopic(
        topic_id=topic.topic_id,
        name=topic.name,
        configs=sorted(topic.configs.items()),
        created_ms=topic.created_ms,
        partitions=[_from_partition(partition, rules_version) for partition in topic.partitions],
        replicas=[(index, list(nodes)) for index, nodes in sorted(topic.replicas.items())],
        table=_from_table(topic.table),
    )


def _from_table(table: TableState | None) -> tuple[str, int, list[int]] | None:
    return None if table is None else (table.metadata_key, table.version, sorted(table.objects))


def _from_partition(partition: PartitionState, rules_version: int) -> SnapshotPartition:
    transactions = partition.transactions or NO_TRANSACTIONS
    columns = partition.index.columns()
    is_newer = rules_version >= RULES_CHECKED_STORAGE
    if not is_newer:
        del columns[COLUMNS_UNCHECKED:]  # no entry of that form has said a checksum
    return SnapshotPartition(
        log_start=partition.log_start,
        index_first=partition.index.first,
        unknown_producers_below=partition.unknown_producers_below,
        columns=[memoryview(column) for column in columns],
        producers=[
            (producer_id, producer.epoch, producer.last_active_ms, [_from_batch(batch) for batch in producer.recent])
            for producer_id, producer in sorted(partition.producers.items())
        ],
        table_start=partition.table_start,
        transactions_open=list(transactions.open.items()),
        transactions_aborted=[memoryview(column) for column in transactions.columns()]
        if transactions.aborted_count
        else [],
        waiting=[(one, list(map(_from_run, runs))) for one, runs in sorted(partition.unplaced_batches.items())],
        producer_positions=[one.last_position for _, one in sorted(partition.producers.items())] if is_newer else [],
        waiting_checksums=[[run.checksum for run in runs] for _, runs in sorted(partition.unplaced_batches.items())]
        if is_newer
        else [],
        producer_runs=[one.run_first for _, one in sorted(partition.producers.items())]
        if rules_version >= RULES_CHECKED_ENTRIES
        else [],
    )


def _from_batch(batch: RememberedBatch) -> tuple[int, int, int]:
    return batch.base_sequence, batch.sequence_end, batch.base_offset


def _to_state(wire: SnapshotContent) -> ClusterState:
    topics = {topic.topic_id: topic for topic in map(_to_topic, wire.topics)}
    objects = {
        ObjectId(object_id): ObjectState(
            key=key, kind=ObjectKind(kind), object_bytes=object_bytes, references=references
        )
        for object_id, key, kind, object_bytes, references in wire.objects
    }
    groups = {group.group_id: group.group() for group in wire.groups}
    transactional_ids = {known.transactional_id: known.value() for known in wire.transactional_ids}
    acls = dict.fromkeys(row.acl() for row in wire.acls)
    state = ClusterState(
        cluster_id=wire.cluster_id,
        incarnation=wire.incarnation,
        position=Position(wire.position),
        appends_count=wire.appends_count,
        time_ms=Milliseconds(wire.time_ms),
        rules_version=wire.rules_version,
        sessions={SessionId(session.session): _to_session(session) for session in wire.sessions},
        sessions_ended={SessionId(session_id): Milliseconds(end_ms) for session_id, end_ms in wire.sessions_ended},
        topics=topics,
        objects=objects,
        released={key: Milliseconds(released_ms) for key, released_ms in wire.released},
        maintenance_leader=None if wire.maintenance_leader is None else SessionId(wire.maintenance_leader),
        maintenance_leader_epoch=wire.maintenance_leader_epoch,
        comparison=_to_comparison(wire.comparison),
        groups=groups,
        vacant_groups=vacant_of(groups),
        group_claims_count=wire.group_claims_count,
        broker_configs=configs_from_wire(wire.broker_configs),
        group_configs=configs_from_wire(wire.group_configs),
        client_metrics_configs=configs_from_wire(wire.client_metrics_configs),
        client_quotas=quotas_from_wire(wire.client_quotas),
        transactional_ids=transactional_ids,
        producers_of_transactions={
            ProducerId(known.producer_id): known.transactional_id for known in wire.transactional_ids
        },
        open_transactions={name: None for name, id_state in transactional_ids.items() if id_state.metadata.is_ongoing},
        transaction_version=wire.transaction_version,
        features_epoch=wire.features_epoch,
        registry=wire.registry.registry(),
        acls=acls,
        scram={row.credential_id: row.credential() for row in wire.scram},
        is_security_set_up=wire.is_security_set_up,
        is_acls_confirmed=wire.is_acls_confirmed,
        acl_index=AclIndex.of(acls),
        acls_version=wire.position,
        scram_version=wire.position,
        tokens={row.token_id: row.token() for row in wire.tokens},
        tokens_version=wire.position,
        producer_id_next=ProducerId(wire.producer_id_next),
        object_id_next=ObjectId(wire.object_id_next),
        producers_before_deletion=ProducerId(wire.producers_before_deletion),
        topic_ids={topic.name: topic.topic_id for topic in topics.values()},
        topic_shapes={shape(topic.name): topic.name for topic in topics.values()},
        object_ids={known.key: object_id for object_id, known in objects.items()},
        partitions_count=sum(len(topic.partitions) for topic in topics.values()),
        producers_count=sum(len(each.producers) for topic in topics.values() for each in topic.partitions),
        topics_at=Position(wire.position),
        released_untimed=[key for key, released_ms in wire.released if released_ms == NO_TIME],
    )
    for topic in topics.values():
        topic.is_log_append_time = state.uses_append_time(topic)
        if topic.table is not None:
            topic.table.unneeded = unneeded_files(state, topic.table)
    return state


def _to_comparison(wire: SnapshotComparison | None) -> DigestComparison | None:
    if wire is None:
        return None
    position, shape, digests, asked_count = wire
    return DigestComparison(
        position=Position(position),
        shape=shape,
        digests={SessionId(session_id): said for session_id, said in digests},
        asked_count=asked_count,
    )


def _to_session(wire: SnapshotSession) -> SessionState:
    return SessionState(
        name=wire.name,
        node_id=wire.node_id,
        endpoints=tuple(Endpoint(listener=name, host=host, port=port) for name, host, port in wire.endpoints),
        zone=wire.zone,
        rules_version=wire.rules_version,
        entry_next=wire.entry_next,
        is_draining=wire.is_draining,
        http_url=wire.http_url,
        version=wire.version,
        started_ms=Milliseconds(wire.started_ms),
        is_drain_requested=wire.is_drain_requested,
        draining_since_ms=Milliseconds(wire.draining_since_ms),
    )


def _to_topic(wire: SnapshotTopic) -> TopicState:
    return TopicState(
        topic_id=TopicId(wire.topic_id),
        name=wire.name,
        configs=dict(wire.configs),
        created_ms=Milliseconds(wire.created_ms),
        partitions=[_to_partition(partition) for partition in wire.partitions],
        replicas={PartitionIndex(index): tuple(nodes) for index, nodes in wire.replicas},
        table=None if wire.table is None else _to_table(*wire.table),
    )


def _to_table(metadata_key: str, version: int, objects: list[int]) -> TableState:
    return TableState(metadata_key=metadata_key, version=version, objects=set(map(ObjectId, objects)))


def _to_partition(wire: SnapshotPartition) -> PartitionState:
    index = ChunkIndex.from_columns(Offset(wire.index_first), wire.columns)
    positions = wire.producer_positions or [NO_POSITION] * len(wire.producers)
    runs_first = wire.producer_runs or [NO_SEQUENCE] * len(wire.producers)
    checksums = wire.waiting_checksums or [[NO_CHECKSUM] * len(runs) for _, runs in wire.waiting]
    return PartitionState(
        log_start=Offset(wire.log_start),
        table_start=Offset(wire.log_start if wire.table_start is None else wire.table_start),
        log_end=index.end,
        index=index,
        producers={
            ProducerId(producer_id): ProducerState(
                epoch=ProducerEpoch(epoch),
                recent=_to_batches(recent),
                last_active_ms=Milliseconds(last_active_ms),
                last_position=Position(last_position),
                run_first=SequenceNumber(run_first),
            )
            for (producer_id, epoch, last_active_ms, recent), last_position, run_first in zip(
                wire.producers, positions, runs_first, strict=True
            )
        },
        unknown_producers_below=ProducerId(wire.unknown_producers_below),
        transactions=_to_transactions(wire),
        unplaced_batches={
            ProducerId(producer_id): [_to_run(*each) for each in zip(runs, of_runs, strict=True)]
            for (producer_id, runs), of_runs in zip(wire.waiting, checksums, strict=True)
        },
    )


def _from_run(run: UnplacedBatch) -> tuple[int, int, int, int, int, int]:
    return run[:-1]


def _to_run(wire: tuple[int, int, int, int, int, int], checksum: int) -> UnplacedBatch:
    object_id, byte_first, byte_count, record_count, max_timestamp, append_time_ms = wire
    return UnplacedBatch(
        ObjectId(object_id),
        byte_first,
        byte_count,
        record_count,
        Milliseconds(max_timestamp),
        Milliseconds(append_time_ms),
        checksum,
    )


def _to_transactions(wire: SnapshotPartition) -> PartitionTransactions | None:
    if not wire.transactions_open and not wire.transactions_aborted:
        return None
    opened = {ProducerId(producer_id): Offset(first) for producer_id, first in wire.transactions_open}
    return PartitionTransactions.from_columns(opened, wire.transactions_aborted or NO_TRANSACTIONS.columns())


def _to_batches(recent: Sequence[tuple[int, int, int]]) -> list[RememberedBatch]:
    return [
        RememberedBatch(SequenceNumber(base_sequence), SequenceNumber(sequence_end), Offset(base_offset))
        for base_sequence, sequence_end, base_offset in recent
    ]
