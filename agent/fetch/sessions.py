"""Incremental fetch sessions (KIP-227): the partitions of a consumer, which its next fetches do not repeat.

Sessions are in this agent's memory only, and may be dropped at any time: their clients get FETCH_SESSION_ID_NOT_FOUND,
and start new ones. A fetch beyond a bound is answered in full, without a session. Pure: time and ids are arguments.
Source: org.apache.kafka.server.FetchManager and FetchSession (Kafka 4.3).
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from protocol.errors import ErrorCode
from protocol.limits import FETCH_SESSION_PARTITIONS_MAX, FETCH_SESSIONS_MAX, FETCH_SESSIONS_PARTITIONS_MAX
from protocol.types import TopicId

NO_SESSION = 0
EPOCH_INITIAL = 0
EPOCH_FINAL = -1
EPOCH_MAX = (1 << 31) - 1
EVICTABLE_AFTER_S = 120.0
"""Kafka's min.incremental.fetch.session.eviction.ms."""

TopicKey = TopicId | str
PartitionName = tuple[TopicKey, int]


@dataclass(slots=True)
class RequestedPartition:
    """A partition that a consumer fetches, and the offsets in its last answer (None before the first answer)."""

    topic: TopicKey
    partition: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int
    high_watermark_reported: int | None = None
    log_start_reported: int | None = None

    @property
    def name(self) -> PartitionName:
        return self.topic, self.partition


@dataclass(slots=True)
class FetchSession:
    """One session: its partitions, and the epoch that its next fetch has to have."""

    session_id: int
    epoch: int
    uses_topic_ids: bool
    used_s: float
    partitions: "OrderedDict[PartitionName, RequestedPartition]" = field(default_factory=OrderedDict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchContext:
    """The partitions of one fetch. `session` is None for a fetch without one. `is_full`: the answer names all.

    Source: org.apache.kafka.server.FetchContext (Kafka 4.3).
    """

    error_code: ErrorCode
    partitions: Sequence[RequestedPartition]
    session: FetchSession | None
    is_full: bool


class FetchSessions:
    """The sessions of this agent, least recently used first."""

    def __init__(
        self,
        *,
        sessions_max: int = FETCH_SESSIONS_MAX,
        session_partitions_max: int = FETCH_SESSION_PARTITIONS_MAX,
        partitions_max: int = FETCH_SESSIONS_PARTITIONS_MAX,
    ) -> None:
        self._sessions_max = sessions_max
        self._session_partitions_max = session_partitions_max
        self._partitions_max = partitions_max
        self._partitions_count = 0
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def begin(
        self,
        *,
        session_id: int,
        epoch: int,
        requested: Sequence[RequestedPartition],
        forgotten: Sequence[PartitionName],
        uses_topic_ids: bool,
        session_id_new: int,
        now_s: float,
    ) -> FetchContext:
        """The partitions that a request fetches, by its session. `session_id_new`, positive and free, is for a new one.

        Each error code makes the client start a new session with a full fetch.
        """
        if epoch in (EPOCH_INITIAL, EPOCH_FINAL):
            self.drop(session_id)
            session = None
            if epoch == EPOCH_INITIAL and requested:
                session = self._open(session_id_new, requested, now_s, uses_topic_ids=uses_topic_ids)
            return FetchContext(error_code=ErrorCode.none, partitions=requested, session=session, is_full=True)
        session = self._sessions.get(session_id)
        if session is None:  # dropped, of another agent, or of this one before a restart
            return self._rejected(ErrorCode.fetch_session_id_not_found)
        if session.epoch != epoch:  # a fetch of this session was lost or repeated
            return self._rejected(ErrorCode.invalid_fetch_session_epoch)
        if session.uses_topic_ids != uses_topic_ids:  # the client's version changed (KIP-516)
            return self._rejected(ErrorCode.fetch_session_topic_id_error)
        count_before = len(session.partitions)
        self._update(session, requested, forgotten)
        self._partitions_count += len(session.partitions) - count_before
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.used_s = now_s
        self._sessions.move_to_end(session_id)
        if not session.partitions:
            self.drop(session_id)
        elif len(session.partitions) > self._session_partitions_max or self._partitions_count > self._partitions_max:
            # The session grew beyond a bound: this fetch is answered in full, and its client starts a new session.
            self.drop(session_id)
            everything = list(session.partitions.values())
            return FetchContext(error_code=ErrorCode.none, partitions=everything, session=None, is_full=True)
        return FetchContext(
            error_code=ErrorCode.none, partitions=list(session.partitions.values()), session=session, is_full=False
        )

    def is_free(self, session_id: int) -> bool:
        return session_id not in self._sessions

    def _open(
        self, session_id: int, requested: Sequence[RequestedPartition], now_s: float, *, uses_topic_ids: bool
    ) -> FetchSession | None:
        if len(requested) > self._session_partitions_max:
            return None
        # Only a session that was idle for EVICTABLE_AFTER_S is evicted: else two clients could evict each other's.
        while (
            len(self._sessions) >= self._sessions_max or self._partitions_count + len(requested) > self._partitions_max
        ):
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_s - oldest.used_s < EVICTABLE_AFTER_S:
                return None
            self.drop(oldest.session_id)
        session = FetchSession(session_id, 1, uses_topic_ids, now_s)
        session.partitions.update((partition.name, partition) for partition in requested)
        self._sessions[session_id] = session
        self._partitions_count += len(session.partitions)
        return session

    def drop(self, session_id: int) -> None:
        """Forget a session, where there is one of this id."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions_count -= len(session.partitions)

    @staticmethod
    def _update(
        session: FetchSession, requested: Sequence[RequestedPartition], forgotten: Sequence[PartitionName]
    ) -> None:
        for partition in requested:
            known = session.partitions.get(partition.name)
            if known is None:
                session.partitions[partition.name] = partition
                continue
            known.fetch_offset = partition.fetch_offset
            known.partition_max_bytes = partition.partition_max_bytes
            known.current_leader_epoch = partition.current_leader_epoch
            known.last_fetched_epoch = partition.last_fetched_epoch
        for name in forgotten:
            session.partitions.pop(name, None)

    @staticmethod
    def _rejected(error_code: ErrorCode) -> FetchContext:
        return FetchContext(error_code=error_code, partitions=(), session=None, is_full=True)
