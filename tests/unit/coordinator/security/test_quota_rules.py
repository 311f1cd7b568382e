"""Of Kafka's eight levels of quotas the first one that is set holds, and says with whom it is shared."""

import pytest

from coordinator.security.quota_rules import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    AppliedQuota,
    QuotaEntity,
    applied_quota,
)

LEVELS: list[tuple[QuotaEntity, str, str]] = [
    ((("client-id", "c"), ("user", "ann")), "ann", "c"),
    ((("client-id", None), ("user", "ann")), "ann", "c"),
    ((("user", "ann"),), "ann", ""),
    ((("client-id", "c"), ("user", None)), "ann", "c"),
    ((("client-id", None), ("user", None)), "ann", "c"),
    ((("user", None),), "ann", ""),
    ((("client-id", "c"),), "", "c"),
    ((("client-id", None),), "", "c"),
]
"""Entities in the order in which Kafka asks them, with the user and client id that share the quota."""


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_the_first_level_that_has_a_quota_holds(level: int) -> None:
    quotas = {entity: {PRODUCER_BYTE_RATE: float(rank + 1)} for rank, (entity, _, _) in enumerate(LEVELS)}
    for entity, _, _ in LEVELS[:level]:
        del quotas[entity]
    entity, user, client_id = LEVELS[level]
    assert applied_quota(quotas, PRODUCER_BYTE_RATE, "ann", "c") == AppliedQuota(level + 1.0, user, client_id, entity)


def test_a_level_without_this_quota_is_passed_over() -> None:
    quotas: dict[QuotaEntity, dict[str, float]] = {
        (("client-id", "c"), ("user", "ann")): {CONSUMER_BYTE_RATE: 1.0},
        (("client-id", None),): {PRODUCER_BYTE_RATE: 2.0},
    }
    assert applied_quota(quotas, PRODUCER_BYTE_RATE, "ann", "c") == AppliedQuota(2.0, "", "c", (("client-id", None),))


def test_others_are_held_to_nothing() -> None:
    quotas: dict[QuotaEntity, dict[str, float]] = {
        (("client-id", "c"), ("user", "ann")): {PRODUCER_BYTE_RATE: 1.0},
        (("user", "ann"),): {PRODUCER_BYTE_RATE: 1.0},
        (("client-id", "c"),): {PRODUCER_BYTE_RATE: 1.0},
    }
    assert applied_quota(quotas, PRODUCER_BYTE_RATE, "bob", "d") is None


@pytest.mark.parametrize(
    ("user", "client_id", "expected"),
    [
        ("ann", "", AppliedQuota(6.0, "ann", "", LEVELS[5][0])),
        ("", "c", AppliedQuota(8.0, "", "c", LEVELS[7][0])),
        ("", "", None),
    ],
)
def test_who_has_no_name_is_held_to_no_quota_of_names(user: str, client_id: str, expected: AppliedQuota | None) -> None:
    defaults = [entity for entity, _, _ in LEVELS if all(name is None for _, name in entity)]
    quotas = {entity: {PRODUCER_BYTE_RATE: LEVELS.index(_row(entity)) + 1.0} for entity in defaults}
    assert applied_quota(quotas, PRODUCER_BYTE_RATE, user, client_id) == expected


def _row(entity: QuotaEntity) -> tuple[QuotaEntity, str, str]:
    return next(row for row in LEVELS if row[0] == entity)


@pytest.mark.parametrize(
    ("level", "text"),
    [
        (0, "user=ann,client-id=c"),
        (1, "user=ann,client-id=<default>"),
        (2, "user=ann"),
        (5, "user=<default>"),
        (6, "client-id=c"),
    ],
)
def test_whom_a_quota_is_for_is_a_text(level: int, text: str) -> None:
    applied = applied_quota({LEVELS[level][0]: {PRODUCER_BYTE_RATE: 1.0}}, PRODUCER_BYTE_RATE, "ann", "c")
    assert applied is not None
    assert applied.entity_text == text
