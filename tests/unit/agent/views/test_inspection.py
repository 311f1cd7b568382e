"""What Penstock wrote, in words."""

from dataclasses import dataclass, field
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent.views.inspection import InspectError, describe_bytes, ledger_rows, plain
from coordinator.codec.snapshot_frame import unframed
from coordinator.commands.commands import ReportTime
from coordinator.commands.security import AlterScram
from coordinator.ledger.port import LedgerRecord
from coordinator.snapshot import encode_snapshot
from coordinator.state.state import ClusterState
from iceberg_export.tail.manifest import encode_manifest
from protocol.auth.scram_credentials import ScramCredential
from protocol.types import Position, SessionId
from storage.refs import TAIL_KEY, ObjectKind
from tests.support.agent.small_agent import TOPIC_ID, intake_object, rows_of
from tests.support.commands.every_command import SCRAM_ROW
from tests.support.lake.tail_manifest import MANIFEST


def test_an_intake_object_is_described_by_its_footer_and_its_batches() -> None:
    shown = describe_bytes(intake_object())
    (chunk,) = rows_of(shown, "chunks")
    assert (chunk["topic_id"], chunk["partition"], chunk["batches"], chunk["records"]) == (TOPIC_ID.hex(), 0, 2, 3)


def test_damaged_batches_are_named_and_the_rest_is_shown() -> None:
    data = bytearray(intake_object())
    data[12 + 16] = 9  # the magic of the first batch
    (chunk,) = rows_of(describe_bytes(bytes(data)), "chunks")
    assert "magic" in str(chunk["damage"])


def test_a_parquet_file_is_described_by_its_row_groups() -> None:
    file = BytesIO()
    table = pa.table({"partition": pa.array([0, 0, 1], pa.int32()), "offset": pa.array([5, 6, 0], pa.int64())})
    pq.write_table(table, file)
    shown = describe_bytes(file.getvalue())
    assert (shown["kind"], shown["rows"]) == ("parquet", 3)
    (group,) = rows_of(shown, "row_groups")
    assert (group["partition"], group["offset"]) == ([0, 1], [0, 6])


def test_a_snapshot_is_reported_by_its_key() -> None:
    data = encode_snapshot(ClusterState.empty("cluster", 1))
    shown = describe_bytes(data, "/srv/store/ledger/snapshots/7")
    assert (shown["cluster_id"], shown["checksum"]) == ("cluster", "right")
    of_before = data[:1] + bytes(unframed(data))
    assert str(describe_bytes(of_before, "/srv/store/ledger/snapshots/7")["checksum"]).startswith("none")
    with pytest.raises(InspectError, match="checksum does not match"):
        describe_bytes(data[:-1] + bytes([data[-1] ^ 1]), "/srv/store/ledger/snapshots/7")


def test_the_tail_manifest_is_told_by_its_key() -> None:
    shown = describe_bytes(encode_manifest(MANIFEST), f"/srv/store/{TAIL_KEY}")
    assert (shown["kind"], shown["cluster_id"], shown["position"]) == ("tail manifest", "c", 77)
    topics = rows_of(shown, "topics")
    (first, _) = rows_of(topics[0], "partitions")
    assert (first["archived_end"], first["readable_end"], first["chunks"], first["aborted"]) == (10, 25, 3, 1)


@pytest.mark.parametrize(
    ("data", "key"),
    [(b"", ""), (b"PAR1PAR1", ""), (b"x" * 1000, ""), (b"junk", "ledger/snapshots/1"), (b"junk", TAIL_KEY)],
)
def test_what_is_none_of_them_is_an_error(data: bytes, key: str) -> None:
    with pytest.raises(InspectError):
        describe_bytes(data, key)


def test_an_unreadable_entry_is_shown_as_such() -> None:
    record = LedgerRecord(position=Position(1), session=SessionId(1), number=0, payload=b"\xff")
    (row,) = ledger_rows([record])
    assert row["command"] == "unreadable"
    assert row["reason"]


def test_values_become_what_json_knows() -> None:
    assert plain(ReportTime()) == {}
    assert plain({"a": b"\x01", "b": (1, None), "c": ObjectKind.PARQUET}) == {"a": "01", "b": [1, None], "c": "PARQUET"}
    assert plain(list(range(30))) == [*range(20), "... 10 more"]
    assert str(plain(object)).startswith("<class")


@dataclass(frozen=True, slots=True)
class Lock:
    owner: str
    key: bytes = field(repr=False)


def test_keys_of_users_are_left_out() -> None:
    view = plain(AlterScram(upsertions=(SCRAM_ROW,)))
    assert view == {
        "deletions": [],
        "upsertions": [{"user": "alice", "mechanism": "SCRAM_SHA_256", "iterations": 4096}],
    }


def test_secrets_are_left_out() -> None:
    """A dataclass keeps them out of its own text by the same mark."""
    assert plain({"locks": [Lock("alice", b"secret")]}) == {"locks": [{"owner": "alice"}]}
    credential = ScramCredential(salt=b"salt", stored_key=b"stored", server_key=b"server", iterations=4096)
    assert plain(credential) == {"iterations": 4096}
