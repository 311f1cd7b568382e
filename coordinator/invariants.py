"""Invariants of every state that entries can lead to. Tests check them after every entry; `penstock audit` may, too.

Rule: reads everything, changes nothing, and costs time in proportion to the state.
"""

from collections import Counter
from collections.abc import Iterator

from coordinator.apply.tables import unneeded_files
from coordinator.commands.admin import check_quota_entity
from coordinator.commands.group_values import ClassicGroup, GroupState, vacant_of
from coordinator.configs.topic_names import shape
from coordinator.security.acl_index import AclIndex
from coordinator.state.chunk_index import NO_OBJECT, OFFSET_FIRST
from coordinator.state.registry import registry_faults
from coordinator.state.state import ClusterState, PartitionState, TopicState
from coordinator.state.transaction_invariants import transaction_faults
from protocol.limits import ACLS_MAX, DELEGATION_TOKENS_MAX, SCRAM_CREDENTIALS_MAX
from protocol.types import SEQUENCE_END
from txn.producer_state import BATCHES_REMEMBERED, NO_SEQUENCE, SEQUENCE_FIRST, ProducerState


def check(state: ClusterState) -> list[str]:
    """Every invariant that does not hold, as a sentence; empty for a sound state."""
    parts = (_sessions, _comparison, _topics, _objects, _groups, _configs, _security, transaction_faults)
    return [*(fault for part in parts for fault in part(state)), *registry_faults(state.registry)]


def _sessions(state: ClusterState) -> Iterator[str]:
    both = state.sessions.keys() & state.sessions_ended.keys()
    if both:
        yield f"sessions {sorted(both)} are live and ended"
    names = Counter(session.name for session in state.sessions.values())
    nodes = Counter(session.node_id for session in state.sessions.values())
    for kind, counts in (("name", names), ("node id", nodes)):
        for value, count in counts.items():
            if count > 1:
                yield f"{count} live sessions have the {kind} {value!r}"
    for session_id, session in state.sessions.items():
        if session.entry_next < 1:
            yield f"session {session_id} is live without its first entry"
        if session.rules_version < state.rules_version:
            yield f"session {session_id} does not know the rules in force"
    if state.maintenance_leader is not None and state.maintenance_leader not in state.sessions:
        yield f"session {state.maintenance_leader} is the maintenance leader and is not live"
    for session_id, end_ms in state.sessions_ended.items():
        if end_ms > state.time_ms:
            yield f"session {session_id} ends in the future"


def _comparison(state: ClusterState) -> Iterator[str]:
    said = {} if state.comparison is None else state.comparison.digests
    silent = {session_id for session_id, digest in said.items() if digest is None}
    if not silent <= state.sessions.keys():
        yield f"sessions {sorted(silent - state.sessions.keys())} are to report a digest and are not live"
    if state.comparison is not None and len(said) > state.comparison.asked_count:
        yield f"{len(said)} sessions are to report a digest, and {state.comparison.asked_count} were asked"


def _topics(state: ClusterState) -> Iterator[str]:
    if state.topic_ids != {topic.name: topic_id for topic_id, topic in state.topics.items()}:
        yield "topic_ids does not mirror topics"
    if state.topic_shapes != {shape(topic.name): topic.name for topic in state.topics.values()}:
        yield "topic_shapes does not mirror topics: two names collide, or one is missing"
    if state.partitions_count != sum(len(topic.partitions) for topic in state.topics.values()):
        yield f"partitions_count is {state.partitions_count}"
    if state.producers_count != sum(
        len(each.producers) for topic in state.topics.values() for each in topic.partitions
    ):
        yield f"producers_count is {state.producers_count}"
    for topic in state.topics.values():
        if not topic.partitions:
            yield f"{topic.name} has no partition"
        if list(topic.configs) != sorted(topic.configs):
            yield f"{topic.name} has its configs in another order than that of their names"
        if topic.is_log_append_time != state.uses_append_time(topic):
            yield f"{topic.name}: whose clock stamps records is not what its configs say"
        for index, replicas in topic.replicas.items():
            if not 0 <= index < len(topic.partitions) or not replicas or len(set(replicas)) < len(replicas):
                yield f"{topic.name}-{index} was given the replicas {list(replicas)}"
        yield from _partitions(state, topic)


