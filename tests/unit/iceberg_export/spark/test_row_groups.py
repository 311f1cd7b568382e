"""How much of a data file's end a Spark task requests at first."""

import pytest

from iceberg_export.spark.bucket import Bucket
from iceberg_export.spark.planning import FilePiece
from iceberg_export.spark.row_groups import begin_end
from storage.memory_store import MemoryStore

KEY = "lake/t/data/0.parquet"


@pytest.mark.parametrize(
    ("object_bytes", "end_bytes"),
    [
        pytest.param(500_000, 500_000, id="a file that is read whole"),
        pytest.param(1 << 20, 64 << 10, id="a small one"),
        pytest.param(64 << 20, 128 << 10, id="a large one, whose footer is longer"),
    ],
)
def test_the_first_request_grows_with_the_file(object_bytes: int, end_bytes: int) -> None:
    bucket = Bucket(MemoryStore())
    try:
        bucket.run(bucket.store.put(KEY, [bytes(object_bytes)]))
        piece = FilePiece(key=KEY, object_bytes=object_bytes, ranges=(), byte_count=object_bytes)
        assert len(begin_end(bucket, piece).result()) == end_bytes
    finally:
        bucket.close()
