"""ACLs and SCRAM credentials are what the ledger's entries made of them, and outcomes say what each entry did."""

import pytest
from msgspec import ValidationError, convert, structs, to_builtins

from coordinator.apply import security as apply_security
from coordinator.commands.commands import Done, Outcome, Rejected
from coordinator.commands.rules import RULES_CHECKED_ENTRIES, RULES_NEWEST
from coordinator.commands.security import (
    AclRow,
    AclsCreated,
    AclsDeleted,
    AlterScram,
    BootstrapUsers,
    CreateAcls,
    DeleteAcls,
    ScramAltered,
)
from coordinator.security.acl_index import AclIndex
from coordinator.security.acls import Acl, AclFilter
from coordinator.snapshot import decode_snapshot, digest, encode_snapshot
from protocol.auth.operations import Operation, PatternType, Permission
from protocol.auth.scram_credentials import ScramMechanism
from protocol.errors import ErrorCode
from tests.support.acls import BOB, make_acl
from tests.support.commands.commands import Cluster
from tests.support.commands.every_command import SCRAM_ROW

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
READ, WRITE = make_acl(Operation.READ), make_acl(Operation.WRITE)
ALICE = ("alice", SHA_256)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster.started(RULES_NEWEST)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of everything is the most."""
    for limit in ("ACLS_MAX", "ACL_DELETIONS_PER_ENTRY_MAX", "SCRAM_CREDENTIALS_MAX"):
        monkeypatch.setattr(apply_security, limit, 2)


def create(cluster: Cluster, *acls: Acl) -> Outcome:
    return cluster.do(CreateAcls.of(acls))


def delete(cluster: Cluster, acl_filter: AclFilter) -> Outcome:
    return cluster.do(DeleteAcls.of(acl_filter))


def rejection(outcome: Outcome) -> ErrorCode:
    assert isinstance(outcome, Rejected)
    return outcome.error_code


class TestAcls:
    def test_they_are_created_in_their_order_and_counted(self, cluster: Cluster) -> None:
        assert create(cluster, WRITE, READ) == AclsCreated(created_count=2)
        assert list(cluster.state.acls) == [WRITE, READ]
        assert cluster.state.acl_index == AclIndex.of([READ, WRITE])

    def test_one_that_is_there_is_a_success_and_changes_nothing(self, cluster: Cluster) -> None:
        create(cluster, READ)
        assert create(cluster, WRITE, READ, WRITE) == AclsCreated(created_count=1)
        assert list(cluster.state.acls) == [READ, WRITE]

    def test_a_filter_removes_what_fits_where_the_entry_is_applied(self, cluster: Cluster) -> None:
        of_bob = make_acl(Operation.READ, principal=BOB)
        create(cluster, WRITE, READ, of_bob)
        assert delete(cluster, AclFilter(principal="User:alice")) == AclsDeleted(acls=(READ, WRITE))
        assert list(cluster.state.acls) == [of_bob]
        assert delete(cluster, AclFilter(principal="User:alice")) == AclsDeleted(acls=())

    def test_each_change_gives_them_a_higher_version(self, cluster: Cluster) -> None:
        versions = [cluster.state.acls_version]
        create(cluster, READ)
        versions.append(cluster.state.acls_version)
        delete(cluster, AclFilter())
        versions.append(cluster.state.acls_version)
        assert versions == sorted(set(versions))

    @pytest.mark.usefixtures("few")
    def test_beyond_the_limit_none_of_an_entry_is_created(self, cluster: Cluster) -> None:
        create(cluster, READ)
        third = make_acl(Operation.ALTER)
        assert rejection(create(cluster, WRITE, third)) is ErrorCode.policy_violation
        assert list(cluster.state.acls) == [READ]
        assert create(cluster, WRITE, READ) == AclsCreated(created_count=1)

    def test_a_filter_that_fits_more_than_kafkas_limit_removes_none(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(apply_security, "ACL_DELETIONS_PER_ENTRY_MAX", 1)
        create(cluster, READ, WRITE)
        assert rejection(delete(cluster, AclFilter())) is ErrorCode.invalid_request
        assert list(cluster.state.acls) == [READ, WRITE]
        assert delete(cluster, AclFilter(operation=Operation.READ)) == AclsDeleted(acls=(READ,))

    @pytest.mark.parametrize("command", [CreateAcls.of([READ]), DeleteAcls.of(AclFilter())])
    def test_whoever_alters_them_confirms_those_of_a_recovery(
        self, cluster: Cluster, command: CreateAcls | DeleteAcls
    ) -> None:
        cluster.state.is_acls_confirmed = False
        version = cluster.state.acls_version
        cluster.do(command)
        assert cluster.state.is_acls_confirmed
        assert cluster.state.acls_version > version


class TestCredentials:
    def test_they_are_set_replaced_and_deleted(self, cluster: Cluster) -> None:
        other = structs.replace(SCRAM_ROW, mechanism=SHA_512)
        assert cluster.do(AlterScram(upsertions=(SCRAM_ROW, other))) == ScramAltered(missing=())
        assert cluster.state.scram == {ALICE: SCRAM_ROW.credential(), ("alice", SHA_512): other.credential()}
        newer = structs.replace(SCRAM_ROW, salt=b"other")
        cluster.do(AlterScram(upsertions=(newer,), deletions=(("alice", SHA_512),)))
        assert cluster.state.scram == {ALICE: newer.credential()}

    def test_a_deletion_of_what_is_not_there_leaves_the_rest_as_it_is(self, cluster: Cluster) -> None:
        outcome = cluster.do(AlterScram(deletions=(ALICE,), upsertions=(structs.replace(SCRAM_ROW, user="bob"),)))
        assert outcome == ScramAltered(missing=(ALICE,))
        assert list(cluster.state.scram) == [("bob", SHA_256)]

    def test_each_change_gives_them_a_higher_version(self, cluster: Cluster) -> None:
        version = cluster.state.scram_version
        cluster.do(AlterScram(upsertions=(SCRAM_ROW,)))
        assert cluster.state.scram_version > version

    @pytest.mark.usefixtures("few")
    def test_beyond_the_limit_none_of_an_entry_is_altered(self, cluster: Cluster) -> None:
        cluster.do(AlterScram(upsertions=(SCRAM_ROW, structs.replace(SCRAM_ROW, user="bob"))))
        before = dict(cluster.state.scram)
        third = structs.replace(SCRAM_ROW, user="carol")
        assert rejection(cluster.do(AlterScram(upsertions=(third,)))) is ErrorCode.policy_violation
        replaced = AlterScram(deletions=(ALICE,), upsertions=(SCRAM_ROW, third))
        assert rejection(cluster.do(replaced)) is ErrorCode.policy_violation
        assert cluster.state.scram == before
        assert cluster.do(AlterScram(deletions=(ALICE,), upsertions=(third,))) == ScramAltered(missing=())

    def test_no_key_is_in_the_text_of_a_command(self) -> None:
        text = repr(AlterScram(upsertions=(SCRAM_ROW,)))
        assert "alice" in text
        assert not any(repr(key)[2:8] in text for key in (SCRAM_ROW.salt, SCRAM_ROW.stored_key, SCRAM_ROW.server_key))


BOOTSTRAP = BootstrapUsers(credentials=(SCRAM_ROW,), acls=(AclRow.of(READ),))


class TestBootstrap:
    def test_the_first_of_many_proposals_is_taken(self, cluster: Cluster) -> None:
        assert cluster.do(BOOTSTRAP) == Done()
        assert (list(cluster.state.acls), list(cluster.state.scram)) == ([READ], [ALICE])
        other = BootstrapUsers(credentials=(structs.replace(SCRAM_ROW, user="mallory"),))
        assert rejection(cluster.do(other)) is ErrorCode.duplicate_resource
        assert list(cluster.state.scram) == [ALICE]

    @pytest.mark.parametrize(
        "commands",
        [
            [CreateAcls.of([READ]), DeleteAcls.of(AclFilter())],
            [AlterScram(upsertions=(SCRAM_ROW,)), AlterScram(deletions=(ALICE,))],
        ],
    )
    def test_none_is_taken_after_what_there_was_has_been_deleted(
        self, cluster: Cluster, commands: list[CreateAcls | DeleteAcls | AlterScram]
    ) -> None:
        for command in commands:
            cluster.do(command)
        assert not cluster.state.acls
        assert not cluster.state.scram
        assert rejection(cluster.do(BOOTSTRAP)) is ErrorCode.duplicate_resource

    def test_a_change_that_brought_nothing_leaves_it_possible(self, cluster: Cluster) -> None:
        cluster.do(DeleteAcls.of(AclFilter()))
        cluster.do(AlterScram(deletions=(ALICE,)))
        assert cluster.do(BOOTSTRAP) == Done()

    @pytest.mark.usefixtures("few")
    def test_beyond_a_limit_nothing_is_created(self, cluster: Cluster) -> None:
        rows = tuple(structs.replace(SCRAM_ROW, user=user) for user in "abc")
        acls = CreateAcls.of([READ, WRITE, make_acl(Operation.ALTER)]).rows
        for command in (BootstrapUsers(credentials=rows), BootstrapUsers(credentials=(SCRAM_ROW,), acls=acls)):
            assert rejection(cluster.do(command)) is ErrorCode.policy_violation
        assert cluster.do(BOOTSTRAP) == Done()


class TestForms:
    def test_under_older_rules_an_entry_has_no_effect(self) -> None:
        cluster = Cluster.started(RULES_CHECKED_ENTRIES)
        before = digest(cluster.state)
        assert rejection(create(cluster, READ)) is ErrorCode.unsupported_version
        assert rejection(cluster.do(BOOTSTRAP)) is ErrorCode.unsupported_version
        assert not cluster.state.acls
        assert before != digest(cluster.state)  # the session's next entry is another one

    def test_a_snapshot_keeps_all_of_it(self, cluster: Cluster) -> None:
        create(cluster, WRITE, READ)
        cluster.do(AlterScram(upsertions=(structs.replace(SCRAM_ROW, user="z"), SCRAM_ROW)))
        state = cluster.state
        state.is_acls_confirmed = False
        copy = decode_snapshot(encode_snapshot(state))
        assert (list(copy.acls), copy.acl_index) == (list(state.acls), state.acl_index)
        assert (copy.scram, copy.is_security_set_up, copy.is_acls_confirmed) == (state.scram, True, False)
        assert digest(copy) == digest(state)
        state.is_acls_confirmed = True
        assert digest(copy) != digest(state)

    @pytest.mark.parametrize(
        ("field", "value", "message"),
        [
            ("principal", "alice", "is no principal"),
            ("operation", Operation.ANY, "a field that is ANY"),
            ("permission", Permission.ANY, "a field that is ANY"),
            ("resource_type", 1, "a field that is ANY"),
            ("pattern", PatternType.MATCH, "a field that is ANY"),
            ("name", "", "length >= 1"),
        ],
    )
    @pytest.mark.parametrize("entry", [[70], [73, []]], ids=["CreateAcls", "BootstrapUsers"])
    def test_an_entry_with_what_is_no_acl_cannot_be_read(
        self, entry: list[object], field: str, value: object, message: str
    ) -> None:
        row = to_builtins(AclRow.of(READ))
        row[AclRow.__struct_fields__.index(field)] = value
        with pytest.raises(ValidationError, match=message):
            convert([*entry, [row]], CreateAcls | BootstrapUsers)
