"""Rights as StandardAuthorizer decides them (Kafka 4.3), and an index that follows its ACLs."""

import random
from collections.abc import Sequence

import pytest

from coordinator.security.acl_index import ALL_OPERATIONS, NO_RIGHTS, AclIndex
from coordinator.security.acls import Acl, AclFilter
from protocol.auth.operations import Operation, PatternType, Permission, ResourceType, bits
from protocol.auth.principals import EVERY_USER, GROUP, Principal
from tests.support.acls import ALICE, BOB, HOST, OTHER_HOST, make_acl

PREFIXED = PatternType.PREFIXED
DENY = Permission.DENY
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE


def rights(
    acls: Sequence[Acl], name: str = "orders", host: str = HOST, *, is_allowed_without_acls: bool = False
) -> int:
    """Alice's rights on a topic."""
    index = AclIndex.of(acls)
    return index.rights_of([ALICE], host, ResourceType.TOPIC, name, is_allowed_without_acls=is_allowed_without_acls)


def writes_any(acls: Sequence[Acl], *, is_allowed_without_acls: bool = False) -> bool:
    """Whether Alice may write to any topic."""
    index = AclIndex.of(acls)
    return index.may_on_any([ALICE], HOST, WRITE, ResourceType.TOPIC, is_allowed_without_acls=is_allowed_without_acls)


@pytest.mark.parametrize(
    ("operation", "implied"),
    [
        (READ, [DESCRIBE]),
        (WRITE, [DESCRIBE]),
        (Operation.DELETE, [DESCRIBE]),
        (Operation.ALTER, [DESCRIBE]),
        (Operation.ALTER_CONFIGS, [Operation.DESCRIBE_CONFIGS]),
        (Operation.CREATE, []),
        (DESCRIBE, []),
        (Operation.DESCRIBE_CONFIGS, []),
    ],
)
def test_allow_gives_its_operation_and_what_that_implies(operation: Operation, implied: list[Operation]) -> None:
    assert rights([make_acl(operation)]) == bits(operation, *implied)


def test_allow_all_gives_every_operation() -> None:
    assert rights([make_acl(Operation.ALL)]) == ALL_OPERATIONS


def test_deny_wins_over_every_allow_and_implies_nothing() -> None:
    allowed = make_acl(Operation.ALL)
    assert rights([allowed, make_acl(READ, permission=DENY)]) == ALL_OPERATIONS & ~bits(READ)
    assert rights([allowed, make_acl(Operation.ALL, permission=DENY)]) == NO_RIGHTS


@pytest.mark.parametrize(
    "denial",
    [
        make_acl(READ, "*", permission=DENY),
        make_acl(READ, "ord", permission=DENY, pattern=PREFIXED),
        make_acl(READ, principal=EVERY_USER, permission=DENY),
        make_acl(READ, host=HOST, permission=DENY),
    ],
)
def test_deny_of_any_pattern_that_fits_denies(denial: Acl) -> None:
    assert rights([make_acl(READ), denial]) == bits(DESCRIBE)


@pytest.mark.parametrize(
    "acl",
    [
        make_acl(READ, "*"),
        make_acl(READ, "o", pattern=PREFIXED),
        make_acl(READ, "orders", pattern=PREFIXED),
        make_acl(READ, principal=EVERY_USER),
        make_acl(READ, host=HOST),
    ],
)
def test_allow_of_any_pattern_that_fits_allows(acl: Acl) -> None:
    assert rights([acl]) == bits(READ, DESCRIBE)


@pytest.mark.parametrize(
    "acl",
    [
        make_acl(READ, "orders-eu"),
        make_acl(READ, "order"),
        make_acl(READ, "orders-", pattern=PREFIXED),
        make_acl(READ, "*", pattern=PREFIXED),
        make_acl(READ, principal=BOB),
        make_acl(READ, principal=Principal(GROUP, "alice")),
        make_acl(READ, host=OTHER_HOST),
        make_acl(READ, resource_type=ResourceType.GROUP),
    ],
)
def test_acl_of_another_name_principal_host_or_type_gives_nothing(acl: Acl) -> None:
    assert rights([acl]) == NO_RIGHTS


def test_groups_count_beside_the_user() -> None:
    staff = Principal(GROUP, "staff")
    index = AclIndex.of([make_acl(READ, principal=staff)])
    given = index.rights_of([ALICE, staff], HOST, ResourceType.TOPIC, "orders", is_allowed_without_acls=False)
    assert given == bits(READ, DESCRIBE)


