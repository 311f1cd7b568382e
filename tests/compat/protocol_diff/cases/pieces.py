"""The pieces that cases are made of: one function per kind of request, with the arguments that cases vary.

Rule: an argument that no case varies has no name here. Records carry `TIMESTAMP`, which is long past.
"""

import uuid
from typing import Any

from tests.compat.protocol_diff.batches import batch
from tests.compat.protocol_diff.steps import G, Lazy, Step, T, V

NOBODY = uuid.UUID("11111111-2222-4333-8444-555555555555")
ABSENT = T("absent")
SUBSCRIPTION = b"\0\0" + b"\0\0\0\1" + b"\0\5topic" + b"\xff\xff\xff\xff"
"""What a member of type "consumer" must send: Kafka never completes a rebalance over what does not parse as this."""


def topic(name: str = "t", partitions: int = 1, configs: dict[str, str] | None = None, keep: bool = True) -> list[Step]:
    """Create a topic, wait until it has leaders, and keep its id as `id_<name>`.

    The cases write records with a fixed old timestamp: without `keep` retention may delete them at any moment.
    """
    settings = ({"retention.ms": "-1"} if keep else {}) | (configs or {})
    one = {
        "Name": T(name),
        "NumPartitions": partitions,
        "ReplicationFactor": 1,
        "Configs": [{"Name": k, "Value": v} for k, v in settings.items()],
    }
    return [
        Step(
            "CreateTopics",
            7,
            {"Topics": [one], "timeoutMs": 10000},
            quiet=True,
            until=("Topics.0.ErrorCode", 0),
            raw=True,
            save={f"id_{name}": "Topics.0.TopicId"},
        ),
        Step(
            "Metadata",
            12,
            {"Topics": [{"Name": T(name)}], "AllowAutoTopicCreation": False},
            quiet=True,
            until=("Topics.0.ErrorCode", 0),
        ),
        *[
            Step(
                "ListOffsets",
                7,
                {
                    "ReplicaId": -1,
                    "Topics": [{"Name": T(name), "Partitions": [{"PartitionIndex": p, "Timestamp": -1}]}],
                },
                quiet=True,
                until=("Topics.0.Partitions.0.ErrorCode", 0),
            )
            for p in range(partitions)
        ],
    ]


def records(values: int | list[bytes | None] = 1, **how: Any) -> Lazy:
    body: list[bytes | None] = [b"v%d" % n for n in range(values)] if isinstance(values, int) else values
    return Lazy(lambda **kw: batch(body, **kw), tuple(how.items()))


def joined(*parts: Lazy) -> Lazy:
    return Lazy(lambda **kw: b"".join(kw[k] for k in sorted(kw)), tuple((f"p{n}", p) for n, p in enumerate(parts)))


def produce(
    data: Any, version: int = 9, *, topic: Any = T(), partition: int = 0, acks: int = -1, txn: Any = None, **step: Any
) -> Step:
    where = {"TopicId": V("id_t")} if version >= 13 else {"Name": topic}
    body: dict[str, Any] = {
        "TransactionalId": txn,
        "Acks": acks,
        "TimeoutMs": 5000,
        "TopicData": [{**where, "PartitionData": [{"Index": partition, "Records": data}]}],
    }
    if version < 3:
        body.pop("TransactionalId")
    return Step("Produce", version, body, **step)


