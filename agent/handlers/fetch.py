"""Fetch: returns record batches, with long poll and incremental sessions (KIP-227).

- Versions: 4-18. 7 adds sessions, 9 leader epochs (KIP-320), 11 the consumer's rack (KIP-392), 12 the last fetched
  epoch, 13 topic ids (KIP-516). Before 13 an unknown isolation level has a row for each partition.
- Behaviour: read_committed ends at the last stable offset and lists the aborted transactions of its records (KIP-98);
  read_uncommitted ends at the high watermark. Both return markers. An unknown isolation level fails the whole request;
  an unknown topic id fails its topic. Epochs never change, so a consumer diverges only beyond the end. Above a quota
  the answer is empty (KIP-219).
- Differs from Kafka: any agent serves any partition. An agent outside the consumer's rack acts as "the leader", which
  names a replica in it. A follower (replica id >= 0) is answered as a consumer. A fetch waits FETCH_WAIT_MS_MAX at
  most, and no longer once others need the memory of requests behind it. Its response is smaller while clients leave
  many bytes unread.
- Source: org.apache.kafka.server.KafkaApis.handleFetchRequest (Kafka 4.3).
"""

from collections.abc import Sequence

from agent.fetch.fetch_request import FIRST_WITH_SESSIONS, FIRST_WITH_TOPIC_IDS, FetchRequest, read_fetch_request
from agent.fetch.partition_read import NO_REPLICA, PartitionRead
from agent.fetch.sessions import FetchContext, FetchSessions, RequestedPartition, TopicKey
from agent.request.services import Request, Services
from agent.request.topic_rights import denied_topics
from agent.request.zone_traffic import count_zone_bytes
from agent.runtime.yielding import inline_or_in_thread, rows_at_most
from agent.security.required_rights import ACT_ON_CLUSTER, READ_TOPIC
from coordinator.state.rendezvous import Assignment
from protocol.connection import RequestFrame
from protocol.errors import ErrorCode
from protocol.fetch import (
    AbortedTransaction,
    DivergingEpoch,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
    write_fetch_response,
)
from protocol.limits import CUT_OFF_HOLD_SECONDS, FETCH_WAIT_MS_MAX
from protocol.types import LEADER_EPOCH, TopicId
from storage.object_store import Buffer
from txn.isolation import IsolationLevel

API_KEY = 1
LEVELS = tuple(IsolationLevel)
UNKNOWN = (
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.unknown_topic_id,
    ErrorCode.topic_authorization_failed,
)
"""Errors with which Kafka leaves the list of aborted transactions empty; null otherwise."""


async def handle(services: Services, request: Request) -> Sequence[Buffer]:
    version = request.frame.api_version
    body = await inline_or_in_thread(rows_at_most(request.frame.body), read_fetch_request, request.frame)
    if body.isolation_level not in LEVELS:
        return await inline_or_in_thread(
            len(body.requested), _answer_unknown_level, request.frame, body.requested, body.session_id
        )
    context = _context(services, body, version)
    is_replica = body.is_replica
    max_wait_ms, bytes_min, bytes_max = _limits(request, body)
    isolation, rack = IsolationLevel(body.isolation_level), body.rack
    # The fetch may wait long: it keeps only the parts of the request that the wait needs.
    del body
    request.frame.leave_body()
    if context.error_code is not ErrorCode.none:
        return write_fetch_response(
            request.frame.correlation_id, version, FetchResponse(topics=[], error_code=context.error_code)
        )
    if await services.redirects_where_draining(request):
        rejected = [PartitionRead(partition, ErrorCode.not_leader_or_follower) for partition in context.partitions]
        return await inline_or_in_thread(
            len(rejected), _answer, request.frame, rejected, isolation, _session_id(context)
        )
    denied = await _denied(services, request, context.partitions, is_replica=is_replica)
    allowed = context.partitions
    if denied:
        allowed = [partition for partition in context.partitions if partition.topic not in denied]
    reads: list[PartitionRead] = []
    is_elsewhere = _is_elsewhere(services, rack)
    if is_elsewhere and allowed:
        reads = await services.fetch.marks(allowed, isolation)
    if allowed and (not is_elsewhere or not _name_replicas(services, reads, rack)):
        reads = await services.fetch.fetch(
            allowed,
            max_wait_ms=max_wait_ms,
            bytes_min=bytes_min,
            bytes_max=bytes_max,
            isolation=isolation,
            fetch_wait=request.fetch_wait,
            capacity_bytes=request.answer_capacity_bytes,
        )
    await _hold_where_cut_off(services, request, reads, max_wait_ms)
    request.rights.refresh()  # the fetch may have waited for minutes
    denied |= await _denied(services, request, allowed, is_replica=is_replica)
    if denied:
        reads = _without_denied(context.partitions, reads, denied)
    return await _reported(services, request, context, reads, isolation, rack)


