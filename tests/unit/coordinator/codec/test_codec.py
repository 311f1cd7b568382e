"""Every command as the bytes of an entry. The bytes themselves are kept in tests/golden/commands."""

import contextlib
import struct
from dataclasses import replace
from math import nan
from typing import cast

import cramjam
import msgspec
import pytest
from msgspec import structs

from coordinator.codec import codec as command_codec
from coordinator.codec.codec import COMPRESSED, FORMAT_CHECKED, Unwritable
from coordinator.commands.admin import (
    AlterClientQuotas,
    AlterConfigs,
    AssignReplicas,
    ConfigOperation,
    CreatePartitions,
    OperationKind,
    QuotaEntity,
    ResourceType,
)
from coordinator.commands.commands import (
    AdvanceLogStart,
    AllocateProducerIds,
    ApplyRetention,
    ArchivedChunk,
    ClaimMaintenanceLeader,
    Command,
    CompareDigest,
    CreateTopic,
    DeleteTopic,
    EndSession,
    ExpireProducers,
    ForgetObjects,
    ForgetSessions,
    PartitionReplacement,
    Proposal,
    RaiseRules,
    ReplaceChunks,
    ReplacedChunk,
    ReportDigest,
    ReportTime,
    StartDrain,
)
from coordinator.commands.group import (
    ClaimGroups,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    WriteClassicGroup,
)
from coordinator.commands.group_values import ClassicGroup, ClassicMember
from coordinator.commands.rules import RULES_CHECKED_STORAGE
from coordinator.commands.transaction import (
    AddToTransaction,
    CommitTransactionalOffsets,
    EndTransaction,
    ExpireTransaction,
    ExpireTransactionalIds,
    InitTransactionalProducer,
    SetTransactionVersion,
    Stamp,
    TerminateTransaction,
)
from coordinator.ledger.port import LedgerCorrupt
from protocol.limits import LEDGER_ENTRY_UNPACKED_BYTES_MAX
from protocol.types import Milliseconds, Offset, PartitionIndex, Position, ProducerEpoch, ProducerId, SessionId
from tests.golden import golden_bytes
from tests.support.commands.commands import (
    TOPIC,
    Batch,
    Chunk,
    commit,
    create,
    delete_before,
    idempotent,
    retain,
    start,
)
from tests.support.commands.entries import decode, encode
from tests.support.commands.table_commits import commit_table, table_commit
from txn.transaction import TransactionVersion

OTHER = type(TOPIC)(bytes(16 * [9]))

CLASSIC = ClassicGroup(
    generation=7,
    protocol_type="consumer",
    protocol="range",
    leader="b",
    members=(
        ClassicMember(
            member_id="a",
            group_instance_id="static",
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=300_000,
            session_timeout_ms=45_000,
            protocols=(("range", b"topics"), ("sticky", b"")),
            assignment=b"partitions",
        ),
        ClassicMember(
            member_id="b",
            group_instance_id=None,
            client_id="",
            client_host="",
            rebalance_timeout_ms=-1,
            session_timeout_ms=0,
            protocols=(),
        ),
    ),
    is_synced=True,
)

COMMIT = CommitOffsets(
    groups=(("g", 5), ("h", 6)),
    topic_ids=(TOPIC, OTHER),
    group=[0, 1, 1],
    topic=[1, 0, 1],
    partition=[0, 9_999, 1],
    offset=[0, 1 << 60, 7],
    leader_epoch=[-1, 0, 3],
    retention_ms=[-1, 0, 1 << 40],
    metadata=("", "text", "ü"),
)


PENDING = CommitTransactionalOffsets(
    group_id="g",
    claim_epoch=5,
    transactional_id="tx",
    producer_id=ProducerId(7),
    epoch=ProducerEpoch(3),
    version=TransactionVersion.V1,
    stamp=Stamp(position=Position(1 << 40), serial=9),
    topic_ids=(TOPIC, OTHER),
    topic=[1, 0],
    partition=[0, 9_999],
    offset=[1 << 60, -1],
    leader_epoch=[-1, 4],
    metadata=("", "text"),
)


def write_classic(group: ClassicGroup) -> WriteClassicGroup:
    return WriteClassicGroup(group_id="g", claim_epoch=5, version=2, group=group)


