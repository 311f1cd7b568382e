"""Rights by principal: remembered, forgotten when ACLs change, and denied only behind a barrier (safety rule S16)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from agent.config.authorizer_settings import AuthorizerSettings
from agent.security import authorizer as authorizer_module
from agent.security.audit.audit_subject import SUBJECT
from agent.security.authorizer import Authorizer
from agent.security.rights import ALL_RIGHTS, EVERY_OPERATION
from coordinator.ledger.port import LedgerUnavailable
from coordinator.security.acl_index import AclIndex
from coordinator.security.acls import Acl
from protocol.auth.operations import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType, bits
from protocol.auth.principals import ANONYMOUS, Principal, read_principal
from tests.support.acls import make_acl
from tests.support.agent.audit_logs import KeptAuditLog, RequestOfAlice
from tests.support.agent.ledger_parts import Parts, running_parts

ALICE, BOB = read_principal("User:alice"), read_principal("User:bob")
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER


@dataclass
class FakeAcls:
    """ACLs as a table of bits, and the questions that were put to it."""

    table: dict[tuple[Principal, ResourceType, str], int] = field(default_factory=dict)
    version: int = 0
    is_confirmed: bool = True
    names_hosts: bool = False
    denying_host: str = ""
    """Clients from there may do nothing, where the ACLs name addresses."""
    questions: list[tuple[str, str]] = field(default_factory=list)
    deciders: list[Acl] = field(default_factory=list)
    """ACLs by which the bits of a name came about."""

    def rights_of(
        self,
        principals: Sequence[Principal],
        host: str,
        resource_type: ResourceType,
        name: str,
        *,
        is_allowed_without_acls: bool,
    ) -> int:
        self.questions.append((host, name))
        allowed = EVERY_OPERATION if is_allowed_without_acls else 0
        for principal in principals:
            allowed |= self.table.get((principal, resource_type, name), 0)
        return 0 if self.names_hosts and host == self.denying_host else allowed

    def may_on_any(
        self,
        principals: Sequence[Principal],
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        *,
        is_allowed_without_acls: bool,
    ) -> bool:
        return any(
            key[0] in principals and key[1] == resource_type and allowed >> operation & 1
            for key, allowed in self.table.items()
        )

    def deciding(
        self,
        principals: Sequence[Principal],
        host: str,
        resource_type: ResourceType,
        name: str,
        operation: Operation,
    ) -> Acl | None:
        return AclIndex.of(self.deciders).deciding(principals, host, resource_type, name, operation)


def enabled(parts: Parts, acls: FakeAcls, **settings: object) -> Authorizer:
    given = AuthorizerSettings(is_enabled=True, **settings)  # type: ignore[arg-type]  # a test's own settings
    return Authorizer(given, acls=acls, ledger=parts.ledger, clock=parts.clock, metrics=parts.metrics)


def granting_at_the_barrier(authorizer: Authorizer, acls: FakeAcls, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The barrier brings an ACL by which alice may read `t`. Returns the list that counts barriers."""
    count: list[int] = []

    async def passes() -> bool:
        count.append(1)
        acls.table[ALICE, TOPIC, "t"] = bits(READ)
        acls.version += 1
        return True

    monkeypatch.setattr(authorizer.barrier, "passes", passes)
    return count


async def test_without_an_authorizer_everybody_may_do_everything() -> None:
    async with running_parts() as parts:
        off = Authorizer(
            AuthorizerSettings(), acls=FakeAcls(), ledger=parts.ledger, clock=parts.clock, metrics=parts.metrics
        )
        assert off.rights(ANONYMOUS) is ALL_RIGHTS
    assert ALL_RIGHTS.bits(TOPIC, "t") == ALL_RIGHTS.topics["t"] == EVERY_OPERATION
    assert ALL_RIGHTS.may(Operation.ALTER, CLUSTER, CLUSTER_NAME)
    assert await ALL_RIGHTS.denied_names(READ, TOPIC, ["a", "b"]) == frozenset()
    assert await ALL_RIGHTS.may_on_any(WRITE, TOPIC)
    assert await ALL_RIGHTS.may_on_cluster(Operation.ALTER)
    assert not ALL_RIGHTS.topics, "names of clients that may do everything are not remembered"


