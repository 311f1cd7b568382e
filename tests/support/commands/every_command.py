"""Commands of every kind, by the names of their golden files, and those that entries without a checksum can carry."""

from dataclasses import replace

from msgspec import structs

from coordinator.commands.admin import (
    AlterClientQuotas,
    AlterConfigs,
    AssignReplicas,
    ConfigOperation,
    ConfigResourceType,
    CreatePartitions,
    OperationKind,
)
from coordinator.commands.agents import DescribeAgent, RequestDrain
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
    QuotaUse,
    RaiseRules,
    ReplaceChunks,
    ReplacedChunk,
    ReportDigest,
    ReportTime,
    StartDrain,
)
from coordinator.commands.delegation_tokens import (
    CreateDelegationToken,
    ExpireDelegationToken,
    RemoveExpiredTokens,
    RenewDelegationToken,
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
from coordinator.commands.rules import RULES_CHECKED_ENTRIES
from coordinator.commands.security import AlterScram, BootstrapUsers, CreateAcls, DeleteAcls, ScramRow
from coordinator.commands.transaction import (
    AddToTransaction,
    CommitTransactionalOffsets,
    ConnectionEpoch,
    EndTransaction,
    ExpireTransaction,
    ExpireTransactionalIds,
    InitTransactionalProducer,
    SetTransactionVersion,
    TerminateTransaction,
)
from coordinator.security.acls import AclFilter
from protocol.auth.operations import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from protocol.auth.principals import EVERY_USER
from protocol.auth.scram_credentials import ScramMechanism
from protocol.types import Milliseconds, Offset, PartitionIndex, Position, ProducerEpoch, ProducerId, SessionId
from tests.support.acls import make_acl
from tests.support.commands.commands import TOPIC, Batch, Chunk, commit, create, idempotent, start
from tests.support.commands.entries import since_of
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
    connection_epoch=ConnectionEpoch(position=Position(1 << 40), serial=9),
    topic_ids=(TOPIC, OTHER),
    topic=[1, 0],
    partition=[0, 9_999],
    offset=[1 << 60, -1],
    leader_epoch=[-1, 4],
    metadata=("", "text"),
)


TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
SCRAM_ROW = ScramRow(
    user="alice",
    mechanism=ScramMechanism.SCRAM_SHA_256,
    salt=bytes(range(16)),
    stored_key=bytes(range(32)),
    server_key=bytes(range(1, 33)),
    iterations=4_096,
)

TOKEN_ID = "q1yVzUZmQ4WZ3o9gUuJrPA"
CREATE_TOKEN = CreateDelegationToken(
    token_id=TOKEN_ID,
    owner="User:alice",
    requester="User:spark",
    renewers=("User:spark", "User:ü"),
    lifetime_ms=604_800_000,
    renewal_ms=86_400_000,
)


def write_classic(group: ClassicGroup) -> WriteClassicGroup:
    """The write of the group `g` under claim epoch 5."""
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
    "commit_chunks_with_quota_uses": replace(
        commit(9, Chunk(batches=[Batch()])),
        quota_uses=(QuotaUse(key=(1 << 63) - 1, byte_count=1_000_000), QuotaUse(key=0, byte_count=0)),
    ),
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
        resource_type=ConfigResourceType.TOPIC,
        resource_name="orders",
        is_whole=False,
        operations=(
            ConfigOperation(kind=OperationKind.SET, name="retention.ms", value="5"),
            ConfigOperation(kind=OperationKind.DELETE, name="segment.ms", value=""),
            ConfigOperation(kind=OperationKind.APPEND, name="cleanup.policy", value="compact", list_default="delete"),
        ),
    ),
    "alter_whole_configs": AlterConfigs(
        resource_type=ConfigResourceType.GROUP, resource_name="g", is_whole=True, operations=()
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
        connection_epoch=ConnectionEpoch(position=Position(5), serial=0),
    ),
    "end_transaction": EndTransaction(
        transactional_id="tx",
        producer_id=ProducerId(7),
        epoch=ProducerEpoch(0),
        version=TransactionVersion.V2,
        is_commit=True,
        connection_epoch=None,
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
    "create_acls": CreateAcls.of(
        [
            make_acl(),
            make_acl(Operation.ALL, "ü", principal=EVERY_USER, host="::1", permission=Permission.DENY),
            make_acl(Operation.TWO_PHASE_COMMIT, "tx-", resource_type=TRANSACTIONAL_ID, pattern=PatternType.PREFIXED),
        ]
    ),
    "delete_acls": DeleteAcls.of(AclFilter(principal="User:alice", name="orders", pattern=PatternType.MATCH)),
    "delete_every_acl": DeleteAcls.of(AclFilter()),
    "alter_scram": AlterScram(
        deletions=(("bob", ScramMechanism.SCRAM_SHA_512),),
        upsertions=(SCRAM_ROW, structs.replace(SCRAM_ROW, user="ü", mechanism=ScramMechanism.SCRAM_SHA_512)),
    ),
    "bootstrap_users": BootstrapUsers(
        credentials=(SCRAM_ROW,),
        acls=CreateAcls.of([make_acl(Operation.ALTER, CLUSTER_NAME, resource_type=ResourceType.CLUSTER)]).rows,
    ),
    "create_delegation_token": CREATE_TOKEN,
    "renew_delegation_token": RenewDelegationToken(token_id=TOKEN_ID, renewer="User:ü", period_ms=1 << 40),
    "expire_delegation_token": ExpireDelegationToken(
        token_id=TOKEN_ID, requester="User:alice", period_ms=Milliseconds(0)
    ),
    "expire_delegation_token_at_once": ExpireDelegationToken(token_id=TOKEN_ID, requester="User:alice", period_ms=None),
    "remove_expired_tokens": RemoveExpiredTokens(now_ms=Milliseconds(1 << 41), tokens_max=1_000),
    "describe_agent": DescribeAgent(
        http_url="https://10.0.0.7:9644", version="0.1.0", started_ms=Milliseconds(1 << 41)
    ),
    "describe_agent_without_a_clock": DescribeAgent(http_url=None, version="0.1.0", started_ms=None),
    "request_drain": RequestDrain(session=SessionId(1 << 40)),
    "expire_offsets": ExpireOffsets(now_ms=Milliseconds(1 << 41), retention_ms=7, group_ids=("g", "h")),
}
UNCHECKED_COMMANDS = {name: command for name, command in COMMANDS.items() if since_of(command) < RULES_CHECKED_ENTRIES}
"""The commands of the rules whose entries have no checksum."""
