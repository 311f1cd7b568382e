"""What a refused commit is told."""

import json

import pytest

from agent.catalog_errors import CatalogError
from agent.catalog_refusals import Update, commit_refusal, read_updates


def told(*updates: dict[str, object]) -> str:
    body = json.dumps({"requirements": [], "updates": updates}).encode()
    refusal = commit_refusal("lake.t", read_updates(body))
    assert (refusal.status, refusal.kind) == (403, "ForbiddenException")
    return refusal.message


@pytest.mark.parametrize(
    ("update", "words"),
    [
        ({"action": "add-snapshot", "snapshot": {}}, "produce to it with a Kafka client"),
        ({"action": "set-snapshot-ref", "ref-name": "main", "type": "branch"}, "rows come from the topic"),
        ({"action": "remove-snapshot-ref", "ref-name": "main"}, "rows come from the topic"),
        ({"action": "remove-snapshots", "snapshot-ids": [1]}, "Penstock expires snapshots"),
        ({"action": "add-schema", "schema": {}}, "the columns are those of a Kafka record"),
        ({"action": "set-current-schema", "schema-id": -1}, "the columns are those"),
        ({"action": "add-spec", "spec": {}}, "how a topic's files are laid out"),
        ({"action": "set-default-sort-order", "sort-order-id": 0}, "how a topic's files are laid out"),
        ({"action": "set-location", "location": "s3://x"}, "stay in its folder"),
        ({"action": "upgrade-format-version", "format-version": 3}, "the format's version"),
        ({"action": "assign-uuid", "uuid": "x"}, "its topic's id"),
        ({"action": "set-properties", "updates": {}}, "cannot be set on a topic's table yet"),
        ({"action": "set-snapshot-ref", "ref-name": "tag", "type": "tag"}, "cannot be set on a topic's table yet"),
        ({"action": "set-statistics"}, "cannot be set on a topic's table yet"),
        ({"action": "of-the-future"}, "does not know this update"),
    ],
)
def test_each_update_is_answered_with_what_to_do(update: dict[str, object], words: str) -> None:
    message = told(update)
    assert words in message
    assert f"{update['action']}: " in message


def test_what_changes_rows_is_told_first_and_nothing_twice() -> None:
    message = told(
        {"action": "set-properties"},
        {"action": "add-schema"},
        {"action": "add-snapshot"},
        {"action": "add-snapshot"},
        {"action": "set-snapshot-ref", "ref-name": "main"},
    )
    assert message.startswith(
        "table lake.t is a topic, and is not changed by commits: add-snapshot, set-snapshot-ref: "
    )
    assert message.index("add-schema: ") < message.index("set-properties: ")


def test_a_commit_of_nothing_is_refused_too() -> None:
    assert "produce to the topic" in told()
    assert commit_refusal("lake.t", [Update(action="add-spec")]).status == 403


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"updates": 3}', b'{"updates": [{}]}', b"\xff"])
def test_what_is_no_commit_is_a_bad_request(body: bytes) -> None:
    with pytest.raises(CatalogError, match="this is no commit of a table") as caught:
        read_updates(body)
    assert caught.value.status == 400
