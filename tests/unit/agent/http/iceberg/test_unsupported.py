"""What a refused commit is told."""

import json

import pytest

from agent.http.iceberg.errors import CatalogError
from agent.http.iceberg.unsupported import Update, commit_rejection, read_updates


def told(*updates: dict[str, object]) -> str:
    body = json.dumps({"requirements": [], "updates": updates}).encode()
    rejection = commit_rejection("lake.t", read_updates(body))
    assert rejection is not None
    assert (rejection.status, rejection.kind) == (403, "ForbiddenException")
    return rejection.message


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
        ({"action": "set-properties", "updates": {"a": "b", "gc.enabled": "true"}}, "gc.enabled: Penstock sets this"),
        ({"action": "set-properties", "updates": {"write.wap.enabled": "true"}}, "penstock topics alter"),
        ({"action": "set-properties", "updates": {"format-version": "3"}}, "format-version: Penstock sets this"),
        ({"action": "remove-properties", "removals": ["penstock.topic"]}, "penstock.topic: Penstock sets this"),
        ({"action": "set-properties", "updates": {"py-io-impl": "m.C"}}, "py-io-impl: Penstock sets this"),
        ({"action": "set-properties", "updates": {"s3.endpoint": "http://x"}}, "s3.endpoint: Penstock sets this"),
        ({"action": "set-statistics"}, "Penstock writes the statistics"),
        ({"action": "of-the-future"}, "does not support this update"),
    ],
)
def test_each_update_is_answered_with_what_to_do(update: dict[str, object], words: str) -> None:
    message = told(update)
    assert words in message
    assert f"{update['action']}" in message


def test_what_changes_rows_is_told_first_and_nothing_twice() -> None:
    message = told(
        {"action": "set-properties", "updates": {"mine": "1"}},
        {"action": "add-schema"},
        {"action": "add-snapshot"},
        {"action": "add-snapshot"},
        {"action": "set-snapshot-ref", "ref-name": "main"},
    )
    assert message.startswith(
        "table lake.t is a topic, which such commits cannot change: add-snapshot, set-snapshot-ref: "
    )
    assert message.index("set-snapshot-ref: ") < message.index("add-schema: ")
    assert "set-properties" not in message, "it alone would be done"


def test_a_commit_of_nothing_is_refused_too() -> None:
    assert "produce to the topic" in told()


@pytest.mark.parametrize(
    "update",
    [
        Update(action="set-properties", updates={"comment": "orders", "read.split.target-size": "1"}),
        Update(action="remove-properties", removals=["comment"]),
        Update(action="set-snapshot-ref", ref_name="audit"),
        Update(action="remove-snapshot-ref", ref_name="audit"),
    ],
)
def test_properties_of_peoples_own_and_names_of_snapshots_are_not_refused(update: Update) -> None:
    assert commit_rejection("lake.t", [update, update]) is None
    assert commit_rejection("lake.t", [update, Update(action="add-snapshot")]) is not None


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'{"updates": 3}', b'{"updates": [{}]}', b"\xff", b'{"\xff": 1}', b'{"a":' * 9_000]
)
def test_what_is_no_commit_is_a_bad_request(body: bytes) -> None:
    with pytest.raises(CatalogError, match="the body is not a commit of a table") as caught:
        read_updates(body)
    assert caught.value.status == 400
