"""Batches of open transactions in topics that are placed at commit: durable, and without offsets until then.

Rule: values only; pure. Such a topic says `penstock.transaction.placement=commit`. What a transaction writes to one of
its partitions is placed where it commits, one run behind the other and the marker behind them, and dropped where it
aborts: consumers never see an open or an aborted record there, and never wait for one. The placement of a partition in
a transaction is fixed with its first batch, whatever the topic is altered to meanwhile.
"""

from collections.abc import Sequence
from typing import NamedTuple

from coordinator.state.chunk_index import NO_CHECKSUM
from protocol.records.crc import crc32c, pack_crcs
from protocol.types import Milliseconds, ObjectId


class UnplacedBatch(NamedTuple):
    """Batches of one transaction that lie back to back in one object. The object counts one reference to it (S6)."""

    object_id: ObjectId
    byte_first: int
    byte_count: int
    record_count: int
    max_timestamp: Milliseconds
    append_time_ms: Milliseconds
    """-1 unless the broker stamps the records (safety rule S14)."""
    checksum: int = NO_CHECKSUM
    """The checksum of the batches, computed like that of a chunk (`coordinator.state.chunk_index.ChunkRef`)."""

    def extended(self, batch: "UnplacedBatch") -> "UnplacedBatch":
        """The run with a batch that lies right behind it."""
        is_checked = self.checksum != NO_CHECKSUM and batch.checksum != NO_CHECKSUM
        return self._replace(
            byte_count=self.byte_count + batch.byte_count,
            record_count=self.record_count + batch.record_count,
            max_timestamp=max(self.max_timestamp, batch.max_timestamp),
            checksum=crc32c(pack_crcs([batch.checksum]), self.checksum) if is_checked else NO_CHECKSUM,
        )

    @property
    def byte_end(self) -> int:
        """Where the next batch lies, if it follows."""
        return self.byte_first + self.byte_count


def run_of(runs: Sequence[UnplacedBatch], records_to_end: int) -> UnplacedBatch | None:
    """The run of the record that `records_to_end` records, itself among them, are left from; None if none waits."""
    for run in reversed(runs):
        if records_to_end <= run.record_count:
            return run
        records_to_end -= run.record_count
    return None