def test_without_an_acl_of_anybody_on_the_name_the_configuration_decides() -> None:
    assert rights([], is_allowed_without_acls=True) == ALL_OPERATIONS
    assert rights([]) == NO_RIGHTS
    on_another = [make_acl(READ, "payments")]
    assert rights(on_another, is_allowed_without_acls=True) == ALL_OPERATIONS
    assert rights(on_another) == NO_RIGHTS


def test_an_acl_of_anybody_on_the_name_ends_the_default() -> None:
    assert rights([make_acl(READ, principal=BOB)], is_allowed_without_acls=True) == NO_RIGHTS


def test_the_name_of_all_is_fitted_by_the_literal_alone() -> None:
    assert rights([make_acl(READ, "*")], "*") == bits(READ, DESCRIBE)
    assert rights([make_acl(READ, "orders")], "*") == NO_RIGHTS


@pytest.mark.parametrize(
    "acls",
    [
        [make_acl(WRITE)],
        [make_acl(Operation.ALL, "o", pattern=PREFIXED)],
        [make_acl(WRITE, "*")],
        [make_acl(WRITE, "hardcode")],
        [make_acl(WRITE, principal=EVERY_USER, host=HOST)],
        [make_acl(WRITE), make_acl(WRITE, "other", permission=DENY)],
        [make_acl(WRITE), make_acl(WRITE, "pay", permission=DENY, pattern=PREFIXED)],
        [make_acl(WRITE, "ord", pattern=PREFIXED), make_acl(WRITE, "ord", permission=DENY)],
        [make_acl(WRITE, "ord", pattern=PREFIXED), make_acl(WRITE, "orders", permission=DENY, pattern=PREFIXED)],
        [make_acl(WRITE, "*"), make_acl(WRITE, "hardcode", permission=DENY)],
        [make_acl(WRITE), make_acl(READ, "*", permission=DENY)],
    ],
)
def test_one_resource_that_is_not_denied_allows_on_any(acls: list[Acl]) -> None:
    assert writes_any(acls)


@pytest.mark.parametrize(
    "acls",
    [
        [],
        [make_acl(READ)],
        [make_acl(WRITE, principal=BOB)],
        [make_acl(WRITE, host=OTHER_HOST)],
        [make_acl(WRITE), make_acl(WRITE, permission=DENY)],
        [make_acl(WRITE), make_acl(Operation.ALL, permission=DENY)],
        [make_acl(WRITE), make_acl(WRITE, "or", permission=DENY, pattern=PREFIXED)],
        [make_acl(WRITE, "or", pattern=PREFIXED), make_acl(WRITE, "or", permission=DENY, pattern=PREFIXED)],
        [make_acl(WRITE), make_acl(WRITE, "*", permission=DENY)],
        [make_acl(WRITE, "*"), make_acl(WRITE, "*", permission=DENY, principal=EVERY_USER)],
    ],
)
def test_no_resource_that_is_not_denied_refuses_on_any(acls: list[Acl]) -> None:
    assert not writes_any(acls)


def test_on_any_the_configuration_decides_where_nothing_is_on_kafkas_name() -> None:
    assert writes_any([], is_allowed_without_acls=True)
    assert not writes_any([make_acl(READ, "*")], is_allowed_without_acls=True)


def test_index_names_hosts_while_an_acl_does() -> None:
    index = AclIndex.of([make_acl()])
    found = [index.names_hosts]
    index.add(make_acl(host=HOST))
    found.append(index.names_hosts)
    index.remove(make_acl(host=HOST))
    found.append(index.names_hosts)
    assert found == [False, True, False]


EVERYWHERE = [
    make_acl(operation, name, principal=principal, host=host, permission=permission, pattern=pattern)
    for operation in (READ, WRITE, Operation.ALL)
    for name in ("orders", "or", "pa", "*")
    for principal in (ALICE, EVERY_USER)
    for host in ("*", HOST)
    for permission in (Permission.ALLOW, DENY)
    for pattern in (PatternType.LITERAL, PREFIXED)
] + [make_acl(Operation.ALTER, "kafka-cluster", resource_type=ResourceType.CLUSTER)]


