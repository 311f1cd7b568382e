"""Each invariant is missed when it is broken by hand."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from coordinator.apply.objects import add_object
from coordinator.commands.group import ClaimGroups, WriteClassicGroup
from coordinator.commands.group_values import ClassicGroup, GroupState
from coordinator.invariants import check
from coordinator.security.delegation_tokens import DelegationToken
from coordinator.state.chunk_index import ChunkIndex
from coordinator.state.state import ClusterState, DigestComparison, PartitionState, TableState, TopicState
from protocol.auth.principals import USER, Principal
from protocol.auth.scram_credentials import ScramMechanism
from protocol.limits import ACLS_MAX, DELEGATION_TOKENS_MAX
from protocol.types import Milliseconds, ObjectId, Offset, PartitionIndex, Position, ProducerId, Sequence, SessionId
from storage.refs import ObjectKind
from tests.support.acls import make_acl
from tests.support.commands.commands import TOPIC, Cluster, idempotent, start
from tests.support.commands.every_command import SCRAM_ROW
from tests.support.commands.group_commands import GENERATION, offsets
from txn.producer_state import ProducerState, RememberedBatch

FUTURE = Milliseconds(1 << 40)


def sound() -> ClusterState:
    cluster = Cluster.started()
    cluster.do(start("b", node=2), session=2)
    cluster.produce(0, idempotent(0), idempotent(1))
    for session in (1, 2):
        cluster.do(ClaimGroups(group_ids=("g", "h")), session=session)
    held = cluster.state.groups["g"]
    written = WriteClassicGroup(group_id="g", claim_epoch=held.claim_epoch, version=0, group=GENERATION)
    cluster.do(written, session=held.claimed_by)
    cluster.do(offsets(("g", held.claim_epoch), 5), session=held.claimed_by)
    return cluster.state


def topic(state: ClusterState) -> TopicState:
    return state.topics[TOPIC]


def partition(state: ClusterState) -> PartitionState:
    return state.topics[TOPIC].partitions[0]


def replicas_of_no_partition(state: ClusterState) -> None:
    topic(state).replicas[PartitionIndex(1)] = (1,)


def no_replicas(state: ClusterState) -> None:
    topic(state).replicas[PartitionIndex(0)] = ()


def one_replica_twice(state: ClusterState) -> None:
    topic(state).replicas[PartitionIndex(0)] = (1, 2, 1)


def producer(state: ClusterState) -> ProducerState:
    return partition(state).producers[ProducerId(7)]


def live_and_ended(state: ClusterState) -> None:
    state.sessions_ended[SessionId(1)] = Milliseconds(0)


def one_name(state: ClusterState) -> None:
    state.sessions[SessionId(2)].name = "a"


def one_node(state: ClusterState) -> None:
    state.sessions[SessionId(2)].node_id = 1


def no_first_entry(state: ClusterState) -> None:
    state.sessions[SessionId(1)].entry_next = 0


def old_rules(state: ClusterState) -> None:
    state.rules_version = 2


def maintenance_leader_is_gone(state: ClusterState) -> None:
    state.maintenance_leader = SessionId(9)


def dead_reporter(state: ClusterState) -> None:
    state.comparison = DigestComparison(
        position=state.position, shape=bytes(8), digests={SessionId(8): bytes(32), SessionId(9): None}, asked_count=2
    )


def reporters_nobody_asked(state: ClusterState) -> None:
    state.comparison = DigestComparison(
        position=state.position, shape=bytes(8), digests={SessionId(8): bytes(32)}, asked_count=0
    )


def late_end(state: ClusterState) -> None:
    state.sessions_ended[SessionId(3)] = FUTURE


def lost_name(state: ClusterState) -> None:
    state.topic_ids.clear()


def lost_shape(state: ClusterState) -> None:
    state.topic_shapes.clear()


def lost_partition(state: ClusterState) -> None:
    state.partitions_count = 0


def short_index(state: ClusterState) -> None:
    partition(state).log_end = Offset(9)


def no_partitions(state: ClusterState) -> None:
    topic(state).partitions.clear()


def configs_in_disorder(state: ClusterState) -> None:
    topic(state).configs = {"b": "1", "a": "2"}


def wrong_clock(state: ClusterState) -> None:
    topic(state).configs = {"message.timestamp.type": "LogAppendTime"}


def resource_without_configs(state: ClusterState) -> None:
    state.group_configs = {"g": {}}


def resource_in_disorder(state: ClusterState) -> None:
    state.broker_configs = {"": {"b": "1", "a": "2"}}


def quotas_of_nobody(state: ClusterState) -> None:
    state.client_quotas = {(): {"a": 1.0}}


def index_without_acls(state: ClusterState) -> None:
    state.acls[make_acl()] = None


def credential_before_any(state: ClusterState) -> None:
    state.scram["a", ScramMechanism.SCRAM_SHA_256] = SCRAM_ROW.credential()


def too_many_acls(state: ClusterState) -> None:
    state.is_security_set_up = True
    for number in range(ACLS_MAX + 1):
        state.acls[make_acl(name=f"t{number}")] = None


def token(**times: int) -> DelegationToken:
    alice = Principal(USER, "alice")
    ends = {name: Milliseconds(time) for name, time in {"issue_ms": 1, "expiry_ms": 2, "max_ms": 2, **times}.items()}
    return DelegationToken(owner=alice, requester=alice, renewers=(), **ends)


def too_many_tokens(state: ClusterState) -> None:
    state.tokens = {str(number): token() for number in range(DELEGATION_TOKENS_MAX + 1)}


def token_beyond_its_life(state: ClusterState) -> None:
    state.tokens["A"] = token(expiry_ms=3)


def no_quota(state: ClusterState) -> None:
    state.client_quotas = {(("user", None),): {"a": 0.0}}


def early_start(state: ClusterState) -> None:
    partition(state).log_start = Offset(-1)


def late_table(state: ClusterState) -> None:
    partition(state).table_start = Offset(9)


def unneeded_chunk(state: ClusterState) -> None:
    partition(state).log_start = partition(state).table_start = Offset(2)


def empty_chunk(state: ClusterState) -> None:
    index: ChunkIndex = partition(state).index
    index.append(index.end, 1, 0, 1, 1, -1)


def exempt_producers(state: ClusterState) -> None:
    partition(state).unknown_producers_below = ProducerId(99)


def no_batches(state: ClusterState) -> None:
    producer(state).recent.clear()


def many_batches(state: ClusterState) -> None:
    one = producer(state)
    one.recent = [batch._replace(base_offset=Offset(n)) for n, batch in enumerate(one.recent[-1:] * 11)]


def wrong_offsets(state: ClusterState) -> None:
    producer(state).recent.reverse()


def late_offsets(state: ClusterState) -> None:
    producer(state).recent[-1] = RememberedBatch(Sequence(1), Sequence(2), Offset(50))


def wild_sequence(state: ClusterState) -> None:
    producer(state).recent[0] = RememberedBatch(Sequence(-1), Sequence(1), Offset(0))


def wrong_next(state: ClusterState) -> None:
    producer(state).sequence_next = Sequence(5)


def wrong_run(state: ClusterState) -> None:
    producer(state).run_first = Sequence(-2)


def position_to_come(state: ClusterState) -> None:
    producer(state).last_position = Position(state.position + 1)


def late_activity(state: ClusterState) -> None:
    producer(state).last_active_ms = FUTURE


def wrong_references(state: ClusterState) -> None:
    state.objects[ObjectId(1)].references = 5


def table(state: ClusterState) -> TableState:
    """A table of one object, which is counted."""
    found = topic(state).table = TableState(metadata_key="m", version=1, objects={state.object_id_next})
    add_object(state, key="m", kind=ObjectKind.TABLE_METADATA, object_bytes=1, references=1)
    return found


def uncounted_table(state: ClusterState) -> None:
    topic(state).table = TableState(metadata_key="m", version=1, objects={ObjectId(1)})


def table_without_metadata(state: ClusterState) -> None:
    table(state).metadata_key = "n"


def table_of_no_commit(state: ClusterState) -> None:
    table(state).version = 0


def unneeded_without_reason(state: ClusterState) -> None:
    held = table(state)
    held.unneeded = set(held.objects)


def lost_key(state: ClusterState) -> None:
    state.object_ids.clear()


def live_and_released(state: ClusterState) -> None:
    state.released[state.objects[ObjectId(1)].key] = Milliseconds(0)


def id_again(state: ClusterState) -> None:
    state.object_id_next = ObjectId(1)


def late_release(state: ClusterState) -> None:
    state.released["x"] = FUTURE


def vacant_group_unlisted(state: ClusterState) -> None:
    state.vacant_groups.clear()


def group(state: ClusterState) -> GroupState:
    return state.groups["g"]


def generation(state: ClusterState) -> ClassicGroup:
    value = group(state).value
    assert isinstance(value, ClassicGroup)
    return value


def wrong_group_id(state: ClusterState) -> None:
    group(state).group_id = "x"


def one_claim_twice(state: ClusterState) -> None:
    group(state).claim_epoch = state.groups["h"].claim_epoch


def unknown_claim(state: ClusterState) -> None:
    state.group_claims_count = 1


def empty_with_members(state: ClusterState) -> None:
    group(state).empty_since_ms = Milliseconds(0)


def empty_in_the_future(state: ClusterState) -> None:
    group(state).value = replace(generation(state), members=(), leader=None, protocol=None)
    group(state).empty_since_ms = FUTURE


def offset_beyond_the_count(state: ClusterState) -> None:
    group(state).commits_count = 0


def topic_without_offsets(state: ClusterState) -> None:
    group(state).offsets[TOPIC].clear()


def offset_of_no_partition(state: ClusterState) -> None:
    found = group(state).offsets[TOPIC]
    found[PartitionIndex(9)] = found[PartitionIndex(0)]


def late_commit(state: ClusterState) -> None:
    found = group(state).offsets[TOPIC]
    found[PartitionIndex(0)] = found[PartitionIndex(0)]._replace(commit_ms=FUTURE)


def member_twice(state: ClusterState) -> None:
    group(state).value = replace(generation(state), members=generation(state).members * 2)


def strange_leader(state: ClusterState) -> None:
    group(state).value = replace(generation(state), leader="x")


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (live_and_ended, "are live and ended"),
        (one_name, "have the name 'a'"),
        (one_node, "have the node id 1"),
        (no_first_entry, "without its first entry"),
        (old_rules, "does not know the rules"),
        (maintenance_leader_is_gone, "is the maintenance leader and is not live"),
        (dead_reporter, "sessions [9] are to report a digest and are not live"),
        (reporters_nobody_asked, "1 sessions are to report a digest, and 0 were asked"),
        (late_end, "session 3 ends in the future"),
        (lost_name, "topic_ids does not mirror"),
        (lost_shape, "topic_shapes does not mirror"),
        (lost_partition, "partitions_count is 0"),
        (short_index, "the log at 9"),
        (early_start, "the log starts at -1"),
        (late_table, "the table starts at 9"),
        (unneeded_chunk, "needs the chunk at 0"),
        (empty_chunk, "chunk at 2 is empty"),
        (exempt_producers, "exempt from rule S8"),
        (no_batches, "expects sequence 2 after []"),
        (many_batches, "remembers 11 batches"),
        (wrong_offsets, "remembers batches at"),
        (late_offsets, "remembers batches at"),
        (wild_sequence, "remembers the sequences -1"),
        (wrong_next, "expects sequence 5"),
        (wrong_run, "its run begins at sequence -2"),
        (position_to_come, "was active at position"),
        (late_activity, "was active in the future"),
        (wrong_references, "the objects count"),
        (uncounted_table, "the objects count"),
        (table_without_metadata, "version 1 of its table has the metadata 'n'"),
        (table_of_no_commit, "version 0 of its table has the metadata 'm'"),
        (unneeded_without_reason, "no chunk refers to the files [], noted are"),
        (lost_key, "object_ids does not mirror"),
        (live_and_released, "referred to and released"),
        (id_again, "given twice"),
        (late_release, "'x' was released in the future"),
        (wrong_group_id, "group 'g': calls itself 'x'"),
        (one_claim_twice, "of 2 claims groups have"),
        (unknown_claim, "of 1 claims groups have"),
        (vacant_group_unlisted, "vacant groups are listed as [], and are ['h']"),
        (empty_with_members, "is empty since 0, and has members: True"),
        (empty_in_the_future, "is empty since the future"),
        (topic_without_offsets, "without an offset"),
        (offset_beyond_the_count, "-0 as number 1 of 0"),
        (offset_of_no_partition, "-9, which is not there"),
        (late_commit, "in the future"),
        (member_twice, "has the members ['m1', 'm1']"),
        (strange_leader, "'x' leads 'range'"),
        (no_partitions, "t has no partition"),
        (configs_in_disorder, "t has its configs in another order"),
        (wrong_clock, "t: whose clock stamps records is not what its configs say"),
        (replicas_of_no_partition, "t-1 was given the replicas [1]"),
        (no_replicas, "t-0 was given the replicas []"),
        (one_replica_twice, "t-0 was given the replicas [1, 2, 1]"),
        (resource_without_configs, "the group 'g' has the configs []"),
        (resource_in_disorder, "the broker '' has the configs ['b', 'a']"),
        (quotas_of_nobody, "quotas of an entity of the types []"),
        (no_quota, "has the quotas {'a': 0.0}"),
        (index_without_acls, "acl_index does not mirror the 1 ACLs"),
        (credential_before_any, "0 ACLs and 1 credentials are there, and none ever was"),
        (too_many_tokens, f"{DELEGATION_TOKENS_MAX + 1} delegation tokens are more than there may be"),
        (token_beyond_its_life, "the delegation token A does not end between its begin and its longest life"),
        (too_many_acls, f"{ACLS_MAX + 1} ACLs and 0 credentials are more than there may be"),
    ],
)
def test_a_broken_invariant_is_named(damage: Callable[[ClusterState], None], sentence: str) -> None:
    state = sound()
    assert check(state) == []
    damage(state)
    assert any(sentence in fault for fault in check(state)), check(state)


def test_an_empty_state_is_sound() -> None:
    assert check(ClusterState.empty("c", 1)) == []
    assert ClusterState.empty("c", 1).position == Position(0)
