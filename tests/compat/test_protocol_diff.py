"""Penstock's answers beside those that Apache Kafka 4.3.1 gave, in every recorded conversation about what is served."""

from pathlib import Path

import pytest

from agent.ledger.node_ids import DEFAULT_NAME
from protocol.api_versions import API_VERSIONS
from tests.compat.protocol_diff.cases import CASES, tokens
from tests.compat.protocol_diff.comparison import (
    DENIED_TABLE_HEADER,
    TABLE_HEADER,
    TOKEN_TABLE_HEADER,
    Difference,
    case_differences,
    compare,
    read_allowed,
    read_recorded,
)
from tests.compat.protocol_diff.logins import (
    ADMIN,
    DENIED,
    DENIED_CLIENT,
    PENSTOCK_SETTINGS,
    RECORDED_DENIED,
    RECORDED_TOKENS,
    TOKENS,
    penstock_token_settings,
)
from tests.compat.protocol_diff.messages import kafka_definitions
from tests.compat.protocol_diff.plain import differences
from tests.compat.protocol_diff.steps import Case, Step
from tests.support.auth.plain_users import plain_user
from tests.support.cluster.cluster import ClusterFactory
from tests.support.services.local_services import PenstockFactory

KAFKA_SETTINGS = {"num.partitions": "4", "group.initial.rebalance.delay.ms": "0"}
"""Those of the broker whose answers were recorded."""


def test_penstock_answers_as_kafka_except_for_listed_differences(penstock: PenstockFactory, kafka_jars: Path) -> None:
    broker = penstock(settings=KAFKA_SETTINGS)
    report = compare(
        broker.bootstrap,
        CASES,
        kafka_definitions(kafka_jars),
        served={row.name for row in API_VERSIONS},
        recorded=read_recorded(),
        allowed=read_allowed(),
    )
    lines = "\n".join(report.lines())
    print(lines)
    assert report.is_passed, lines


@pytest.mark.parametrize(
    "through",
    [
        pytest.param(0, id="the first", marks=pytest.mark.slow),
        pytest.param(1, id="the second", marks=pytest.mark.slow),
        pytest.param(2, id="the third", marks=pytest.mark.slow),
    ],
)
def test_every_agent_of_a_cluster_answers_as_kafka(clusters: ClusterFactory, kafka_jars: Path, through: int) -> None:
    cluster = clusters()
    names = ["a", "b"]
    names.insert(through, DEFAULT_NAME)  # its node id is 1, that of the broker whose answers were recorded
    for name in names:
        cluster.start(name, settings=KAFKA_SETTINGS, options={"flush-interval-ms": "0"})
    report = compare(
        cluster.agents[DEFAULT_NAME].bootstrap,
        CASES,
        kafka_definitions(kafka_jars),
        served={row.name for row in API_VERSIONS},
        recorded=read_recorded(),
        allowed=read_allowed(),
        is_any_leader=True,
    )
    lines = "\n".join(report.lines())
    assert report.is_passed, lines


def test_every_case_has_a_name_of_its_own_and_recorded_answers() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))
    assert set(names) == set(read_recorded())


def test_every_case_of_tokens_has_recorded_answers() -> None:
    names = [case.name for case in tokens.CASES]
    assert len(names) == len(set(names))
    assert set(names) == set(read_recorded(RECORDED_TOKENS))


def test_every_listed_difference_names_a_case() -> None:
    assert {row.case for row in read_allowed()} <= {case.name for case in CASES}
    listed = {row.case for row in read_allowed(header=TOKEN_TABLE_HEADER)}
    assert listed <= {case.name for case in tokens.CASES}


def test_differences_name_the_field_and_both_values() -> None:
    kafka = {"Topics": [{"Name": "~t", "ErrorCode": 0, "Offset": 3}], "Epoch": None}
    penstock = {"Topics": [{"Name": "~t", "ErrorCode": 3, "Offset": 3}], "Extra": 1}
    assert differences(kafka, penstock) == [("ErrorCode 0", "3"), ("Epoch null", "absent"), ("Extra absent", "1")]
    assert differences("no answer", {"ErrorCode": 87}) == [("no answer", "error 87")]


