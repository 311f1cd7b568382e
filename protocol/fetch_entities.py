"""The request and the answer of a Fetch in plain values; `protocol.fetch` reads and writes them.

Rule: one shape for all versions. What a version lacks is read as Kafka's default, and left out when written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from protocol.errors import ErrorCode
from protocol.leaders import LeaderAndEpoch, NodeEndpoint
from protocol.wire import Buffer

_HIGH_WATERMARK_DEFAULT: Final = (1 << 63) - 1


@dataclass(slots=True, kw_only=True)
class FetchPartition:
    """From where one partition is wanted."""

    index: int
    fetch_offset: int
    bytes_max: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    """Only a follower sends it; consumers send -1."""
    replica_directory_id: bytes | None = None
    """Only a follower sends it; 16 bytes."""
    high_watermark: int = _HIGH_WATERMARK_DEFAULT
    """Only a follower sends it; 2**63 - 1 where it is missing."""


@dataclass(slots=True, kw_only=True)
class FetchTopic:
    """Partitions of one topic, which is known by its name (up to version 12) or by its id (from 13)."""

    name: str | None
    topic_id: bytes | None
    """16 bytes."""
    partitions: list[FetchPartition]


@dataclass(slots=True, kw_only=True)
class ForgottenTopic:
    """Partitions that leave the fetch session."""

    name: str | None
    topic_id: bytes | None
    partitions: list[int]


@dataclass(slots=True, kw_only=True)
class FetchRequest:
    """One partition of a Fetch request. Fields that the version lacks have Kafka's defaults."""

    max_wait_ms: int
    bytes_min: int
    bytes_max: int
    isolation_level: int
    """0 read_uncommitted, 1 read_committed."""
    topics: list[FetchTopic]
    forgotten_topics: list[ForgottenTopic]
    session_id: int = 0
    session_epoch: int = -1
    """-1 no session (or its end), 0 a new one, 1... goes on."""
    rack_id: str = ""
    replica_id: int = -1
    """-1 for a consumer."""
    replica_epoch: int = -1
    cluster_id: str | None = None


@dataclass(slots=True, kw_only=True)
class AbortedTransaction:
    """Records of this producer from `offset_first` up to its abort marker are to be dropped by the reader."""

    producer_id: int
    offset_first: int


@dataclass(slots=True, kw_only=True)
class DivergingEpoch:
    """Where the reader's log and this one part."""

    epoch: int
    end_offset: int


@dataclass(slots=True, kw_only=True)
class FetchResponsePartition:
    """One partition of a Fetch answer. The defaults are what Kafka sends with an error."""

    index: int
    error_code: ErrorCode = ErrorCode.none
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: Sequence[AbortedTransaction] | None = None
    """Null for read_uncommitted, as in Kafka."""
    preferred_read_replica: int = -1
    records: Sequence[Buffer] | None = ()
    """Parts of concatenated record batches, passed on as they are."""
    diverging_epoch: DivergingEpoch | None = None
    current_leader: LeaderAndEpoch | None = None


@dataclass(slots=True, kw_only=True)
class FetchResponseTopic:
    """The topic as the request named it."""

    name: str | None
    topic_id: bytes | None
    partitions: list[FetchResponsePartition]


@dataclass(slots=True, kw_only=True)
class FetchResponse:
    """Fields that the version does not have are left out when it is written."""

    topics: Sequence[FetchResponseTopic]
    error_code: ErrorCode = ErrorCode.none
    """The error of the session or the whole request; only versions from 7 on have it."""
    session_id: int = 0
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()
