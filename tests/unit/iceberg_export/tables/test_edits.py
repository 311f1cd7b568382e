"""What an edit through the catalog makes of a table's metadata, and what it is refused for."""

import json
from collections.abc import Mapping

import msgspec
import pytest
from msgspec import UNSET
from msgspec.structs import replace

from iceberg_export.rows.schema import TYPED_METADATA_KEY
from iceberg_export.tables.edits import EditInvalid, RequirementFailed, TableEdit, decode_edit, edited
from iceberg_export.tables.metadata import SnapshotRef, TableMetadata, decode, empty_metadata, encode
from iceberg_export.tables.snapshots import add_snapshot
from protocol.limits import TABLE_PROPERTIES_BYTES_MAX, TABLE_PROPERTIES_MAX, TABLE_REFS_MAX
from tests.support.lake.table_fixtures import NAME, TOPIC

NOW_MS = 1_000


def table(snapshots: int = 2) -> TableMetadata:
    metadata = empty_metadata(name=NAME, topic_id=TOPIC, location="s3://b/t", created_ms=5)
    for number in range(1, snapshots + 1):
        metadata = add_snapshot(metadata, snapshot_id=number, manifest_list="s3://b/l", summary={}, now_ms=10 * number)
    return metadata


def edit(*updates: Mapping[str, object], requirements: tuple[dict[str, object], ...] = ()) -> TableEdit:
    """As a client sends it, with what else it sends."""
    body = {"identifier": {"namespace": ["lake"], "name": NAME}, "requirements": requirements, "updates": updates}
    return decode_edit(json.dumps(body).encode())


def tag(snapshot_id: int, name: str = "audit", /, **more: object) -> dict[str, object]:
    return {"action": "set-snapshot-ref", "ref-name": name, "type": "tag", "snapshot-id": snapshot_id, **more}


def test_properties_are_set_and_removed_in_their_order() -> None:
    before = table()
    after = edited(
        before,
        edit(
            {"action": "set-properties", "updates": {"owner": "billing", "comment": "orders"}},
            {"action": "remove-properties", "removals": ["comment", "not there"]},
        ),
        now_ms=NOW_MS,
    )
    assert after.properties == {**before.properties, "owner": "billing"}
    assert (after.last_updated_ms, after.snapshots, after.refs) == (NOW_MS, before.snapshots, before.refs)
    assert edited(before, edit(), now_ms=0).last_updated_ms == before.last_updated_ms, "time does not run back"


def test_snapshots_are_named_and_names_move_and_go() -> None:
    before = table()
    named = edited(before, edit(tag(1), tag(2, "b", type="branch", **{"max-ref-age-ms": 7})), now_ms=NOW_MS)
    assert named.refs == {
        **before.refs,
        "audit": SnapshotRef(snapshot_id=1, type="tag"),
        "b": SnapshotRef(snapshot_id=2, type="branch", max_ref_age_ms=7),
    }
    assert decode(encode(named)) == named
    assert "max-ref-age-ms" not in msgspec.json.decode(encode(named))["refs"]["audit"]
    moved = edited(named, edit(tag(2, **{"max-ref-age-ms": None})), now_ms=NOW_MS)
    assert moved.refs["audit"] == SnapshotRef(snapshot_id=2, type="tag", max_ref_age_ms=UNSET)
    gone = edited(
        moved,
        edit(*({"action": "remove-snapshot-ref", "ref-name": name} for name in ("audit", "b", "c"))),
        now_ms=NOW_MS,
    )
    assert gone.refs == before.refs


@pytest.mark.parametrize(
    ("update", "words"),
    [
        (tag(3), "the table has no snapshot 3"),
        (tag(1, "main"), "main: rows come from the topic"),
        ({"action": "remove-snapshot-ref", "ref-name": "main"}, "main: rows come from the topic"),
        (tag(1, **{"min-snapshots-to-keep": 2}), "a tag has no history"),
        (tag(1, type="branch", **{"max-snapshot-age-ms": 2}), "Penstock writes nothing to branches"),
        ({"action": "set-properties", "updates": {"a": "x" * TABLE_PROPERTIES_BYTES_MAX}}, "bytes in all; this edit"),
        (
            {"action": "set-properties", "updates": {str(n): "" for n in range(TABLE_PROPERTIES_MAX)}},
            f"{TABLE_PROPERTIES_MAX} properties",
        ),
    ],
)
def test_what_cannot_be_is_refused(update: dict[str, object], words: str) -> None:
    with pytest.raises(EditInvalid, match=words):
        edited(table(), edit(update), now_ms=NOW_MS)