async def test_super_users_may_do_everything_by_name_or_group() -> None:
    async with running_parts() as parts:
        group = Principal("Group", "admins")
        authorizer = enabled(parts, FakeAcls(is_confirmed=False), super_users=frozenset({ALICE, group}))
        assert authorizer.rights(ALICE) is ALL_RIGHTS
        assert authorizer.rights(BOB, (group,)) is ALL_RIGHTS
        assert authorizer.rights(BOB) is not ALL_RIGHTS


async def test_rights_are_worked_out_once_and_again_after_the_acls_changed() -> None:
    async with running_parts() as parts:
        acls = FakeAcls({(ALICE, TOPIC, "t"): bits(READ, DESCRIBE)})
        authorizer = enabled(parts, acls)
        rights = authorizer.rights(ALICE)
        assert [rights.may(READ, TOPIC, "t"), rights.may(WRITE, TOPIC, "t"), rights.topics["t"]] == [True, False, 264]
        assert acls.questions == [("", "t")]
        acls.table.clear()
        assert authorizer.rights(ALICE).may(READ, TOPIC, "t"), "nothing changed by the version"
        acls.version += 1
        assert authorizer.rights(ALICE) is rights
        assert not rights.may(READ, TOPIC, "t")


async def test_the_address_counts_only_where_an_acl_names_one() -> None:
    async with running_parts() as parts:
        acls = FakeAcls()
        authorizer = enabled(parts, acls)
        for host in ("10.0.0.1", "10.0.0.2", "10.0.0.1"):
            authorizer.rights(ALICE, (), host).bits(TOPIC, "t")
        assert acls.questions == [("", "t")], "clients of all addresses share what is remembered"
        acls.names_hosts = True
        acls.version += 1
        for host in ("10.0.0.1", "10.0.0.2", "10.0.0.1"):
            authorizer.rights(ALICE, (), host).bits(TOPIC, "t")
        assert acls.questions[1:] == [("10.0.0.1", "t"), ("10.0.0.2", "t")]


