"""The listing's judgement: what lies twice, nowhere, or in the wrong place in a bucket is found."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from protocol.types import ObjectNumber, PartitionIndex, SessionId, TopicId
from storage.chunk_format import ChunkParts, encode_object
from storage.embedded.local_store import LocalStore
from storage.refs import intake_key
from tests.agreement.compare import Finding
from tests.agreement.log_fixtures import Row, make_log, outcome_of, place, table, transaction_of, view
from tests.agreement.one_copy import Copies, list_copies, one_copy
from tests.agreement.records import ABORTED, heads, identities
from tests.support.lake.bucket_fixtures import MadeLake
from tests.support.lake.bucket_listing import INTAKE, local_bucket
from tests.support.records.plain_records import Record, make_batch

MADE = make_log()
ABORTED_ROWS = [row for row in MADE.aborted if outcome_of(transaction_of(row)) == ABORTED]
SPLIT = 40
"""So many rows are archived, the others are the tail."""


def ids(rows: Sequence[Row]) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return identities(heads(pa.chunked_array([pa.array([row["value"] for row in rows], pa.large_binary())])))


def found(archived: list[Row], tail: list[Row], *, foreign: Sequence[str] = ()) -> list[Finding]:
    copies = Copies(archived=table(archived), tail=ids(tail), foreign=list(foreign))
    return one_copy(copies, view(MADE.rows, "kafka"))


def test_each_record_once_is_well_and_so_are_aborted_ones_that_wait() -> None:
    assert found(MADE.rows, []) == []
    assert found(MADE.rows[:SPLIT], MADE.rows[SPLIT:]) == []
    assert found(MADE.rows[:SPLIT], MADE.rows[SPLIT:] + ABORTED_ROWS) == []
    assert found([], MADE.rows) == []


def test_what_lies_twice_or_nowhere_or_should_not_be_there_is_found() -> None:
    rows, tail = MADE.rows[:SPLIT], MADE.rows[SPLIT:]
    for archived, waiting, what, example in (
        (rows, tail + tail[:1], "in the intake more than once", "producer"),
        (rows, tail + ABORTED_ROWS[:1] * 2, "in the intake more than once", "producer"),
        (rows + rows[3:4], tail, "shown more than once", place(rows[3])),
        (rows, tail + rows[3:4], "archived and in the intake too", place(rows[3])),
        (rows[1:], tail, "missing (gaps, beside kafka)", "topic"),
        (rows, tail[1:], "missing (gaps, beside kafka)", "topic"),
        (rows + ABORTED_ROWS[:1], tail, "that kafka does not show", place(ABORTED_ROWS[0])),
        ([{**rows[0], "value": rows[1]["value"]}, *rows[1:]], tail, "with another value", place(rows[0])),
    ):
        (finding,) = found(archived, waiting)
        assert (finding.what, finding.count) == (what, 1)
        assert finding.examples[0].startswith(example)
    (finding,) = found(rows, tail, foreign=["lake/mine"])
    assert (finding.what, finding.examples) == ("neither data nor the cluster's own", ("lake/mine",))


async def test_a_bucket_is_listed_by_its_own_bytes(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, is_durable=False)
    lake = MadeLake(store, root=f"file://{tmp_path}")
    lake.create("agree-000")
    await lake.produce("agree-000", [30])
    await lake.archive("agree-000")
    await store.delete(sorted(filter(INTAKE.fullmatch, local_bucket(tmp_path).keys())))
    records = [Record(offset=n, timestamp=row["timestamp"], value=row["value"]) for n, row in enumerate(MADE.rows)]
    chunk = ChunkParts(TopicId(b"t" * 16), PartitionIndex(0), [make_batch(records)])
    await store.put(
        intake_key(SessionId(7), ObjectNumber(255)), encode_object(SessionId(7), ObjectNumber(255), [chunk]).parts
    )
    await store.put("lake/mine", [b"?"])
    copies = list_copies(local_bucket(tmp_path))
    assert copies.tail.tolist() == ids(MADE.rows).tolist()
    assert copies.foreign == ["lake/mine"]
    assert (copies.data_files, copies.intake_objects) == (1, 1)
    expected = [
        (row.offset, row.timestamp, row.key, row.value) for row in lake.topics["agree-000"].partitions[0].visible()
    ]
    columns = (copies.archived[name].to_pylist() for name in ("offset", "timestamp", "key", "value"))
    assert list(zip(*columns, strict=True)) == expected