async def _hold_where_cut_off(
    services: Services, request: Request, reads: Sequence[PartitionRead], max_wait_ms: int
) -> None:
    """Holds an answer that has errors of a cut-off agent alone, for as long as the fetch may wait.

    At the end of its view such an agent does not say that there are no more records (S4). Without the wait consumers
    would ask as fast as they can while the whole ledger is away. Raises `LedgerUnavailable` as
    `Services.redirects_where_cut_off` does.
    """
    is_empty = not any(read.record_bytes for read in reads)
    if is_empty and any(read.error_code is ErrorCode.not_leader_or_follower for read in reads):
        await services.redirects_where_cut_off(request, min(max_wait_ms / 1000, CUT_OFF_HOLD_SECONDS))


def _limits(request: Request, body: FetchRequest) -> tuple[int, int, int]:
    """How many milliseconds the fetch may wait, how many bytes it waits for, and how many it gets at most."""
    bytes_max = body.bytes_max
    if request.usage is not None:  # more would be throttled in any case
        bytes_max = min(bytes_max, request.usage.fetch_bytes_max)
    return min(body.max_wait_ms, FETCH_WAIT_MS_MAX), min(body.bytes_min, bytes_max), bytes_max


async def _reported(
    services: Services,
    request: Request,
    context: FetchContext,
    reads: Sequence[PartitionRead],
    isolation: IsolationLevel,
    rack: str,
) -> Sequence[Buffer]:
    """The response to a fetch; to a client above a quota it has no records, and its session stays as it was."""
    reported = [read for read in reads if context.is_full or _is_changed(read)]
    answer = await inline_or_in_thread(len(reported), _answer, request.frame, reported, isolation, _session_id(context))
    if request.usage is not None and request.usage.is_fetch_throttled(sum(memoryview(part).nbytes for part in answer)):
        return _throttled(services, request.frame, context)
    _count(services, request, reads, rack)
    if context.session is not None:
        _rotate(context, reads)
        for read in reported:
            read.requested.high_watermark_reported = read.high_watermark
            read.requested.log_start_reported = read.log_start
    return answer


async def _denied(
    services: Services, request: Request, partitions: Sequence[RequestedPartition], *, is_replica: bool
) -> frozenset[TopicKey]:
    """The topics that the client may not read, by name or id as the request has them."""
    topics = {partition.topic for partition in partitions}
    if is_replica:
        may_act = await request.rights.may_on_cluster(ACT_ON_CLUSTER.operation)
        return frozenset() if may_act else frozenset(topics)
    return await denied_topics(request.rights, READ_TOPIC, services.topics, topics)


def _without_denied(
    partitions: Sequence[RequestedPartition], reads: Sequence[PartitionRead], denied: frozenset[TopicKey]
) -> list[PartitionRead]:
    """The reads of all partitions, in their order, without anything of denied topics."""
    by_name = {read.requested.name: read for read in reads}
    error_code = ErrorCode.topic_authorization_failed
    return [
        PartitionRead(partition, error_code) if partition.topic in denied else by_name[partition.name]
        for partition in partitions
        if partition.topic in denied or partition.name in by_name
    ]


def _count(services: Services, request: Request, reads: Sequence[PartitionRead], rack: str) -> None:
    """Count the records of an answer: in all, by topic, and by whether they leave this zone."""
    all_bytes = 0
    for read in reads:
        if read.record_bytes:
            all_bytes += read.record_bytes
            key = read.requested.topic
            topic = None if isinstance(key, str) else services.state.topics.get(key)
            name = topic.name if topic is not None else str(key) if isinstance(key, str) else None
            if name is not None:
                services.metrics.topics_out.count(
                    name, read.record_bytes, read.offset_next - read.requested.fetch_offset
                )
    services.metrics.fetch_bytes.inc(all_bytes)
    count_zone_bytes(services, request, "out", all_bytes, rack)


def _throttled(services: Services, frame: RequestFrame, context: FetchContext) -> Sequence[Buffer]:
    """The response to a client above a quota: nothing, in its session. A full fetch gets no session, as in Kafka."""
    if context.is_full and context.session is not None:
        services.fetch_sessions.drop(context.session.session_id)
    response = FetchResponse(topics=[], session_id=0 if context.is_full else _session_id(context))
    return write_fetch_response(frame.correlation_id, frame.api_version, response)


def _is_elsewhere(services: Services, rack: str) -> bool:
    """Whether the consumer's rack has agents, and this one is not among them."""
    own = services.state.sessions.get(services.ledger.session)
    return own is not None and own.zone != rack and rack in services.placement.zones


def _name_replicas(services: Services, reads: Sequence[PartitionRead], rack: str) -> bool:
    """Names for each readable partition the node of the rack to fetch from (KIP-392). Returns whether all have one.

    Replicas that were assigned by hand may all be outside the rack. Then this agent serves the records.
    """
    placement = services.placement
    assignments: dict[TopicId, Sequence[Assignment]] = {}
    for read in reads:
        key = read.requested.topic
        topic_id = services.state.topic_ids.get(key) if isinstance(key, str) else key
        topic = None if topic_id is None else services.state.topics.get(topic_id)
        if read.error_code is ErrorCode.none and not read.is_diverging and topic is not None:
            if topic.topic_id not in assignments:
                assignments[topic.topic_id] = services.assignments(topic, rack)
            leaders = assignments[topic.topic_id]
            if read.requested.partition >= len(leaders) or not placement.is_in(
                rack, leaders[read.requested.partition].leader
            ):
                return False
            read.preferred_read_replica = leaders[read.requested.partition].leader
    return True


