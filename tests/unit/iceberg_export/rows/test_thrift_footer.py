"""Footers of files without checksums: whatever bit of one changed, no process ends of it."""

import subprocess
import sys
from pathlib import Path

import pytest

from iceberg_export.rows.footer import FOOTER_TAIL_BYTES, footer_bytes
from iceberg_export.rows.thrift import ThriftWrong
from iceberg_export.rows.thrift_footer import check_footer
from tests.support.lake.checksummed_files import archived

ROOT = Path(__file__).parents[4]
FLIPS = """
import random
from iceberg_export.rows.footer import FileUnreadable, footer_bytes
from iceberg_export.parquet.reader import decode_row_group, parse_footer
from tests.support.lake.checksummed_files import archived
data, _ = archived(None)
bits = range(8 * (len(data) - footer_bytes(data)), 8 * len(data))
chosen = random.Random(3).sample(bits, 250)
for position in chosen:
    changed = bytearray(data)
    changed[position // 8] ^= 1 << position % 8
    try:
        footer = parse_footer(changed, file_bytes=len(data))
        for number, place in enumerate(footer.row_groups):
            decode_row_group(footer, number, changed[place.byte_first : place.byte_first + place.byte_count])
    except FileUnreadable:
        pass
print("survived", len(chosen))
"""


def footer_of(data: bytes) -> bytes:
    return data[-footer_bytes(data) : -FOOTER_TAIL_BYTES]


def test_a_process_survives_every_flipped_bit_of_a_footer_without_checksums() -> None:
    done = subprocess.run([sys.executable, "-c", FLIPS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "survived 250"), done.stderr[-2000:]


def test_what_is_written_is_right() -> None:
    data = archived(None)[0]
    check_footer(memoryview(footer_of(data)), len(data))


@pytest.mark.parametrize("left", range(0, 400, 7))
def test_a_footer_that_is_cut_is_wrong(left: int) -> None:
    footer = footer_of(archived(None)[0])
    with pytest.raises((ValueError, KeyError, IndexError)):
        check_footer(memoryview(footer[:left]), None)


@pytest.mark.parametrize(
    ("footer", "what"),
    [
        pytest.param(b"\x15" + b"\xff" * 11, "does not end", id="a number without an end"),
        pytest.param(b"\x18\x7fabc", "do not fit into it", id="a text that is longer than the footer"),
        pytest.param(b"\x19\xf5\xff\xff\xff\x7f", "a list of", id="a list that is longer than the footer"),
        pytest.param(b"\x1c" * 100, "nested too deep", id="structures inside each other"),
        pytest.param(b"\x19" * 100 + bytes(100), "nested too deep", id="lists inside each other"),
        pytest.param(b"\x17abc", "do not fit into it", id="a float that is longer than the footer"),
        pytest.param(b"\x1b\x00", "a value of type", id="a map"),
        pytest.param(b"\x00\x00", "before its length", id="bytes behind its end"),
    ],
)
def test_lengths_lead_nowhere(footer: bytes, what: str) -> None:
    with pytest.raises(ThriftWrong, match=what):
        check_footer(memoryview(footer), None)