@pytest.mark.parametrize("host", ["10.0.0.1", "10.0.0.2"])
async def test_s16_the_first_acl_that_names_an_address_counts_within_a_request(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """Bits that clients of all addresses share allow nothing then, and the denial is judged by the client's address."""
    async with running_parts() as parts:
        acls = FakeAcls(denying_host="10.0.0.2")
        authorizer = enabled(parts, acls)

        async def passes() -> bool:
            acls.table[ALICE, TOPIC, "t"] = bits(READ)
            acls.names_hosts = True
            acls.version += 1
            return True

        monkeypatch.setattr(authorizer.barrier, "passes", passes)
        rights = authorizer.rights(ALICE, (), host)
        is_allowed = await rights.may_behind_barrier(READ, TOPIC, "t")
        assert is_allowed == (host == "10.0.0.1")

        acls.names_hosts = False
        acls.version += 1
        rights = authorizer.rights(ALICE, (), host)
        assert rights.may(READ, TOPIC, "t")
        acls.names_hosts = True
        acls.version += 1
        rights.topics.clear()
        assert not rights.may(READ, TOPIC, "t"), "nothing is allowed without the address"
        rights.refresh()
        assert rights.may(READ, TOPIC, "t") == is_allowed


async def test_s16_a_right_that_the_barrier_brings_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_parts() as parts:
        acls = FakeAcls()
        authorizer = enabled(parts, acls)
        count = granting_at_the_barrier(authorizer, acls, monkeypatch)
        rights = authorizer.rights(ALICE)
        assert await rights.denied_names(READ, TOPIC, ["t", "u"]) == {"u"}
        assert len(count) == 1
        assert await rights.may_behind_barrier(READ, TOPIC, "t")
        assert len(count) == 1, "what is allowed takes no barrier"
        assert not await rights.may_on_cluster(Operation.ALTER, Operation.CLUSTER_ACTION)
        assert len(count) == 2


async def test_s16_an_operation_on_any_resource_is_asked_again_behind_the_barrier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_parts() as parts:
        acls = FakeAcls()
        authorizer = enabled(parts, acls)
        granting_at_the_barrier(authorizer, acls, monkeypatch)
        rights = authorizer.rights(ALICE)
        assert await rights.may_on_any(READ, TOPIC)
        assert not await rights.may_on_any(WRITE, TOPIC)


async def test_without_the_ledger_a_refusal_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_parts() as parts:
        authorizer = enabled(parts, FakeAcls())

        async def away() -> object:
            raise LedgerUnavailable("away")

        monkeypatch.setattr(parts.backend, "head", away)
        assert await authorizer.rights(ALICE).denied_names(READ, TOPIC, ["t"]) == {"t"}


async def test_until_the_acls_are_confirmed_only_super_users_are_served() -> None:
    async with running_parts() as parts:
        acls = FakeAcls({(ALICE, TOPIC, "t"): bits(READ)}, is_confirmed=False)
        rights = enabled(parts, acls, is_allowed_without_acls=True).rights(ALICE)
        assert await rights.denied_names(READ, TOPIC, ["t"]) == {"t"}
        assert not await rights.may_on_any(READ, TOPIC)


async def test_a_view_that_is_too_old_allows_nothing_before_a_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_parts() as parts:
        acls = FakeAcls({(ALICE, TOPIC, "t"): bits(READ)})
        authorizer = enabled(parts, acls, stale_max_s=5.0)
        assert authorizer.rights(ALICE).may(READ, TOPIC, "t")
        parts.clock.seconds += authorizer.view_age_s + 6.0
        rights = authorizer.rights(ALICE)
        assert not rights.may(READ, TOPIC, "t")
        assert not await rights.denied_names(READ, TOPIC, ["t"])
        assert rights.may(READ, TOPIC, "t")


async def test_a_view_that_is_too_old_allows_nothing_by_what_came_while_the_ledger_was_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A part of what was missed: what revokes the right may stand behind it."""
    async with running_parts() as parts:
        acls = FakeAcls({(ALICE, TOPIC, "t"): bits(READ)})
        authorizer = enabled(parts, acls, stale_max_s=5.0)
        parts.clock.seconds += authorizer.view_age_s + 6.0

        async def passes() -> bool:
            acls.version += 1
            return False

        monkeypatch.setattr(authorizer.barrier, "passes", passes)
        rights = authorizer.rights(ALICE)
        assert await rights.denied_names(READ, TOPIC, ["t"]) == {"t"}
        rights.refresh()
        assert not rights.may(READ, TOPIC, "t")


async def test_beyond_the_limit_the_oldest_name_of_all_principals_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer_module, "RIGHTS_NAMES_MAX", 3)
    async with running_parts() as parts:
        acls = FakeAcls()
        authorizer = enabled(parts, acls)
        alice, bob = authorizer.rights(ALICE), authorizer.rights(BOB)
        for rights, name in ((alice, "t0"), (bob, "t0"), (alice, "t1"), (bob, "t1"), (alice, "t2")):
            rights.bits(TOPIC, name)
        assert (list(alice.topics), list(bob.topics)) == (["t1", "t2"], ["t1"])
        asked = len(acls.questions)
        assert authorizer.rights(ALICE).topics is alice.topics
        alice.bits(TOPIC, "t1")
        alice.bits(TOPIC, "t2")
        assert len(acls.questions) == asked, "what was not forgotten is not worked out again"


async def test_s16_a_name_that_was_forgotten_is_denied_behind_a_barrier_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is forgotten while it is allowed, and worked out again by ACLs that no longer allow it."""
    monkeypatch.setattr(authorizer_module, "RIGHTS_NAMES_MAX", 1)
    async with running_parts() as parts:
        acls = FakeAcls({(ALICE, TOPIC, "t"): bits(READ)})
        authorizer = enabled(parts, acls)
        rights = authorizer.rights(ALICE)
        assert rights.may(READ, TOPIC, "t")
        rights.bits(TOPIC, "other")
        del acls.table[ALICE, TOPIC, "t"]
        assert not rights.may(READ, TOPIC, "t")

        async def passes() -> bool:
            acls.table[ALICE, TOPIC, "t"] = bits(READ)
            acls.version += 1
            return True

        monkeypatch.setattr(authorizer.barrier, "passes", passes)
        assert await rights.denied_names(READ, TOPIC, ["t"]) == frozenset()


async def test_beyond_the_limit_the_oldest_principal_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer_module, "RIGHTS_PRINCIPALS_MAX", 2)
    async with running_parts() as parts:
        acls = FakeAcls({(ALICE, TOPIC, "t"): bits(READ)})
        authorizer = enabled(parts, acls)
        alice, bob = authorizer.rights(ALICE), authorizer.rights(BOB)
        assert authorizer.rights(ANONYMOUS) is not alice
        assert authorizer.rights(BOB) is bob
        again = authorizer.rights(ALICE)
        assert again is not alice
        assert again.topics is not alice.topics
        assert alice.may(READ, TOPIC, "t"), "a request that holds them goes on"
        assert again.may(READ, TOPIC, "t")
        assert authorizer.rights(BOB) is not bob


