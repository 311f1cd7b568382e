"""ACLs that can be created, and filters, by Kafka's rules (KIP-290, AclControlManager.validateNewAcl)."""

from dataclasses import replace
from typing import Any

import pytest

from coordinator.security.acls import Acl, AclFilter, InvalidAcl, check_acl
from protocol.auth.operations import Operation, PatternType, Permission, ResourceType
from tests.support.acls import HOST, make_acl

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


@pytest.mark.parametrize(
    "acl",
    [
        make_acl(),
        make_acl(Operation.ALL, "*", permission=Permission.DENY),
        make_acl(Operation.CREATE, "kafka-cluster", resource_type=ResourceType.CLUSTER),
        make_acl(pattern=PREFIXED),
    ],
)
def test_acl_with_complete_fields_can_be_created(acl: Acl) -> None:
    check_acl(acl)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"resource_type": ResourceType.ANY}, "Invalid resourceType ANY"),
        ({"pattern": PatternType.ANY}, "Invalid patternType ANY"),
        ({"pattern": PatternType.MATCH}, "Invalid patternType MATCH"),
        ({"operation": Operation.ANY}, "Invalid operation ANY"),
        ({"permission": Permission.ANY}, "Invalid permissionType ANY"),
        ({"name": ""}, "Resource name should not be empty"),
        ({"resource_type": ResourceType.CLUSTER}, "The only valid name for the CLUSTER resource is kafka-cluster"),
    ],
)
def test_acl_with_a_field_that_is_no_value_cannot_be_created(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidAcl, match=message):
        check_acl(replace(make_acl(), **change))


@pytest.mark.parametrize(
    "acl_filter",
    [
        AclFilter(),
        AclFilter(principal="User:alice", host="*", name="orders"),
        AclFilter(operation=Operation.READ, permission=Permission.ALLOW, resource_type=ResourceType.TOPIC),
        AclFilter(pattern=LITERAL),
        AclFilter(pattern=PatternType.MATCH),
    ],
)
def test_filter_fits_an_acl_that_has_all_of_its_fields(acl_filter: AclFilter) -> None:
    assert acl_filter.matches(make_acl())


@pytest.mark.parametrize(
    "acl_filter",
    [
        AclFilter(principal="User:bob"),
        AclFilter(principal="alice"),
        AclFilter(host=HOST),
        AclFilter(operation=Operation.ALL),
        AclFilter(permission=Permission.DENY),
        AclFilter(resource_type=ResourceType.GROUP),
        AclFilter(name="order"),
        AclFilter(pattern=PREFIXED),
    ],
)
def test_filter_does_not_fit_an_acl_with_another_field(acl_filter: AclFilter) -> None:
    assert not acl_filter.matches(make_acl())


@pytest.mark.parametrize(
    ("pattern_type", "pattern", "pattern_name", "is_fitting"),
    [
        (PatternType.MATCH, LITERAL, "orders", True),
        (PatternType.MATCH, LITERAL, "*", True),
        (PatternType.MATCH, LITERAL, "order", False),
        (PatternType.MATCH, PREFIXED, "ord", True),
        (PatternType.MATCH, PREFIXED, "orders", True),
        (PatternType.MATCH, PREFIXED, "orders-eu", False),
        (PatternType.MATCH, PREFIXED, "*", False),
        (PatternType.ANY, LITERAL, "orders", True),
        (PatternType.ANY, PREFIXED, "orders", True),
        (PatternType.ANY, PREFIXED, "ord", False),
        (PatternType.ANY, LITERAL, "*", False),
        (LITERAL, LITERAL, "*", False),
        (PREFIXED, PREFIXED, "ord", False),
        (PREFIXED, LITERAL, "orders", False),
    ],
)
def test_filter_compares_names_as_its_pattern_type_says(
    pattern_type: PatternType, pattern: PatternType, pattern_name: str, *, is_fitting: bool
) -> None:
    acl_filter = AclFilter(name="orders", pattern=pattern_type)
    assert acl_filter.matches_pattern(pattern, pattern_name) == is_fitting
