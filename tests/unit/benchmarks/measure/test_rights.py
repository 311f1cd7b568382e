"""The ACLs of a measurement, and what is made of turns with and without the authorizer."""

import pytest
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._resource import ResourcePatternType

from benchmarks.measure.rights import (
    ACLS_COUNT,
    ANONYMOUS,
    FOREIGN_TOPIC,
    TEAMS,
    TURNS,
    WITH,
    WITHOUT,
    NotEnforced,
    acls,
    beside,
)
from benchmarks.measure.rows import TOPIC_PREFIX
from benchmarks.run import FAILURES
from benchmarks.schedule import RIGHTS_TURNS


def test_of_many_different_acls_three_are_of_the_client() -> None:
    made = acls()
    assert len(set(made)) == len(made) == ACLS_COUNT
    own = {(each.name, each.resource_pattern_type, each.operation) for each in made if each.principal == ANONYMOUS}
    assert own == {
        (TOPIC_PREFIX, ResourcePatternType.PREFIXED, AclOperation.ALL),
        ("*", ResourcePatternType.LITERAL, AclOperation.ALL),
        ("kafka-cluster", ResourcePatternType.LITERAL, AclOperation.ALL),
    }


def test_the_other_acls_are_of_teams_that_share_nothing_with_the_client() -> None:
    others = [each for each in acls() if each.principal != ANONYMOUS]
    assert len({each.principal for each in others}) == TEAMS
    assert not any(each.name.startswith(TOPIC_PREFIX) or TOPIC_PREFIX.startswith(each.name) for each in others)
    assert not FOREIGN_TOPIC.startswith(TOPIC_PREFIX)
    prefixes = sum(each.resource_pattern_type is ResourcePatternType.PREFIXED for each in others)
    assert prefixes / len(others) == pytest.approx(0.4, abs=0.001)


def test_drift_meets_both_sides_alike() -> None:
    places = {side: sum(place for place, turn in enumerate(TURNS) if turn == side) for side in (WITHOUT, WITH)}
    assert places[WITHOUT] == places[WITH]
    assert len(TURNS) == RIGHTS_TURNS


def test_the_turns_of_each_side_are_averaged_and_compared() -> None:
    without = [{"mb_per_s": 100.0, "cpu_s_per_gb": 4.0}, {"mb_per_s": 80.0, "cpu_s_per_gb": 6.0}]
    authorized = [{"mb_per_s": 90.0, "cpu_s_per_gb": 5.0}, {"mb_per_s": 80.0, "cpu_s_per_gb": 5.2}]
    assert beside(without, authorized) == {
        "mb_per_s": 85.0,
        "cpu_s_per_gb": 5.1,
        "cpu_of_unauthorized": pytest.approx(1.02),
        "unauthorized_cpu_s_per_gb": 5.0,
        "unauthorized_mb_per_s": 90.0,
    }


def test_a_broker_that_does_not_judge_fails_the_row_alone() -> None:
    assert NotEnforced in FAILURES