def fetch(
    offset: int = 0,
    version: int = 12,
    *,
    topic: Any = T(),
    topic_id: Any = None,
    partition: int = 0,
    isolation: int = 0,
    most: int = 1 << 20,
    wait: int = 50,
    least: int = 1,
    whole: int = 1 << 22,
    session: int | V = 0,
    epoch: int = -1,
    leader_epoch: int = -1,
    last_epoch: int = -1,
    forget: Any = None,
    none: bool = False,
    log_start: int = -1,
    **step: Any,
) -> Step:
    part: dict[str, Any] = {"Partition": partition, "FetchOffset": offset, "PartitionMaxBytes": most}
    if version >= 9:
        part["CurrentLeaderEpoch"] = leader_epoch
    if version >= 12:
        part["LastFetchedEpoch"] = last_epoch
    if version >= 5:
        part["LogStartOffset"] = log_start
    where = {"TopicId": topic_id if topic_id is not None else V("id_t")} if version >= 13 else {"Topic": topic}
    body: dict[str, Any] = {
        "MaxWaitMs": wait,
        "MinBytes": least,
        "MaxBytes": whole,
        "IsolationLevel": isolation,
        "Topics": [] if none else [{**where, "Partitions": [part]}],
    }
    if version >= 7:
        body |= {"SessionId": session, "SessionEpoch": epoch, "ForgottenTopicsData": forget or []}
    if version < 15:
        body["ReplicaId"] = -1
    return Step("Fetch", version, body, records=True, **step)


def offsets(
    timestamp: int,
    version: int = 7,
    *,
    topic: Any = T(),
    partition: int = 0,
    isolation: int = 0,
    epoch: int = -1,
    **step: Any,
) -> Step:
    part: dict[str, Any] = {"PartitionIndex": partition, "Timestamp": timestamp}
    if version >= 4:
        part["CurrentLeaderEpoch"] = epoch
    body: dict[str, Any] = {"ReplicaId": -1, "Topics": [{"Name": topic, "Partitions": [part]}]}
    if version >= 2:
        body["IsolationLevel"] = isolation
    return Step("ListOffsets", version, body, **step)


def init(
    txn: Any = None,
    version: int = 4,
    *,
    timeout: int = 60000,
    pid: Any = -1,
    epoch: Any = -1,
    name: str = "",
    **step: Any,
) -> Step:
    body: dict[str, Any] = {"TransactionalId": txn, "TransactionTimeoutMs": timeout}
    if version >= 3:
        body |= {"ProducerId": pid, "ProducerEpoch": epoch}
    return Step(
        "InitProducerId", version, body, save={f"pid{name}": "ProducerId", f"epoch{name}": "ProducerEpoch"}, **step
    )


def add_partitions(
    version: int = 3,
    *,
    txn: Any = G("x"),
    pid: Any = V("pid"),
    epoch: Any = V("epoch"),
    topics: Any = ((T(), (0,)),),
    **step: Any,
) -> Step:
    where = [{"Name": t, "Partitions": list(p)} for t, p in topics]
    if version < 4:
        body: dict[str, Any] = {
            "V3AndBelowTransactionalId": txn,
            "V3AndBelowProducerId": pid,
            "V3AndBelowProducerEpoch": epoch,
            "V3AndBelowTopics": where,
        }
    else:
        body = {
            "Transactions": [
                {
                    "TransactionalId": txn,
                    "ProducerId": pid,
                    "ProducerEpoch": epoch,
                    "VerifyOnly": False,
                    "Topics": where,
                }
            ]
        }
    return Step("AddPartitionsToTxn", version, body, **step)


def add_offsets(
    version: int = 3,
    *,
    txn: Any = G("x"),
    pid: Any = V("pid"),
    epoch: Any = V("epoch"),
    group: Any = G("g"),
    **step: Any,
) -> Step:
    return Step(
        "AddOffsetsToTxn",
        version,
        {"TransactionalId": txn, "ProducerId": pid, "ProducerEpoch": epoch, "GroupId": group},
        **step,
    )


def end(
    commit: bool,
    version: int = 3,
    *,
    txn: Any = G("x"),
    pid: Any = V("pid"),
    epoch: Any = V("epoch"),
    keep: bool = False,
    **step: Any,
) -> Step:
    save = {"pid": "ProducerId", "epoch": "ProducerEpoch"} if keep else {}
    body: dict[str, Any] = {"TransactionalId": txn, "ProducerId": pid, "ProducerEpoch": epoch, "Committed": commit}
    return Step("EndTxn", version, body, save=save, **step)


def wait_state(state: str, txn: Any = G("x")) -> Step:
    return Step(
        "DescribeTransactions",
        0,
        {"TransactionalIds": [txn]},
        quiet=True,
        until=("TransactionStates.0.TransactionState", state),
    )