COMMANDS: dict[str, Command] = {
    "start_session": start("agent-1", node=3, rules=2),
    "end_session": EndSession(session=SessionId(1 << 40)),
    "raise_rules": RaiseRules(rules_version=2),
    "create_topic": create("orders", partitions=3, retention_ms="-1", cleanup_policy="compact"),
    "delete_topic": DeleteTopic(topic_id=TOPIC),
    "allocate_producer_ids": AllocateProducerIds(count=1_000),
    "commit_chunks": commit(
        5,
        Chunk(batches=[Batch(records=3), idempotent(9, records=2)]),
        Chunk(topic_id=OTHER, partition=4, batches=[Batch(timestamp=-1, is_transactional=True)]),
        session=77,
    ),
    "commit_many_chunks": commit(6, *[Chunk(partition=n % 7, batches=[Batch(timestamp=n)]) for n in range(200)]),
    "commit_chunks_with_crcs": commit(9, Chunk(batches=[Batch(crc=0xE3069283), Batch(crc=1)])),
    "replace_chunks": ReplaceChunks(
        topic_id=TOPIC,
        object_session=SessionId(1),
        object_key="lake/t/data/x.parquet",
        object_bytes=1_000,
        partitions=(
            PartitionReplacement(
                partition=PartitionIndex(2),
                replaced=(
                    ReplacedChunk(offset_first=Offset(0), offset_end=Offset(5), object_key="intake/1/1", byte_first=8),
                ),
                archived=(
                    ArchivedChunk(
                        offset_first=Offset(0),
                        offset_end=Offset(5),
                        row_group=1,
                        row_first=10,
                        row_count=4,
                        byte_first=4,
                        byte_count=900,
                        max_timestamp=Milliseconds(-1),
                    ),
                ),
            ),
        ),
    ),
    "replace_chunks_and_table": ReplaceChunks(
        topic_id=TOPIC,
        object_session=SessionId(1),
        object_key="lake/t/data/x.parquet",
        object_bytes=1_000,
        partitions=(),
        table=table_commit(9, data_files=("lake/t/data/x.parquet",)),
    ),
    "commit_table": commit_table(table_commit(9, replaces="lake/t/metadata/a.json", released=("a", "b"))),
    "forget_objects": ForgetObjects(object_keys=("intake/1/1", "intake/1/2")),
    "forget_sessions": ForgetSessions(sessions=(SessionId(3), SessionId(4))),
    "expire_producers": ExpireProducers(cutoff_ms=Milliseconds(1_700_000_000_000)),
    "report_time": ReportTime(),
    "advance_log_start": AdvanceLogStart(
        topic_ids=(TOPIC, OTHER), topic=[0, 1, 1], partition=[2, 0, 9], log_start=[5, 0, 1 << 40]
    ),
    "apply_retention": ApplyRetention(
        now_ms=Milliseconds(1_700_000_000_000),
        topic_ids=(TOPIC, OTHER),
        retention_ms=604_800_000,
        retention_bytes=-1,
        is_deleting=True,
    ),
    "apply_retention_in_part": ApplyRetention(
        now_ms=Milliseconds(1_700_000_000_000),
        topic_ids=(TOPIC, TOPIC),
        retention_ms=-1,
        retention_bytes=1_000,
        is_deleting=False,
        partitions=((0, 3), (7, 10_000)),
        chunks_max=2_000,
    ),
    "start_drain": StartDrain(session=SessionId(1 << 40)),
    "claim_housekeeper": ClaimMaintenanceLeader(epoch=3),  # named as the golden files that first had it
    "compare_digest": CompareDigest(shape=bytes(range(8))),
    "report_digest": ReportDigest(position=Position(1 << 45), digest=bytes(range(32))),
    "report_no_digest": ReportDigest(position=Position(7), digest=None),
    "create_partitions": CreatePartitions(topic_id=TOPIC, partition_count=7),
    "create_topic_with_replicas": CreateTopic(
        name="t", topic_id=TOPIC, partition_count=2, configs=(), replicas=((1, 1 << 30), (2,))
    ),
    "create_partitions_with_replicas": CreatePartitions(
        topic_id=TOPIC, partition_count=7, replicas=((3, 1, 2), (2,), (1, 3))
    ),
    "assign_replicas": AssignReplicas(
        topic_id=TOPIC, replicas=((PartitionIndex(0), (2, 1)), (PartitionIndex(9), (3,)))
    ),
    "alter_configs": AlterConfigs(
        resource_type=ResourceType.TOPIC,
        resource_name="orders",
        is_whole=False,
        operations=(
            ConfigOperation(kind=OperationKind.SET, name="retention.ms", value="5"),
            ConfigOperation(kind=OperationKind.DELETE, name="segment.ms", value=""),
            ConfigOperation(kind=OperationKind.APPEND, name="cleanup.policy", value="compact", list_default="delete"),
        ),
    ),
    "alter_whole_configs": AlterConfigs(
        resource_type=ResourceType.GROUP, resource_name="g", is_whole=True, operations=()
    ),
    "alter_client_quotas": AlterClientQuotas(
        entity=(("client-id", None), ("user", "ann")), quotas=(("producer_byte_rate", 1024.0), ("x", None))
    ),
    "init_transactional_producer": InitTransactionalProducer(
        transactional_id="tx", timeout_ms=60_000, producer_id=ProducerId(-1), epoch=ProducerEpoch(-1)
    ),
    "add_to_transaction": AddToTransaction(
        transactional_id="tx",
        producer_id=ProducerId(1 << 40),
        epoch=ProducerEpoch(32_766),
        partitions=((TOPIC, PartitionIndex(3)), (OTHER, PartitionIndex(0))),
        groups=("g", "ü"),
        stamp=Stamp(position=Position(5), serial=0),
    ),
    "end_transaction": EndTransaction(
        transactional_id="tx",
        producer_id=ProducerId(7),
        epoch=ProducerEpoch(0),
        version=TransactionVersion.V2,
        is_commit=True,
        stamp=None,
    ),
    "expire_transaction": ExpireTransaction(
        transactional_id="tx", producer_id=ProducerId(7), epoch=ProducerEpoch(3), serial=1 << 33
    ),
    "terminate_transaction": TerminateTransaction(
        producer_id=ProducerId(7), epoch=ProducerEpoch(32_767), is_commit=False
    ),
    "expire_transactional_ids": ExpireTransactionalIds(cutoff_ms=Milliseconds(1 << 41)),
    "expire_some_transactional_ids": ExpireTransactionalIds(cutoff_ms=Milliseconds(7), ids_max=3),
    "set_transaction_version": SetTransactionVersion(level=1),
    "commit_transactional_offsets": PENDING,
    "claim_groups": ClaimGroups(group_ids=("g", "", "ü")),
    "write_classic_group": write_classic(CLASSIC),
    "write_empty_group": WriteClassicGroup(
        group_id="g",
        claim_epoch=5,
        version=3,
        group=ClassicGroup(generation=8, protocol_type="", protocol=None, leader=None, members=(), is_synced=True),
    ),
    "commit_offsets": COMMIT,
    "commit_offsets_without_metadata": CommitOffsets(
        groups=(("g", 5),),
        topic_ids=(TOPIC,),
        group=[0],
        topic=[0],
        partition=[0],
        offset=[1],
        leader_epoch=[-1],
        retention_ms=[-1],
    ),
    "delete_offsets": DeleteOffsets(group_id="g", claim_epoch=5, partitions=((TOPIC, PartitionIndex(3)),)),
    "delete_group": DeleteGroup(group_id="g", claim_epoch=5),
    "expire_offsets": ExpireOffsets(now_ms=Milliseconds(1 << 41), retention_ms=7, group_ids=("g", "h")),
}


