"""Record batches made by hand, field by field."""

from dataclasses import dataclass
from struct import pack

from crc32c import crc32c

RECORD_A = bytes.fromhex("14 00 00 00 02 6b 06 76 61 6c 00")
"""Delta 0, offset 0, key "k", value "val", no headers."""
RECORD_B = bytes.fromhex("18 00 0a 02 01 01 02 04 68 31 04 78 79")
"""Delta 5, offset 1, null key, null value, one header "h1" = "xy"."""
RECORDS = RECORD_A + RECORD_B
LZ4_HEAD = bytes.fromhex("04224d18604082")
"""A frame of independent blocks of 64 KiB at most, without checksums."""


def lz4_frame(data: bytes) -> bytes:
    """One block that is stored as it is, and the end mark."""
    return LZ4_HEAD + pack("<I", len(data) | 1 << 31) + data + bytes(4)


@dataclass(kw_only=True)
class HandMade:
    """A batch whose every field may be wrong. `length` and `crc` are right unless given."""

    records: bytes = RECORDS
    record_count: int = 2
    base_offset: int = 0
    length: int | None = None
    leader_epoch: int = -1
    magic: int = 2
    crc: int | None = None
    attributes: int = 0
    last_offset_delta: int | None = None
    base_timestamp: int = 1_000
    max_timestamp: int = 1_005
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1

    def encode(self) -> bytes:
        last = self.record_count - 1 if self.last_offset_delta is None else self.last_offset_delta
        checked = pack(
            ">hiqqqhii", self.attributes, last, self.base_timestamp, self.max_timestamp, self.producer_id,
            self.producer_epoch, self.base_sequence, self.record_count,
        ) + self.records  # fmt: skip
        length = len(checked) + 9 if self.length is None else self.length
        crc = crc32c(checked) if self.crc is None else self.crc
        return pack(">qiibI", self.base_offset, length, self.leader_epoch, self.magic, crc) + checked


def hand_made(**fields: int | bytes) -> bytes:
    """A batch of two records, but for the fields given."""
    return HandMade(**fields).encode()  # type: ignore[arg-type]
