"""How fast records are checked, decoded and encoded: `python -m benchmarks.micro.records`.

Prints a table of the best of several runs over 8 MB of records in batches of 1 MiB, on one thread. Only the public API.
"""

import sys
import time
from collections.abc import Callable

import numpy as np

from protocol.records.batch import check_crc, patch_offsets, set_log_append_time, walk_batches
from protocol.records.compression import Compression
from protocol.records.records import (
    BytesColumn,
    EncodeColumns,
    decode_headers,
    decode_records,
    encode_batches,
    validate_records,
    warm_kernels,
)

RECORDS_BYTES = 8_000_000
BATCH_BYTES = 1 << 20
RUNS = 15


def seconds(work: Callable[[], object]) -> float:
    """The best time of several."""
    best = float("inf")
    for _ in range(RUNS):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return best


def source(value_bytes: int, header_count: int) -> EncodeColumns:
    """Keys of 8 bytes; values of digits and letters, that compress somewhat."""
    rows = RECORDS_BYTES // value_bytes
    data = np.random.default_rng(7).integers(48, 112, rows * value_bytes, dtype=np.uint8)

    def strings(count: int, size: int) -> BytesColumn:
        return BytesColumn(
            data=data, first=np.arange(count, dtype=np.int64) * size, length=np.full(count, size, dtype=np.int32)
        )

    return EncodeColumns(
        offset=np.arange(rows, dtype=np.int64),
        timestamp=1_700_000_000_000 + np.arange(rows, dtype=np.int64) // 10,
        key=strings(rows, 8),
        value=strings(rows, value_bytes),
        header_ends=np.arange(rows + 1, dtype=np.int64) * header_count,
        header_key=strings(rows * header_count, 6),
        header_value=strings(rows * header_count, 12),
    )


def row(name: str, elapsed: float, records: int, size: int) -> None:
    print(f"{name:<28}{records / elapsed / 1e6:>12.1f}{size / elapsed / 1e9:>10.2f}")


def measure(value_bytes: int, header_count: int) -> None:
    """One table."""
    columns = source(value_bytes, header_count)
    records = len(columns.offset)

    def encode(kind: Compression) -> bytes:
        return encode_batches(columns, compression=kind, batch_bytes_target=BATCH_BYTES, log_append_time=False)

    plain = encode(Compression.NONE)
    stored = bytearray(plain)
    headers = list(walk_batches(plain))
    size = len(plain)
    print(f"\n{records} records of {value_bytes} bytes, {header_count} headers each, {len(headers)} batches")
    print(f"{'':<28}{'M records/s':>12}{'GB/s':>10}")

    def check() -> None:
        for header in headers:
            check_crc(plain, header)

    row("CRC", seconds(check), records, size)
    row(
        "validate",
        seconds(lambda: [validate_records(plain, header, decompressed_bytes_max=1 << 28) for header in headers]),
        records,
        size,
    )
    row("decode", seconds(lambda: [decode_records(plain, header) for header in headers]), records, size)
    if header_count:
        row(
            "decode and headers",
            seconds(lambda: [decode_headers(decode_records(plain, header)) for header in headers]),
            records,
            size,
        )
    for kind in Compression:
        packed = encode(kind)
        row(f"encode {kind.name.lower()}", seconds(lambda kind=kind: encode(kind)), records, size)  # type: ignore[misc]
        ready = list(walk_batches(packed))
        work = seconds(lambda packed=packed, ready=ready: [decode_records(packed, header) for header in ready])  # type: ignore[misc]
        row(f"decode {kind.name.lower()}", work, records, size)
    per_batch = 1e6 / len(headers)
    print(f"patch offsets      {seconds(lambda: patch_offsets(stored, 0)) * per_batch:.2f} us a batch")
    print(f"set append time    {seconds(lambda: set_log_append_time(stored, 1)) * per_batch:.2f} us a batch")


def main() -> int:
    """The tables, after the time that a warm start takes."""
    began = time.perf_counter()
    warm_kernels()
    print(f"kernels ready after {time.perf_counter() - began:.2f} s")
    for value_bytes, header_count in ((100, 0), (1000, 0), (1000, 2)):
        measure(value_bytes, header_count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
