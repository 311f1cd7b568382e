"""The response of a Fetch in plain values; `protocol.fetch` writes it.

Rule: one shape for all versions. What a version lacks is left out when it is written.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from protocol.errors import ErrorCode
from protocol.leaders import LeaderAndEpoch, NodeEndpoint
from protocol.wire import Buffer


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