def _session_id(context: FetchContext) -> int:
    return context.session.session_id if context.session else 0


def _answer(
    frame: RequestFrame, reported: Sequence[PartitionRead], isolation: IsolationLevel, session_id: int
) -> Sequence[Buffer]:
    """The response's bytes. It may run in a thread, so it reads only what does not change of a session's partition."""
    response = FetchResponse(topics=_topics(reported, isolation), session_id=session_id)
    return write_fetch_response(frame.correlation_id, frame.api_version, response)


def _answer_unknown_level(
    frame: RequestFrame, requested: Sequence[RequestedPartition], session_id: int
) -> Sequence[Buffer]:
    """Kafka's response to a request that it cannot read: partitions with defaults alone."""
    reported: Sequence[PartitionRead] = ()
    if frame.api_version < FIRST_WITH_TOPIC_IDS:
        reported = [PartitionRead(partition, ErrorCode.unknown_server_error) for partition in requested]
    topics = _topics(reported, IsolationLevel.READ_UNCOMMITTED)
    for topic in topics:
        for partition in topic.partitions:
            partition.aborted_transactions = ()
    response = FetchResponse(topics=topics, error_code=ErrorCode.unknown_server_error, session_id=session_id)
    return write_fetch_response(frame.correlation_id, frame.api_version, response)


def _context(services: Services, body: FetchRequest, version: int) -> FetchContext:
    if version < FIRST_WITH_SESSIONS:
        return FetchContext(error_code=ErrorCode.none, partitions=body.requested, session=None, is_full=True)
    return services.fetch_sessions.begin(
        session_id=body.session_id,
        epoch=body.session_epoch,
        requested=body.requested,
        forgotten=body.forgotten,
        uses_topic_ids=version >= FIRST_WITH_TOPIC_IDS,
        session_id_new=_new_session_id(services, services.fetch_sessions),
        now_s=services.clock.monotonic_s(),
    )


def _new_session_id(services: Services, sessions: FetchSessions) -> int:
    """A positive id that is free."""
    while True:
        session_id = int.from_bytes(services.ids.new_uuid()[:4], "big") >> 1
        if session_id > 0 and sessions.is_free(session_id):
            return session_id


def _is_changed(read: PartitionRead) -> bool:
    """Whether an incremental response has the partition: it has data, an error, or a mark that moved."""
    return (
        read.record_bytes > 0
        or read.error_code is not ErrorCode.none
        or read.is_diverging
        or read.preferred_read_replica != NO_REPLICA
        or read.high_watermark != read.requested.high_watermark_reported
        or read.log_start != read.requested.log_start_reported
    )


def _rotate(context: FetchContext, reads: Sequence[PartitionRead]) -> None:
    """Moves partitions with data to the end of the session, so that the others come first next time."""
    assert context.session is not None
    for read in reads:
        if read.record_bytes > 0 and read.requested.name in context.session.partitions:
            context.session.partitions.move_to_end(read.requested.name)


def _topics(reads: Sequence[PartitionRead], isolation: IsolationLevel) -> list[FetchResponseTopic]:
    """The response's topics. Partitions of a topic stand together where they follow each other, as in Kafka."""
    topics: list[FetchResponseTopic] = []
    key: TopicKey | None = None
    partitions: list[FetchResponsePartition] = []
    has_aborted = (*UNKNOWN, ErrorCode.none) if isolation is IsolationLevel.READ_COMMITTED else UNKNOWN
    for read in reads:
        if read.requested.topic != key:
            key = read.requested.topic
            partitions = []
            name = key if isinstance(key, str) else None
            topic_id = None if isinstance(key, str) else key
            topics.append(FetchResponseTopic(name=name, topic_id=topic_id, partitions=partitions))
        partitions.append(
            FetchResponsePartition(
                index=read.requested.partition,
                error_code=read.error_code,
                high_watermark=read.high_watermark,
                last_stable_offset=read.last_stable,
                log_start_offset=read.log_start,
                aborted_transactions=_aborted(read) if read.error_code in has_aborted else None,
                preferred_read_replica=read.preferred_read_replica,
                records=read.records,
                diverging_epoch=DivergingEpoch(epoch=LEADER_EPOCH, end_offset=read.high_watermark)
                if read.is_diverging
                else None,
            )
        )
    return topics


def _aborted(read: PartitionRead) -> list[AbortedTransaction]:
    return [
        AbortedTransaction(producer_id=aborted.producer_id, offset_first=aborted.offset_first)
        for aborted in read.aborted
    ]
