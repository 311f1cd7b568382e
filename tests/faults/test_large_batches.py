"""Batches that unpack to a thousand times their size: several at once take the memory of one."""

import gzip
import socket
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from protocol.limits import DECOMPRESSED_BYTES_MAX, MIB
from protocol.records.batch import pack_header
from protocol.records.compression import Compression
from tests.faults.calm_client import resident_bytes_max
from tests.support.lake.archiving import archive_by_http
from tests.support.processes import resident_bytes
from tests.support.services.local_services import PENSTOCK, PenstockFactory

BATCHES = 4
VALUE_BYTES = 250 * MIB
SECONDS_MAX = 300
CHECKED_BYTES_MAX = 3 * VALUE_BYTES
"""An agent that has not loaded its kernels yet copies a batch that it checks."""
ARCHIVED_BYTES_MAX = 8 * VALUE_BYTES
"""Those of one batch: its records are copied to columns and to pages of the file. Measured: 1,690 MiB."""


def varint(value: int) -> bytes:
    number, encoded = (value << 1) ^ (value >> 63), bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def bomb() -> bytes:
    """A batch of one record of zeros, as gzip: 255 KB."""
    head = b"\0" + varint(0) + varint(0) + varint(-1) + varint(VALUE_BYTES)
    record = varint(len(head) + VALUE_BYTES + 1) + head + bytes(VALUE_BYTES) + varint(0)
    packed = gzip.compress(record)
    del record
    return bytes(
        pack_header(
            base_offset=0,
            attributes=Compression.GZIP,
            last_offset_delta=0,
            base_timestamp=1,
            max_timestamp=1,
            record_count=1,
            records=packed,
        )
        + packed
    )


def produced(bootstrap: str, batch: bytes) -> int:
    """The error code of a Produce 8 request of its own connection."""
    body = struct.pack(">hhii", -1, -1, SECONDS_MAX * 1000, 1) + b"\0\5bombs" + struct.pack(">ii", 1, 0)
    frame = struct.pack(">hhih", 0, 8, 0, 4) + b"bomb" + body + struct.pack(">i", len(batch)) + batch
    host, port = bootstrap.split(":")
    with (
        socket.create_connection((host, int(port)), timeout=SECONDS_MAX) as connection,
        connection.makefile("rb") as file,
    ):
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        answer = file.read(int.from_bytes(file.read(4), "big"))
    (code,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + 5 + 4 + 4)
    return int(code)


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS_MAX)
def test_batches_that_unpack_to_250_mib_each_take_the_memory_of_one(penstock: PenstockFactory) -> None:
    broker = penstock(options={"archive-interval-s": "3600"})
    create = [str(PENSTOCK), "topics", "create", "bombs", "--server", broker.http]
    subprocess.run(create, check=True, timeout=SECONDS_MAX, capture_output=True)
    pid = broker.process.pid
    batch = bomb()
    assert len(batch) < MIB
    assert DECOMPRESSED_BYTES_MAX > VALUE_BYTES
    before = resident_bytes(pid)
    with ThreadPoolExecutor(BATCHES) as threads:
        codes = list(threads.map(produced, [broker.bootstrap] * BATCHES, [batch] * BATCHES))
    assert codes == [0] * BATCHES
    checked = resident_bytes_max(pid) - before
    assert checked < CHECKED_BYTES_MAX, f"{checked / MIB:.0f} MiB to check {BATCHES} batches"
    archive_by_http(broker, "bombs")
    archived = resident_bytes_max(pid) - before
    print(f"added: {checked / MIB:.0f} MiB by checks, {archived / MIB:.0f} MiB by an archive pass")
    assert archived < ARCHIVED_BYTES_MAX, f"{archived / MIB:.0f} MiB to archive {BATCHES} batches"