@pytest.mark.parametrize("name", COMMANDS)
class TestGoldenFiles:
    def test_an_entry_of_any_age_is_read(self, name: str) -> None:
        proposal = Proposal(time_ms=Milliseconds(1_700_000_000_000), command=COMMANDS[name])
        kept = golden_bytes(f"commands/{name}", encode(proposal, RULES_CHECKED_STORAGE))
        assert encode(decode(kept)) == encode(proposal)

    def test_a_time_that_nobody_checked_is_left_out(self, name: str) -> None:
        assert decode(encode(Proposal(time_ms=None, command=COMMANDS[name]))).time_ms is None


def test_commands_without_columns_come_back_equal() -> None:
    for name, command in COMMANDS.items():
        if not name.startswith("commit"):
            proposal = Proposal(time_ms=Milliseconds(3), command=command)
            assert decode(encode(proposal)) == proposal


def test_a_rebalance_that_is_due_is_kept() -> None:
    proposal = Proposal(time_ms=None, command=write_classic(structs.replace(CLASSIC, is_rebalance_due=True)))
    assert decode(encode(proposal)) == proposal


def test_small_entries_are_plain_and_large_ones_compressed() -> None:
    assert encode(Proposal(time_ms=None, command=COMMANDS["commit_chunks"]))[:2] == bytes([FORMAT_CHECKED, 0])
    assert encode(Proposal(time_ms=None, command=COMMANDS["commit_many_chunks"]))[:2] == bytes([2, COMPRESSED])