def txn_commit(
    offset: int,
    version: int = 3,
    *,
    txn: Any = G("x"),
    pid: Any = V("pid"),
    epoch: Any = V("epoch"),
    group: Any = G("g"),
    generation: int | V = -1,
    member: Any = "",
    instance: Any = None,
    topic: Any = T(),
    partition: int = 0,
    metadata: Any = "m",
    **step: Any,
) -> Step:
    part: dict[str, Any] = {"PartitionIndex": partition, "CommittedOffset": offset, "CommittedMetadata": metadata}
    body: dict[str, Any] = {
        "TransactionalId": txn,
        "GroupId": group,
        "ProducerId": pid,
        "ProducerEpoch": epoch,
        "Topics": [{"Name": topic, "Partitions": [part]}],
    }
    if version >= 3:
        body |= {"GenerationId": generation, "MemberId": member, "GroupInstanceId": instance}
    return Step("TxnOffsetCommit", version, body, **step)


def committed(
    version: int = 7,
    *,
    group: Any = G("g"),
    topic: Any = T(),
    partitions: Any = (0,),
    stable: bool = False,
    every: bool = False,
    **step: Any,
) -> Step:
    where = None if every else [{"Name": topic, "PartitionIndexes": list(partitions)}]
    if version >= 8:
        body: dict[str, Any] = {"Groups": [{"GroupId": group, "Topics": where}], "RequireStable": stable}
    else:
        body = {"GroupId": group, "Topics": where}
        if version >= 7:
            body["RequireStable"] = stable
    return Step("OffsetFetch", version, body, raw=stable, **step)


def commit(
    offset: int,
    version: int = 8,
    *,
    group: Any = G("g"),
    generation: Any = -1,
    member: Any = "",
    instance: Any = None,
    topic: Any = T(),
    partition: int = 0,
    metadata: Any = "m",
    topic_id: Any = None,
    **step: Any,
) -> Step:
    part: dict[str, Any] = {"PartitionIndex": partition, "CommittedOffset": offset, "CommittedMetadata": metadata}
    where = {"TopicId": topic_id if topic_id is not None else V("id_t")} if version >= 10 else {"Name": topic}
    body: dict[str, Any] = {
        "GroupId": group,
        "GenerationIdOrMemberEpoch": generation,
        "MemberId": member,
        "Topics": [{**where, "Partitions": [part]}],
    }
    if version >= 7:
        body["GroupInstanceId"] = instance
    return Step("OffsetCommit", version, body, **step)


def join(
    version: int = 5,
    *,
    group: Any = G("g"),
    member: Any = "",
    instance: Any = None,
    session: int = 30000,
    rebalance: int = 5000,
    kind: Any = "consumer",
    protocols: Any = ("range",),
    name: str = "",
    **step: Any,
) -> Step:
    body: dict[str, Any] = {
        "GroupId": group,
        "SessionTimeoutMs": session,
        "MemberId": member,
        "ProtocolType": kind,
        "Protocols": [{"Name": p, "Metadata": SUBSCRIPTION} for p in protocols],
    }
    if version >= 1:
        body["RebalanceTimeoutMs"] = rebalance
    if version >= 5:
        body["GroupInstanceId"] = instance
    return Step(
        "JoinGroup", version, body, save={f"member{name}": "MemberId", f"generation{name}": "GenerationId"}, **step
    )


def sync(
    version: int = 3,
    *,
    group: Any = G("g"),
    member: Any = V("member"),
    generation: Any = V("generation"),
    instance: Any = None,
    assign: Any = (),
    **step: Any,
) -> Step:
    body: dict[str, Any] = {
        "GroupId": group,
        "GenerationId": generation,
        "MemberId": member,
        "Assignments": [{"MemberId": m, "Assignment": a} for m, a in assign],
    }
    if version >= 3:
        body["GroupInstanceId"] = instance
    return Step("SyncGroup", version, body, **step)