def test_rows_that_only_one_side_has_are_told_and_the_others_compared() -> None:
    kafka = [{"ApiKey": 0, "MaxVersion": 13}, {"ApiKey": 1, "MaxVersion": 18}]
    assert differences(kafka, [{"ApiKey": 1, "MaxVersion": 17}], "ApiKeys") == [
        ("more ApiKeys", "fewer"),
        ("MaxVersion 18", "17"),
    ]


def test_differences_of_steps_with_the_same_request_make_one_row() -> None:
    case = Case("c", (Step("Fetch", 12, {}), Step("Fetch", 12, {}), Step("Produce", 9, {})))
    kafka = [("0:Fetchv12", {"ErrorCode": 0}), ("1:Fetchv12", {"ErrorCode": 1}), ("2:Producev9", {})]
    found = case_differences(case, kafka, [("0:Fetchv12", {"ErrorCode": 2}), ("1:Fetchv12", {"ErrorCode": 2})])
    assert found[0] == Difference("c", "Fetch 12", "ErrorCode 0; ErrorCode 1", "2; 2")
    assert found[1].request == "steps"


def test_the_list_is_read_row_by_row() -> None:
    table = f"{TABLE_HEADER}\n|---|---|---|---|---|\n| `a` `b` | Fetch 4 | x | y | because |\n"
    text = f"before\n\n{table}\n| `c` | no row of it |\n"
    assert read_allowed(text) == [Difference("a", "Fetch 4", "x", "y"), Difference("b", "Fetch 4", "x", "y")]


@pytest.mark.parametrize("row", ["| `a` | Fetch 4 | x | y |  |", "| `a` | Fetch 4 | x | y |"])
def test_a_row_without_a_reason_is_refused(row: str) -> None:
    with pytest.raises(ValueError, match="reason"):
        read_allowed(f"{TABLE_HEADER}\n|---|---|---|---|---|\n{row}\n")


@pytest.mark.slow  # test_single_rights asks every API as such a client
def test_penstock_answers_a_client_without_rights_as_kafka(
    penstock: PenstockFactory, kafka_jars: Path, tmp_path: Path
) -> None:
    users = tmp_path / "users"
    users.write_text("\n".join(plain_user(each.name, each.password) for each in (ADMIN, DENIED_CLIENT)))
    broker = penstock(
        listen="SASL_PLAINTEXT://127.0.0.1:0",
        settings={**KAFKA_SETTINGS, **PENSTOCK_SETTINGS},
        options={"plain-users": str(users)},
    )
    report = compare(
        broker.bootstrap,
        CASES,
        kafka_definitions(kafka_jars),
        served={row.name for row in API_VERSIONS},
        recorded=read_recorded(RECORDED_DENIED),
        allowed=read_allowed(header=DENIED_TABLE_HEADER),
        logins=DENIED,
    )
    lines = "\n".join(report.lines())
    print(lines)
    assert report.is_passed, lines


def test_penstock_answers_about_delegation_tokens_as_kafka(
    penstock: PenstockFactory, kafka_jars: Path, tmp_path: Path
) -> None:
    users = tmp_path / "users"
    users.write_text(plain_user(ADMIN.name, ADMIN.password))
    broker = penstock(
        listen="SASL_PLAINTEXT://127.0.0.1:0",
        settings={**KAFKA_SETTINGS, **penstock_token_settings(tmp_path)},
        options={"plain-users": str(users)},
    )
    report = compare(
        broker.bootstrap,
        tokens.CASES,
        kafka_definitions(kafka_jars),
        served={row.name for row in API_VERSIONS},
        recorded=read_recorded(RECORDED_TOKENS),
        allowed=read_allowed(header=TOKEN_TABLE_HEADER),
        logins=TOKENS,
    )
    lines = "\n".join(report.lines())
    print(lines)
    assert report.is_passed, lines
