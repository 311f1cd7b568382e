"""Figures of the micro-benchmark of apply, read from its lines; files are forgotten without harm."""

from pathlib import Path

import pytest

from benchmarks.measure.agent import forget_files, read_metadata

LINES = (
    '{"what": "codec", "chunks": 1, "entry_bytes": 97, "encode_us": 16.8, "decode_us": 18.2}',
    '{"what": "apply", "is_idempotent": false, "chunks_per_s": 700000}',
    '{"what": "apply", "is_idempotent": true, "chunks_per_s": 350000}',
    '{"what": "snapshot", "chunks": 500000, "memory_bytes_per_chunk": 60.8, "decode_s": 0.2, "digest_s": 0.1}',
)


def test_the_slower_producers_count_and_the_load_is_that_of_a_million_chunks() -> None:
    assert read_metadata(LINES) == {
        "chunks_per_s": 350_000,
        "load_s": pytest.approx(0.6),
        "memory_bytes_per_chunk": 60.8,
    }


def test_forgetting_files_leaves_them_and_their_folders_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"x" * 10_000)
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    forget_files(tmp_path)
    assert (tmp_path / "folder" / "file").read_bytes() == b"x" * 10_000