def beat(
    version: int = 3,
    *,
    group: Any = G("g"),
    member: Any = V("member"),
    generation: Any = V("generation"),
    instance: Any = None,
    **step: Any,
) -> Step:
    body: dict[str, Any] = {"GroupId": group, "GenerationId": generation, "MemberId": member}
    if version >= 3:
        body["GroupInstanceId"] = instance
    return Step("Heartbeat", version, body, **step)


def leave(version: int = 3, *, group: Any = G("g"), members: Any = ((V("member"), None),), **step: Any) -> Step:
    if version < 3:
        return Step("LeaveGroup", version, {"GroupId": group, "MemberId": members[0][0]}, **step)
    body: dict[str, Any] = {"GroupId": group, "Members": [{"MemberId": m, "GroupInstanceId": i} for m, i in members]}
    return Step("LeaveGroup", version, body, **step)


def member(version: int = 5, **how: Any) -> list[Step]:
    """Join alone: ask for an id, join with it, sync as leader."""
    return [
        join(version, quiet=True, raw=True, **how),
        join(version, member=V("member"), quiet=True, **how),
        sync(3, assign=((V("member"), b"part"),), instance=how.get("instance"), quiet=True),
    ]


def configs(kind: int, name: Any, keys: Any = None, version: int = 4, **step: Any) -> Step:
    return Step(
        "DescribeConfigs",
        version,
        {
            "Resources": [{"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": keys}],
            "IncludeSynonyms": step.pop("synonyms", False),
        },
        **step,
    )


def alter(changes: Any, *, kind: int = 2, name: Any = T(), dry: bool = False, **step: Any) -> Step:
    rows = [{"Name": k, "ConfigOperation": op, "Value": v} for k, op, v in changes]
    return Step(
        "IncrementalAlterConfigs",
        1,
        {"Resources": [{"ResourceType": kind, "ResourceName": name, "Configs": rows}], "ValidateOnly": dry},
        **step,
    )


def create(*topics: dict[str, Any], version: int = 7, dry: bool = False, **step: Any) -> Step:
    full = [{"Name": T(), "NumPartitions": 1, "ReplicationFactor": 1} | t for t in topics]
    return Step("CreateTopics", version, {"Topics": full, "timeoutMs": 10000, "validateOnly": dry}, **step)


def metadata(topics: Any, version: int = 12, auto: bool = False, **step: Any) -> Step:
    body: dict[str, Any] = {"Topics": topics}
    if version >= 4:
        body["AllowAutoTopicCreation"] = auto
    return Step("Metadata", version, body, **step)


def producers(topic: Any = T(), partition: int = 0, **step: Any) -> Step:
    body: dict[str, Any] = {"Topics": [{"Name": topic, "PartitionIndexes": [partition]}]}
    return Step("DescribeProducers", 0, body, **step)


def transaction() -> list[Step]:
    """A TV1 producer with one partition in an open transaction and two records written."""
    return [
        *topic(),
        init(G("x"), quiet=True),
        add_partitions(quiet=True),
        produce(records(2, pid=V("pid"), epoch=V("epoch"), seq=0, transactional=True), 9, txn=G("x"), quiet=True),
    ]


def quota(
    entity: dict[str, Any],
    quotas: dict[str, float | None],
    *,
    dry: bool = False,
    version: int = 1,
    again: bool = False,
    **step: Any,
) -> Step:
    entry = {
        "Entity": [{"EntityType": kind, "EntityName": name} for kind, name in entity.items()],
        "Ops": [{"Key": key, "Value": value or 0.0, "Remove": value is None} for key, value in quotas.items()],
    }
    return Step("AlterClientQuotas", version, {"Entries": [entry] * (2 if again else 1), "ValidateOnly": dry}, **step)


def quotas_of(*components: tuple[str, int, Any], strict: bool = True, version: int = 1, **step: Any) -> Step:
    rows = [{"EntityType": kind, "MatchType": match, "Match": name} for kind, match, name in components]
    return Step("DescribeClientQuotas", version, {"Components": rows, "Strict": strict}, **step)