def audited(parts: Parts, acls: FakeAcls, audit: KeptAuditLog, settings: AuthorizerSettings) -> Authorizer:
    return Authorizer(
        settings, acls=acls, ledger=parts.ledger, clock=parts.clock, metrics=parts.metrics, audit_log=audit
    )


async def test_what_is_denied_and_answered_is_in_the_audit_log() -> None:
    async with running_parts() as parts:
        denial = make_acl(name="u", permission=Permission.DENY)
        audit, acls = KeptAuditLog(), FakeAcls({(ALICE, TOPIC, "t"): bits(READ)}, deciders=[denial])
        SUBJECT.set(RequestOfAlice())
        settings = AuthorizerSettings(is_enabled=True)
        authorizer = audited(parts, acls, audit, settings)
        rights = authorizer.rights(ALICE)
        assert not rights.may(READ, TOPIC, "filtered")
        await rights.settle(DESCRIBE, CLUSTER, CLUSTER_NAME)
        assert await rights.denied_names(READ, TOPIC, ["t", "u"]) == {"u"}
        assert not await rights.may_on_cluster(Operation.ALTER)
        acls.is_confirmed = False
        acls.version += 1
        rights.count_denials(READ, TOPIC, ["t"])
        await audit.flush()
        lines = [line for line in audit.sink.lines if line["decision"] == "denied"]
        assert [(line["operation"], line["resource"], line["rule"]) for line in lines] == [
            ("READ", "Topic:u", "DENY READ to User:alice from * on TOPIC:LITERAL:u"),
            ("ALTER", f"Cluster:{CLUSTER_NAME}", "no ACL allows it"),
            ("READ", "Topic:t", "the ACLs are not confirmed since the recovery"),
        ]


async def test_what_is_allowed_is_in_the_audit_log_where_that_class_is_chosen() -> None:
    async with running_parts() as parts:
        table = {(ALICE, TOPIC, "t"): bits(READ), (ALICE, TOPIC, "open"): bits(READ)}
        audit, acls = KeptAuditLog(), FakeAcls(table, deciders=[make_acl(name="t", pattern=PatternType.PREFIXED)])
        SUBJECT.set(RequestOfAlice())
        settings = AuthorizerSettings(is_enabled=True, super_users=frozenset({BOB}))
        authorizer = audited(parts, acls, audit, settings)
        assert await authorizer.rights(ALICE).denied_names(READ, TOPIC, iter(["t", "u", "open"])) == {"u"}
        assert not await authorizer.rights(BOB).denied_names(READ, TOPIC, ["t"])
        assert await authorizer.rights(BOB).may_on_cluster(Operation.ALTER)
        off = audited(parts, acls, audit, AuthorizerSettings())
        assert not await off.rights(ALICE).denied_names(WRITE, TOPIC, ["v"])
        await audit.flush()
        lines = [(line["resource"], line["rule"]) for line in audit.sink.lines if line["decision"] == "allowed"]
        assert lines == [
            ("Topic:t", "ALLOW READ to User:alice from * on TOPIC:PREFIXED:t"),
            ("Topic:open", "no ACL names it, and allow.everyone.if.no.acl.found is on"),
            ("Topic:t", "super user"),
            (f"Cluster:{CLUSTER_NAME}", "super user"),
            ("Topic:v", "the authorizer is off"),
        ]


async def test_the_age_of_acls_is_named_as_the_reason() -> None:
    async with running_parts() as parts:
        audit = KeptAuditLog()
        SUBJECT.set(RequestOfAlice())
        authorizer = audited(parts, FakeAcls(), audit, AuthorizerSettings(is_enabled=True, stale_max_s=1.0))
        parts.clock.seconds += 60
        rights = authorizer.rights(ALICE)
        assert rights.rule(READ, TOPIC, "t") == "the ACLs are older than authorizer.stale.max.ms"
        assert ALL_RIGHTS.rule(READ, TOPIC, "t") == "everything is allowed"