def _partitions(state: ClusterState, topic: TopicState) -> Iterator[str]:
    for number, partition in enumerate(topic.partitions):
        where = f"{topic.name}-{number}"
        for fault in _index(partition):
            yield f"{where}: {fault}"
        if partition.unknown_producers_below > state.producer_id_next:
            yield f"{where}: producers beyond the allocated ids are exempt from rule S8"
        for producer_id, producer in partition.producers.items():
            for fault in _producer(state, partition, producer):
                yield f"{where}: producer {producer_id} {fault}"


def _index(partition: PartitionState) -> Iterator[str]:
    index = partition.index
    if index.end != partition.log_end:
        yield f"the index ends at {index.end}, the log at {partition.log_end}"
    for what, start in (("log", partition.log_start), ("table", partition.table_start)):
        if not index.first <= start <= partition.log_end:
            yield f"the {what} starts at {start}, its chunks at {index.first}, and the log ends at {partition.log_end}"
    if len(index) and index.row(0).offset_end <= min(partition.log_start, partition.table_start):
        yield f"neither log nor table needs the chunk at {index.first}"
    for chunk in index.rows_from(index.first):
        if chunk.offset_first >= chunk.offset_end:
            yield f"the chunk at {chunk.offset_first} is empty"


def _producer(state: ClusterState, partition: PartitionState, producer: ProducerState) -> Iterator[str]:
    if len(producer.recent) > BATCHES_REMEMBERED:
        yield f"remembers {len(producer.recent)} batches"
    offsets = [batch.base_offset for batch in producer.recent if batch.base_offset >= OFFSET_FIRST]
    if offsets != sorted(set(offsets)) or (offsets and offsets[-1] >= partition.log_end):
        yield f"remembers batches at {offsets}"
    for batch in producer.recent:
        if not (0 <= batch.base_sequence < SEQUENCE_END and 0 <= batch.sequence_end < SEQUENCE_END):
            yield f"remembers the sequences {batch.base_sequence} to {batch.sequence_end}"
    if producer.sequence_next != (producer.recent[-1].sequence_end if producer.recent else SEQUENCE_FIRST):
        yield f"expects sequence {producer.sequence_next} after {producer.recent[-1:]}"
    if not (NO_SEQUENCE <= producer.run_first < SEQUENCE_END) or (producer.run_first >= 0 and not producer.recent):
        yield f"its run begins at sequence {producer.run_first}, and it remembers {len(producer.recent)} batches"
    if producer.last_position > state.position:
        yield f"was active at position {producer.last_position} of {state.position}"
    if producer.last_active_ms > state.time_ms:
        yield "was active in the future"


def _objects(state: ClusterState) -> Iterator[str]:
    references = Counter(
        object_id
        for topic in state.topics.values()
        for partition in topic.partitions
        for object_id in partition.index.object_ids()
        if object_id != NO_OBJECT
    )
    references.update(
        run.object_id
        for topic in state.topics.values()
        for partition in topic.partitions
        for runs in partition.unplaced_batches.values()
        for run in runs
    )
    references.update(
        object_id for topic in state.topics.values() if topic.table is not None for object_id in topic.table.objects
    )
    counted = {int(object_id): known.references for object_id, known in state.objects.items()}
    if dict(references) != counted:
        yield f"chunks and tables refer to objects {dict(references)}, the objects count {counted}"
    else:
        yield from _tables(state)
    if state.object_ids != {known.key: object_id for object_id, known in state.objects.items()}:
        yield "object_ids does not mirror objects"
    both = state.object_ids.keys() & state.released.keys()
    if both:
        yield f"objects {sorted(both)} are referred to and released"
    if state.objects and max(state.objects) >= state.object_id_next:
        yield f"object id {state.object_id_next} would be given twice"
    for key, released_ms in state.released.items():
        if released_ms > state.time_ms:
            yield f"object {key!r} was released in the future"


