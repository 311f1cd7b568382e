"""DeleteRecords: hides the records of partitions below an offset (KIP-107).

- Versions: 0-2.
- Behaviour: the offset -1 stands for the high watermark. The request takes a barrier first (safety rule S4); without an
  answer of the ledger every partition is NOT_LEADER_OR_FOLLOWER. An offset at or below the log's start needs no entry.
  Where a partition is named twice, its last offset counts.
- Differs from Kafka: records stay in the object store as long as their chunk has others that are readable, or the
  topic's table keeps them.
- Source: org.apache.kafka.server.KafkaApis.handleDeleteRecordsRequest, ReplicaManager.deleteRecords,
  org.apache.kafka.cluster.Partition.deleteRecordsOnLeader (Kafka 4.3).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agent.admin.topics import TopicError, before, deadline_s
from agent.ledger.entry_batches import batches, split
from agent.request.messages import Values
from agent.request.services import Request, Services
from agent.runtime.yielding import CooperativeYield
from agent.security.required_rights import DELETE_TOPIC
from coordinator.commands.commands import AdvanceLogStart, LogStartsAdvanced, Rejected
from coordinator.configs.config_types import split_list
from coordinator.configs.topic_configs import effective
from coordinator.ledger.port import LedgerUnavailable, OutcomeUnknown
from coordinator.state.state import PartitionState
from protocol.errors import ErrorCode
from protocol.types import Offset, TopicId

API_KEY = 21
HIGH_WATERMARK = -1
NO_OFFSET = -1

PartitionName = tuple[str, int]
"""A topic's name and a partition's index."""


class Answered(NamedTuple):
    """The result of one partition: the low watermark is where its log starts, -1 with an error."""

    error_code: ErrorCode
    low_watermark: int = NO_OFFSET


DENIED = Answered(ErrorCode.topic_authorization_failed)


class _Advance(NamedTuple):
    """A log start that is to move."""

    name: PartitionName
    topic_id: TopicId
    log_start: Offset


async def handle(services: Services, request: Request, body: Any) -> Values:
    end_s = deadline_s(services.clock, body.timeout.total_seconds())
    pacer = CooperativeYield(services.clock)
    wanted: dict[PartitionName, int] = {}
    for topic in body.topics:
        for partition in topic.partitions:
            wanted[topic.name, partition.partition_index] = partition.offset
            await pacer.step()
    denied = await request.rights.denied_names(*DELETE_TOPIC, {name for name, _ in wanted})
    allowed = {name: offset for name, offset in wanted.items() if name[0] not in denied}
    answered = dict(await _delete(services, allowed, end_s, pacer)) if allowed else {}
    topics: dict[str, list[dict[str, Any]]] = {}
    for name in wanted:
        error_code, low_watermark = answered.get(name, DENIED)
        row = {"partition_index": name[1], "low_watermark": low_watermark, "error_code": error_code}
        topics.setdefault(name[0], []).append(row)
        await pacer.step()
    rows = [{"name": topic_name, "partitions": partitions} for topic_name, partitions in topics.items()]
    return {"topics": rows}


async def _delete(
    services: Services, wanted: Mapping[PartitionName, int], end_s: float, pacer: CooperativeYield
) -> Mapping[PartitionName, Answered]:
    try:
        await before(end_s, services.clock, services.ledger.barrier())
    except (LedgerUnavailable, TopicError):
        return dict.fromkeys(wanted, Answered(ErrorCode.not_leader_or_follower))
    answered: dict[PartitionName, Answered] = {}
    advances: list[tuple[_Advance, int]] = []
    for name, offset in wanted.items():
        judged = _judge(services, name, offset)
        if isinstance(judged, _Advance):
            partition = services.state.topics[judged.topic_id].partitions[name[1]]
            advances.extend(_split(partition, judged))
        else:
            answered[name] = judged
        await pacer.step()
    for batch in batches(advances):
        answered.update(await _advance(services, batch, end_s))
    return answered


def _judge(services: Services, name: PartitionName, offset: int) -> Answered | _Advance:
    topic = services.topics.known(name[0])
    if topic is None or not 0 <= name[1] < len(topic.partitions):
        return Answered(ErrorCode.unknown_topic_or_partition)
    policy = split_list(effective(topic.configs, services.broker_configs, "cleanup.policy"))
    if "compact" in policy and "delete" not in policy:
        return Answered(ErrorCode.policy_violation)
    partition = topic.partitions[name[1]]
    log_start = partition.log_end if offset == HIGH_WATERMARK else Offset(offset)
    if not 0 <= log_start <= partition.log_end:
        return Answered(ErrorCode.offset_out_of_range)
    if log_start <= partition.log_start:
        return Answered(ErrorCode.none, partition.log_start)
    return _Advance(name, topic.topic_id, log_start)


def _split(partition: PartitionState, advance: _Advance) -> Iterator[tuple[_Advance, int]]:
    """Splits the way to the offset into steps of as many chunks as one entry may release, each with their number."""
    row, row_end = 0, partition.index.count_before(advance.log_start)
    for chunk_count in split(row_end):
        row += chunk_count
        is_last = row == row_end
        yield advance if is_last else advance._replace(log_start=partition.index.offset_first(row)), chunk_count


async def _advance(services: Services, advances: Sequence[_Advance], end_s: float) -> Mapping[PartitionName, Answered]:
    """The results of one entry. Where its outcome is unknown the client repeats the request, which is no error."""
    rows = {topic_id: row for row, topic_id in enumerate(dict.fromkeys(each.topic_id for each in advances))}
    command = AdvanceLogStart(
        topic_ids=tuple(rows),
        topic=[rows[each.topic_id] for each in advances],
        partition=[each.name[1] for each in advances],
        log_start=[each.log_start for each in advances],
    )
    names = [each.name for each in advances]
    try:
        outcome = await before(end_s, services.clock, services.ledger.propose(command))
    except OutcomeUnknown:
        return dict.fromkeys(names, Answered(ErrorCode.not_leader_or_follower))
    except TopicError as error:
        return dict.fromkeys(names, Answered(error.error_code))
    if isinstance(outcome, Rejected):
        return dict.fromkeys(names, Answered(outcome.error_code))
    assert isinstance(outcome, LogStartsAdvanced), f"log starts were answered by {outcome!r}"
    results = zip(outcome.error_codes, outcome.log_starts, strict=True)
    return {
        name: Answered(ErrorCode(error_code), log_start)
        for name, (error_code, log_start) in zip(names, results, strict=True)
    }