def test_index_after_removals_is_that_of_what_is_left() -> None:
    index = AclIndex.of(EVERYWHERE)
    left = list(EVERYWHERE)
    while left:
        index.remove(left.pop(len(left) // 2))
        assert index == AclIndex.of(left)
    assert index == AclIndex()


FILTERS = [
    AclFilter(),
    AclFilter(principal="User:alice"),
    AclFilter(principal="User:nobody"),
    AclFilter(principal="no principal"),
    AclFilter(host=HOST),
    AclFilter(host="10.9.9.9"),
    AclFilter(operation=READ),
    AclFilter(permission=DENY),
    AclFilter(resource_type=ResourceType.CLUSTER),
    AclFilter(resource_type=ResourceType.USER),
    AclFilter(name="orders"),
    AclFilter(name="gone"),
    AclFilter(name="orders", pattern=PREFIXED),
    AclFilter(name="orders", pattern=PatternType.MATCH),
    AclFilter(name="orders", pattern=PatternType.MATCH, principal="User:*"),
    AclFilter(name="or", pattern=PREFIXED, principal="User:alice", host="*", operation=WRITE, permission=DENY),
]


@pytest.mark.parametrize("acl_filter", FILTERS)
def test_index_finds_what_a_filter_fits(acl_filter: AclFilter) -> None:
    found = list(AclIndex.of(EVERYWHERE).matching(acl_filter))
    assert len(found) == len(set(found))
    assert set(found) == {acl for acl in EVERYWHERE if acl_filter.matches(acl)}


def deciding(acls: Sequence[Acl], operation: Operation = READ, name: str = "orders", host: str = HOST) -> Acl | None:
    return AclIndex.of(acls).deciding([ALICE, Principal(GROUP, "g")], host, ResourceType.TOPIC, name, operation)


@pytest.mark.parametrize(
    "acl",
    [
        make_acl(),
        make_acl(name="*"),
        make_acl(name="ord", pattern=PREFIXED),
        make_acl(principal=EVERY_USER),
        make_acl(principal=Principal(GROUP, "g")),
        make_acl(host=HOST),
        make_acl(Operation.ALL),
        make_acl(permission=DENY),
        make_acl(Operation.ALL, permission=DENY),
    ],
)
def test_the_acl_that_decided_is_found(acl: Acl) -> None:
    others = [make_acl(WRITE), make_acl(principal=BOB), make_acl(host=OTHER_HOST), make_acl(name="other")]
    assert deciding([*others, acl]) == acl


def test_an_acl_that_implies_the_operation_decides_it() -> None:
    assert deciding([make_acl(WRITE)], DESCRIBE) == make_acl(WRITE)
    assert deciding([make_acl(WRITE, permission=DENY)], DESCRIBE) is None


def test_a_denial_decides_before_what_allows_and_the_literal_name_before_other_patterns() -> None:
    allowing = [make_acl(name="o", pattern=PREFIXED), make_acl(name="*"), make_acl(name="ord", pattern=PREFIXED)]
    assert deciding(allowing) == make_acl(name="*")
    assert deciding([allowing[0], allowing[2]]) == allowing[2]
    denying = make_acl(name="o", pattern=PREFIXED, permission=DENY)
    assert deciding([make_acl(), *allowing[1:], denying]) == denying


def test_without_an_acl_that_fits_none_decides() -> None:
    assert deciding([]) is None
    assert deciding([make_acl(principal=BOB), make_acl(name="orders-", pattern=PREFIXED)]) is None


def test_what_decided_agrees_with_the_rights() -> None:
    drawn = random.Random(1)
    names = ["orders", "or", "*", "other"]
    for _ in range(300):
        acls = {
            make_acl(
                drawn.choice([READ, WRITE, DESCRIBE, Operation.ALL, Operation.ALTER]),
                drawn.choice(names),
                principal=drawn.choice([ALICE, BOB, EVERY_USER]),
                host=drawn.choice(["*", HOST, OTHER_HOST]),
                permission=drawn.choice([Permission.ALLOW, Permission.ALLOW, DENY]),
                pattern=drawn.choice([PatternType.LITERAL, PREFIXED]),
            ): None
            for _ in range(drawn.randint(0, 5))
        }
        for name in names:
            for operation in (READ, WRITE, DESCRIBE, Operation.ALTER, Operation.CREATE):
                index = AclIndex.of(acls)
                may = rights(list(acls), name) >> operation & 1
                acl = index.deciding([ALICE], HOST, ResourceType.TOPIC, name, operation)
                assert acl is None or acl in acls
                assert may == (acl is not None and acl.permission is Permission.ALLOW)


def test_an_acl_is_shown_in_one_line() -> None:
    acl = make_acl(name="ord", pattern=PREFIXED, permission=DENY, host=HOST)
    assert str(acl) == "DENY READ to User:alice from 10.0.0.1 on TOPIC:PREFIXED:ord"