def _tables(state: ClusterState) -> Iterator[str]:
    for topic in state.topics.values():
        table = topic.table
        if table is None:
            continue
        if state.object_ids.get(table.metadata_key) not in table.objects or table.version < 1:
            yield f"{topic.name}: version {table.version} of its table has the metadata {table.metadata_key!r}"
        unneeded = unneeded_files(state, table)
        if table.unneeded != unneeded:
            yield f"{topic.name}: no chunk refers to the files {sorted(unneeded)}, noted are {sorted(table.unneeded)}"


def _groups(state: ClusterState) -> Iterator[str]:
    epochs = Counter(group.claim_epoch for group in state.groups.values())
    if epochs and (max(epochs.values()) > 1 or max(epochs) > state.group_claims_count):
        yield f"of {state.group_claims_count} claims groups have {sorted(epochs.elements())}"
    if list(state.vacant_groups) != list(vacant_of(state.groups)):
        yield f"vacant groups are listed as {list(state.vacant_groups)}, and are {list(vacant_of(state.groups))}"
    for group_id, group in state.groups.items():
        for fault in _group(state, group_id, group):
            yield f"group {group_id!r}: {fault}"


def _group(state: ClusterState, group_id: str, group: GroupState) -> Iterator[str]:
    if group.group_id != group_id:
        yield f"calls itself {group.group_id!r}"
    if (group.empty_since_ms is None) != (group.value is None or group.has_members):
        yield f"is empty since {group.empty_since_ms}, and has members: {group.has_members}"
    if group.empty_since_ms is not None and group.empty_since_ms > state.time_ms:
        yield "is empty since the future"
    for topic_id, partitions in group.offsets.items():
        if not partitions:
            yield f"keeps the topic {topic_id.hex()} without an offset"
        for partition, offset in partitions.items():
            if state.partition(topic_id, partition) is None:
                yield f"has an offset of {topic_id.hex()}-{partition}, which is not there"
            if offset.commit_ms > state.time_ms:
                yield f"committed {topic_id.hex()}-{partition} in the future"
            if offset.number > group.commits_count:
                yield f"committed {topic_id.hex()}-{partition} as number {offset.number} of {group.commits_count}"
    if isinstance(group.value, ClassicGroup):
        yield from _generation(group.value)


def _generation(group: ClassicGroup) -> Iterator[str]:
    member_ids = [member.member_id for member in group.members]
    if member_ids != sorted(set(member_ids)):
        yield f"generation {group.generation} has the members {member_ids}"
    is_agreed = group.leader in member_ids and group.protocol is not None
    if is_agreed != bool(member_ids):
        yield f"generation {group.generation} of {len(member_ids)} members: {group.leader!r} leads {group.protocol!r}"


def _configs(state: ClusterState) -> Iterator[str]:
    for what, configs in (
        ("broker", state.broker_configs),
        ("group", state.group_configs),
        ("telemetry subscription", state.client_metrics_configs),
    ):
        for name, values in configs.items():
            if not values or list(values) != sorted(values):
                yield f"the {what} {name!r} has the configs {list(values)}"
    for entity, quotas in state.client_quotas.items():
        try:
            check_quota_entity(entity)
        except ValueError as error:
            yield str(error)
        if not quotas or not all(value > 0 for value in quotas.values()):
            yield f"the entity {entity} has the quotas {quotas}"


def _security(state: ClusterState) -> Iterator[str]:
    if state.acl_index != AclIndex.of(state.acls):
        yield f"acl_index does not mirror the {len(state.acls)} ACLs"
    if (state.acls or state.scram) and not state.is_security_set_up:
        yield f"{len(state.acls)} ACLs and {len(state.scram)} credentials are there, and none ever was"
    if len(state.acls) > ACLS_MAX or len(state.scram) > SCRAM_CREDENTIALS_MAX:
        yield f"{len(state.acls)} ACLs and {len(state.scram)} credentials are more than there may be"
    if len(state.tokens) > DELEGATION_TOKENS_MAX:
        yield f"{len(state.tokens)} delegation tokens are more than there may be"
    for token_id, token in state.tokens.items():
        if not token.issue_ms <= token.expiry_ms <= token.max_ms:
            yield f"the delegation token {token_id} does not end between its begin and its longest life"