def plain(body: object) -> bytes:
    return bytes([1, 0]) + msgspec.msgpack.encode(body)


def compressed(frame: bytes, size: int) -> bytes:
    return bytes([1, COMPRESSED]) + struct.pack("<I", size) + frame


class TestUnreadableEntries:
    @pytest.mark.parametrize(
        ("payload", "message"),
        [
            (b"", "no header"),
            (b"\x01", "no header"),
            (b"\x03\x00\x92", "format 3; this program reads 1 and 2: it is damaged, or upgrade"),
            (b"\x01\x02\x92", "unknown flags 0x2"),
            (b"\x01\x00", "cannot be read"),
            (b"\x01\x00\xc1", "cannot be read"),
            (plain([5, [99]]), "cannot be read"),
            (plain([-5, [12]]), "cannot be read"),
            (plain([1 << 63, [12]]), "cannot be read"),
            (plain([5, [5, b"short"]]), "cannot be read"),
            (plain([5, [2, -1]]), "cannot be read"),
            (plain([5, [17, bytes(7)]]), "cannot be read"),
            (plain([5, [18, 1, bytes(31)]]), "cannot be read"),
            (b"\x01\x00\x92\x05\x92\x03\xa1\x80", "cannot be read"),
            (b"\x01\x00\x92\x05\x92\x09\x91\xa1\x80", "cannot be read"),
            (b"\x01\x01\x05", "ends before its size"),
            (compressed(b"", LEDGER_ENTRY_UNPACKED_BYTES_MAX + 1), "would unpack"),
            (compressed(b"no frame", 10), "cannot be unpacked"),
            (compressed(bytes(cramjam.zstd.compress(b"abc")), 2), "cannot be unpacked"),
            (compressed(bytes(cramjam.zstd.compress(b"abc")), 4), "unpacks to 3 bytes where 4"),
        ],
    )
    def test_the_message_says_what_is_wrong(self, payload: bytes, message: str) -> None:
        with pytest.raises(LedgerCorrupt, match=message):
            decode(payload)

    @pytest.mark.parametrize("name", COMMANDS)
    def test_without_a_checksum_a_flipped_bit_is_corruption_or_another_command(self, name: str) -> None:
        payload = encode(
            Proposal(time_ms=Milliseconds(1_700_000_000_000), command=COMMANDS[name]), RULES_CHECKED_STORAGE
        )
        for bit in range(16, len(payload) * 8, 1 + len(payload) // 40):
            damaged = bytearray(payload)
            damaged[bit // 8] ^= 1 << (bit % 8)
            with contextlib.suppress(LedgerCorrupt):
                decode(bytes(damaged))


class TestUnwritableCommands:
    """An entry that no agent can read would stop all of them for ever."""

    @pytest.mark.parametrize(
        ("command", "message"),
        [
            (commit(1, Chunk(batches=[Batch(producer=-2)])), "producer id below -1"),
            (commit(1, Chunk(batches=[Batch(records=0)])), "without records"),
            (commit(1, Chunk(batches=[Batch(records=1 << 31)])), "without records"),
            (commit(1, Chunk(batches=[Batch(records=1 << 32)])), "CommitChunks cannot be written"),
            (commit(1, Chunk(batches=[])), "have lengths"),
            (commit(1, Chunk(partition=1 << 31, batches=[Batch()])), "beyond 31 bits"),
            (commit(-1, Chunk(batches=[Batch()])), "cannot be read"),
            (replace(commit(1, Chunk(batches=[Batch()])), batch_crcs=bytes(5)), "5 bytes of CRCs of 1 batches"),
            (DeleteTopic(topic_id=type(TOPIC)(b"short")), "cannot be read"),
            (create("\ud800"), "CreateTopic cannot be written"),
            (delete_before(-1), "a log start of -1"),
            (delete_before(1, partition=1 << 31), "a partition index of 2147483648"),
            (AdvanceLogStart(topic_ids=(TOPIC,), topic=[1], partition=[0], log_start=[0]), "topic 1 where 1 are"),
            (AdvanceLogStart(topic_ids=(), topic=[], partition=[], log_start=[]), "have lengths"),
            (retain(-1), "cannot be read"),
            (AllocateProducerIds(count=1 << 64), "AllocateProducerIds cannot be written"),
            (replace(COMMIT, group=[2, 1, 1]), "group 2, topic 1 where 2 and 2"),
            (replace(COMMIT, topic=[2, 1, 1]), "group 1, topic 2 where 2 and 2"),
            (replace(COMMIT, partition=[0, 1 << 31, 1]), "a partition index of 2147483648"),
            (replace(COMMIT, metadata=("",)), "1 texts for 3 committed"),
            (CreatePartitions(topic_id=TOPIC, partition_count=1 << 31), "cannot be read"),
            (AlterClientQuotas(entity=(("user", "a"),), quotas=(("x", 0.0),)), "cannot be read"),
            (AlterClientQuotas(entity=(("user", "a"),), quotas=(("x", nan),)), "cannot be read"),
            (
                AlterConfigs(resource_type=cast("ResourceType", 3), resource_name="", is_whole=False, operations=()),
                "AlterConfigs cannot be written: .*Invalid enum value 3",
            ),
            (create(retention_ms="1" * LEDGER_ENTRY_UNPACKED_BYTES_MAX), "would unpack to"),
        ],
    )
    def test_are_refused_at_the_proposer(self, command: Command, message: str) -> None:
        with pytest.raises(Unwritable, match=message):
            encode(Proposal(time_ms=None, command=command))

    @pytest.mark.parametrize("entity", [(), (("user", "a"), ("ip", "b")), (("user", "a"), ("user", "b"))])
    def test_quotas_of_what_is_no_entity_cannot_be_made_or_read(self, entity: QuotaEntity) -> None:
        with pytest.raises(ValueError, match="an entity of the types"):
            AlterClientQuotas(entity=entity, quotas=())
        with pytest.raises(LedgerCorrupt, match="an entity of the types"):
            decode(plain([None, [29, entity, []]]))

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"members": CLASSIC.members[:1] * 2}, "out of order"),
            ({"leader": "c"}, "'c' leads 'range'"),
            ({"protocol": None}, "'b' leads None"),
            ({"members": ()}, "'b' leads 'range'"),
        ],
    )
    def test_a_group_that_contradicts_itself_cannot_be_made_or_read(
        self, changes: dict[str, object], message: str
    ) -> None:
        with pytest.raises(ValueError, match=message):
            write_classic(structs.replace(CLASSIC, **changes))
        group = list({**structs.asdict(CLASSIC), **changes}.values())
        with pytest.raises(LedgerCorrupt, match=message):
            decode(plain([None, [20, "g", 5, 2, group]]))

    def test_a_retention_of_other_partitions_than_topics_cannot_be_made_or_read(self) -> None:
        with pytest.raises(ValueError, match="2 ranges of partitions for 1 topics"):
            structs.replace(retain(1), partitions=((0, 1), (2, 3)))
        with pytest.raises(LedgerCorrupt, match="2 ranges of partitions for 1 topics"):
            decode(plain([None, [16, 1, [TOPIC], 1, 1, True, [[0, 1], [2, 3]]]]))

    def test_what_is_too_large_is_refused_before_it_is_read_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        read: list[int] = []
        monkeypatch.setattr(command_codec, "_read_body", lambda body: read.append(len(body)))
        with pytest.raises(Unwritable, match="would unpack to"):
            encode(Proposal(time_ms=None, command=create(retention_ms="1" * LEDGER_ENTRY_UNPACKED_BYTES_MAX)))
        assert read == []

    def test_so_are_times_before_1970(self) -> None:
        with pytest.raises(Unwritable, match="cannot be read"):
            encode(Proposal(time_ms=Milliseconds(-1), command=ReportTime()))
