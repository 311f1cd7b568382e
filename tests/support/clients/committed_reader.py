"""What a consumer makes of the answers to its fetches of one partition, as Kafka's own client does it.

Rule: nothing of ours but the batches' layout: who is aborted follows from the list in the answer and the markers in it.
Source: org.apache.kafka.clients.consumer.internals.CompletedFetch (Kafka 4.3).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from protocol.records.batch import BatchHeader, walk_batches
from protocol.records.control_batches import ControlRecordType
from tests.support.records.plain_records import Record, read_batches

CONTROL_TYPE_AT = 61 + 4 + 1 + 2
"""Of a control record's type in its batch: behind the header, four bytes of lengths and deltas, the key's length and
version. True of markers, and of the batches that bridge fewer than 64 offsets."""


@dataclass(slots=True)
class PartitionReader:
    """A consumer of one partition: where it is, and the records that it was given."""

    position: int
    is_committed: bool
    records: list[Record] = field(default_factory=list[Record])

    def take(self, batches: bytes, aborted: Sequence[tuple[int, int]]) -> None:
        """One answer from `position` on; `aborted`: producer ids with the first offsets of their transactions."""
        waiting = sorted(aborted, key=lambda each: each[1])
        dropped: set[int] = set()
        for header in walk_batches(batches):
            end = header.base_offset + header.last_offset_delta + 1
            if self.is_committed and header.producer_id >= 0:
                while waiting and waiting[0][1] < end:
                    dropped.add(waiting.pop(0)[0])
                if header.is_control and _is_abort(batches, header):
                    dropped.discard(header.producer_id)
            is_skipped = header.is_control or (
                self.is_committed and header.is_transactional and header.producer_id in dropped
            )
            if not is_skipped:
                found = read_batches(bytes(batches[header.position : header.end])).records
                self.records += [record for record in found if record.offset >= self.position]
            assert end > self.position, f"a batch up to {end} for a consumer at {self.position}"
            self.position = end


def _is_abort(batches: bytes, header: BatchHeader) -> bool:
    at = header.position + CONTROL_TYPE_AT
    return int.from_bytes(batches[at : at + 2], "big") == ControlRecordType.ABORT