def test_a_table_with_very_many_typed_columns_is_edited_as_any_other() -> None:
    before = table()
    wide = replace(before, properties={**before.properties, TYPED_METADATA_KEY: "x" * 2 * TABLE_PROPERTIES_BYTES_MAX})
    after = edited(wide, edit(tag(1), {"action": "set-properties", "updates": {"a": "b"}}), now_ms=NOW_MS)
    assert (after.properties["a"], "audit" in after.refs) == ("b", True)


def test_names_are_bounded_in_number() -> None:
    full = edited(table(), edit(*(tag(1, str(n)) for n in range(TABLE_REFS_MAX))), now_ms=NOW_MS)
    assert edited(full, edit(tag(2, "0")), now_ms=NOW_MS).refs["0"].snapshot_id == 2
    with pytest.raises(EditInvalid, match=f"has at most {TABLE_REFS_MAX} tags and branches"):
        edited(full, edit(tag(1, "more")), now_ms=NOW_MS)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"updates": [{"action": "set-properties"}]}',
        b'{"updates": [{"action": "set-properties", "updates": {"a": 1}}]}',
        b'{"updates": [{"action": "set-properties", "updates": {"": "x"}}]}',
        b'{"updates": [{"action": "add-snapshot"}]}',
        b'{"requirements": [{"type": "assert-of-the-future"}], "updates": []}',
        json.dumps({"updates": [tag(1, "")]}).encode(),
        json.dumps({"updates": [tag(1, "x" * 256)]}).encode(),
        json.dumps({"updates": [tag(1, type="of the future")]}).encode(),
        json.dumps({"updates": [tag(1, **{"max-ref-age-ms": 0})]}).encode(),
        json.dumps({"updates": [tag(1, **{"snapshot-id": "1"})]}).encode(),
    ],
)
def test_what_is_no_edit_is_refused(body: bytes) -> None:
    with pytest.raises(EditInvalid, match="is not a commit of a table"):
        decode_edit(body)


HOLD: tuple[dict[str, object], ...] = (
    {"type": "assert-table-uuid", "uuid": table().table_uuid},
    {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 2},
    {"type": "assert-ref-snapshot-id", "ref": "audit", "snapshot-id": None},
    {"type": "assert-ref-snapshot-id", "ref": "audit"},
    {"type": "assert-last-assigned-field-id", "last-assigned-field-id": table().last_column_id},
    {"type": "assert-current-schema-id", "current-schema-id": 0},
    {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 999},
    {"type": "assert-default-spec-id", "default-spec-id": 0},
    {"type": "assert-default-sort-order-id", "default-sort-order-id": 1},
)


def test_an_edit_is_made_of_the_table_that_it_was_meant_for() -> None:
    assert "audit" in edited(table(), edit(tag(1), requirements=HOLD), now_ms=NOW_MS).refs


@pytest.mark.parametrize(
    ("requirement", "words"),
    [
        ({"type": "assert-create"}, "it exists"),
        ({"type": "assert-table-uuid", "uuid": "other"}, "its UUID is"),
        ({"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1}, "the snapshot of 'main' is 2, not 1"),
        ({"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}, "is 2, not None"),
        ({"type": "assert-ref-snapshot-id", "ref": "gone", "snapshot-id": 1}, "is None, not 1"),
        ({"type": "assert-last-assigned-field-id", "last-assigned-field-id": 1}, "its last column's id"),
        ({"type": "assert-current-schema-id", "current-schema-id": 1}, "its schema is 0, not 1"),
        ({"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 1}, "its last partition field"),
        ({"type": "assert-default-spec-id", "default-spec-id": 1}, "its partition spec"),
        ({"type": "assert-default-sort-order-id", "default-sort-order-id": 0}, "its sort order"),
    ],
)
def test_an_edit_of_another_table_fails(requirement: dict[str, object], words: str) -> None:
    with pytest.raises(RequirementFailed, match=words):
        edited(table(), edit(tag(1), requirements=(*HOLD, requirement)), now_ms=NOW_MS)
