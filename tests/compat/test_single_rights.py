"""Penstock's answers beside Kafka's to clients that have one right each, in one request of each API."""

import uuid
from pathlib import Path

import pytest

from protocol.api_versions import API_VERSIONS
from tests.compat.protocol_diff.logins import DENIED, PENSTOCK_SETTINGS
from tests.compat.protocol_diff.messages import kafka_definitions
from tests.compat.protocol_diff.single_right_questions import Resources, questions
from tests.compat.protocol_diff.single_rights import (
    LOGINS,
    MODES,
    ask_all,
    client_names,
    differences,
    read_recorded,
    summary,
)
from tests.support.auth.plain_users import plain_user
from tests.support.services.local_services import PenstockFactory

SETTINGS = {"num.partitions": "4", "group.initial.rebalance.delay.ms": "0", **PENSTOCK_SETTINGS}
OWN = Resources(prefix="of-none-", topic_id=uuid.UUID(int=1), producer_id=1, producer_epoch=0)
LISTED = {("Fetch as a replica", "error 6", "no error")}
"""The differences that docs/compatibility.md has: a fetch of a replica is answered as one of a consumer."""
NOT_ASKED = {
    "ApiVersions", "SaslHandshake", "SaslAuthenticate", "GetTelemetrySubscriptions", "PushTelemetry",
    "CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken",
}  # fmt: skip
"""APIs that ask for no right, and delegation tokens, whose rights depend on their owners."""


@pytest.mark.parametrize(
    "mode", [mode if mode == "default" else pytest.param(mode, marks=pytest.mark.slow) for mode in MODES]
)
def test_a_client_with_one_right_is_answered_as_by_kafka(
    penstock: PenstockFactory, kafka_jars: Path, tmp_path: Path, mode: str
) -> None:
    users = tmp_path / "users"
    users.write_text("\n".join(plain_user(each.name, each.password) for each in (DENIED.administrator, *LOGINS)))
    broker = penstock(
        listen="SASL_PLAINTEXT://127.0.0.1:0",
        settings={**SETTINGS, "allow.everyone.if.no.acl.found": MODES[mode]},
        options={"plain-users": str(users)},
    )
    answers = ask_all(broker.bootstrap, kafka_definitions(kafka_jars))
    found = differences(read_recorded()[mode], answers)
    not_listed = {key: clients for key, clients in found.items() if key not in LISTED}
    assert not not_listed, "\n".join(f"{key}: {clients}" for key, clients in not_listed.items())
    assert found.keys() == LISTED, "a listed difference is gone: remove it from the list"


def test_every_api_is_asked_about() -> None:
    asked = {question.api for question in questions(OWN)}
    assert {row.name for row in API_VERSIONS} - NOT_ASKED == asked


def test_every_client_was_recorded_and_rights_make_a_difference() -> None:
    for answers in read_recorded().values():
        assert list(answers) == client_names()
        assert all(list(each) == [question.name for question in questions(OWN)] for each in answers.values())
    answers = read_recorded()["default"]
    useless = [name for name in answers if name != "none" and answers[name] == answers["none"]]
    assert useless == []


def test_a_summary_has_what_rights_decide() -> None:
    answer = {"ErrorCode": 0, "Topics": [{"Name": "of-none-topic", "ErrorCode": 29, "TopicAuthorizedOperations": 8}]}
    assert summary(answer, OWN) == "error 29; operations 8; names its own"
    assert summary({"ErrorCode": 0, "Groups": []}, OWN) == "no error"
    created = {"Topics": [{"Name": "new", "ErrorCode": 0, "TopicConfigErrorCode": 29}]}
    assert summary(created, OWN) == "no error; TopicConfigErrorCode 29"


def test_differences_name_the_clients_that_see_them() -> None:
    kafka = {"a": {"q": "no error"}, "b": {"q": "no error"}, "c": {"q": "error 29"}}
    penstock = {"a": {"q": "error 3"}, "b": {"q": "error 3"}, "c": {"q": "error 29"}}
    assert differences(kafka, penstock) == {("q", "no error", "error 3"): ["a", "b"]}
