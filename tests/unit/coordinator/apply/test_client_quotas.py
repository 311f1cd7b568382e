"""For whom there may be which quotas, and which of them a filter asks for."""

from math import inf, nan

import pytest

from coordinator.apply.client_quotas import (
    InvalidQuota,
    UnknownEntityType,
    check_quota,
    described,
    entity_filter,
    quota_entity_of,
)
from coordinator.security.quota_rules import QuotaEntity
from protocol.limits import QUOTA_NAME_CHARS_MAX

EXACT, DEFAULT, SPECIFIED = 0, 1, 2


class TestEntities:
    @pytest.mark.parametrize(
        ("named", "entity"),
        [
            ([("user", "ann")], (("user", "ann"),)),
            ([("user", None), ("client-id", "c")], (("client-id", "c"), ("user", None))),
            ([("ip", "10.0.0.1")], (("ip", "10.0.0.1"),)),
            ([("ip", "::1")], (("ip", "::1"),)),
            ([("ip", None)], (("ip", None),)),
        ],
    )
    def test_their_types_are_in_order(self, named: list[tuple[str, str | None]], entity: QuotaEntity) -> None:
        assert quota_entity_of(named) == entity

    @pytest.mark.parametrize(
        ("named", "why"),
        [
            ([], "empty client quota entity"),
            ([("user", "a"), ("user", "b")], "duplicate"),
            ([("planet", "earth")], "Unhandled"),
            ([("user", "")], "Empty user"),
            ([("user", "x" * (QUOTA_NAME_CHARS_MAX + 1))], "characters"),
            ([("ip", "10.0.0.1"), ("user", "a")], "combination"),
            ([("ip", "ten.example.com")], "not a valid IP"),
        ],
    )
    def test_what_cannot_be_is_refused(self, named: list[tuple[str, str | None]], why: str) -> None:
        with pytest.raises(InvalidQuota, match=why) as refused:
            quota_entity_of(named)
        assert len(str(refused.value)) < 500


class TestQuotas:
    @pytest.mark.parametrize(
        ("entity_type", "name", "value"),
        [
            ("user", "producer_byte_rate", 1024.0),
            ("client-id", "consumer_byte_rate", 1.0),
            ("user", "request_percentage", 0.5),
            ("user", "controller_mutation_rate", inf),
            ("ip", "connection_creation_rate", 10.0),
        ],
    )
    def test_each_type_has_its_own(self, entity_type: str, name: str, value: float) -> None:
        check_quota(((entity_type, None),), name, value)

    @pytest.mark.parametrize(
        ("entity_type", "name", "value", "why"),
        [
            ("user", "connection_creation_rate", 1.0, "Invalid configuration key"),
            ("ip", "producer_byte_rate", 1.0, "Invalid configuration key"),
            ("user", "producer_byte_rate", 0.0, "greater than 0"),
            ("user", "producer_byte_rate", -1.0, "greater than 0"),
            ("user", "request_percentage", nan, "greater than 0"),
            ("user", "producer_byte_rate", 1.5, "fractional"),
            ("user", "producer_byte_rate", inf, "too large for LONG"),
            ("ip", "connection_creation_rate", float(1 << 31), "too large for INT"),
        ],
    )
    def test_what_kafka_refuses_is_refused(self, entity_type: str, name: str, value: float, why: str) -> None:
        with pytest.raises(InvalidQuota, match=why):
            check_quota(((entity_type, None),), name, value)


ANN: QuotaEntity = (("user", "ann"),)
ANYBODY: QuotaEntity = (("user", None),)
BOTH: QuotaEntity = (("client-id", "c"), ("user", "ann"))
ADDRESS: QuotaEntity = (("ip", "::1"),)
QUOTAS = {ANN: {"a": 1.0}, ADDRESS: {"a": 2.0}, BOTH: {"a": 3.0}, ANYBODY: {"a": 4.0}}


class TestFilters:
    @pytest.mark.parametrize(
        ("components", "is_strict", "expected"),
        [
            ([], False, [BOTH, ADDRESS, ANYBODY, ANN]),
            ([], True, []),
            ([("user", SPECIFIED, None)], False, [BOTH, ANYBODY, ANN]),
            ([("user", SPECIFIED, None)], True, [ANYBODY, ANN]),
            ([("user", EXACT, "ann")], False, [BOTH, ANN]),
            ([("user", EXACT, "ann"), ("client-id", SPECIFIED, None)], True, [BOTH]),
            ([("user", DEFAULT, None)], False, [ANYBODY]),
            ([("ip", EXACT, "::2")], False, []),
        ],
    )
    def test_they_ask_for_names_for_defaults_or_for_a_type(
        self, components: list[tuple[str, int, str | None]], *, is_strict: bool, expected: list[QuotaEntity]
    ) -> None:
        wanted = entity_filter(components, is_strict=is_strict)
        assert [entity for entity, _ in described(QUOTAS, wanted)] == expected

    @pytest.mark.parametrize(
        ("components", "why"),
        [
            ([("", EXACT, "a")], "empty entity type"),
            ([("user", 3, "a")], "match type 3"),
            ([("user", EXACT, None)], "set match string to null"),
            ([("user", DEFAULT, "a")], "MATCH_TYPE_DEFAULT"),
            ([("user", SPECIFIED, "a")], "MATCH_TYPE_SPECIFIED"),
            ([("user", EXACT, "a"), ("user", SPECIFIED, None)], "more than once"),
            ([("user", SPECIFIED, None), ("user", EXACT, "a")], "more than once"),
            ([("ip", EXACT, "::1"), ("user", EXACT, "a")], "combination"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, components: list[tuple[str, int, str | None]], why: str) -> None:
        with pytest.raises(InvalidQuota, match=why):
            entity_filter(components, is_strict=True)

    def test_a_type_that_is_not_kafkas_is_distinguished(self) -> None:
        with pytest.raises(UnknownEntityType):
            entity_filter([("planet", EXACT, "earth")], is_strict=True)
