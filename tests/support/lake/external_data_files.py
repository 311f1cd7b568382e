"""Data files of tables as another program would write them: rows of its own choice, and no checksums of Penstock's."""

import io
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_export.rows.schema import CHECKSUMS_METADATA_KEY


def rewrite(file: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Give a data file other rows. All that its metadata says stays, but for the claim that the file has checksums."""
    table = pq.read_table(io.BytesIO(file.read_bytes()))
    metadata = dict(table.schema.metadata)
    del metadata[CHECKSUMS_METADATA_KEY.encode()]
    pq.write_table(change(table).replace_schema_metadata(metadata), file)
