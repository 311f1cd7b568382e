"""Delegation tokens are what the ledger's entries made of them, by the times of checked clocks."""

from collections.abc import Callable

import pytest
from msgspec import ValidationError, convert, structs, to_builtins

from coordinator.apply import delegation_tokens as apply_tokens
from coordinator.commands.commands import Outcome, Rejected
from coordinator.commands.delegation_tokens import (
    CreateDelegationToken,
    ExpireDelegationToken,
    RemoveExpiredTokens,
    RenewDelegationToken,
    TokenCommand,
    TokenCreated,
    TokenExpirySet,
    TokenRow,
    TokensRemoved,
)
from coordinator.commands.rules import RULES_NEWEST, RULES_SECURITY
from coordinator.commands.security import AlterScram
from coordinator.security.delegation_tokens import DelegationToken
from coordinator.snapshot import decode_snapshot, digest, encode_snapshot
from protocol.auth.principals import Principal
from protocol.auth.scram_credentials import ScramMechanism
from protocol.errors import ErrorCode
from protocol.limits import DELEGATION_TOKEN_RENEWERS_MAX, DELEGATION_TOKEN_TIME_MS_MAX
from protocol.types import Milliseconds
from tests.support.commands.commands import Cluster
from tests.support.commands.every_command import CREATE_TOKEN, SCRAM_ROW, TOKEN_ID

ALICE, SPARK, CAROL = (Principal("User", name) for name in ("alice", "spark", "carol"))
NOW = 1_700_000_000_000
CREATE = structs.replace(CREATE_TOKEN, renewers=("User:carol",), lifetime_ms=1_000, renewal_ms=100)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster.started(RULES_NEWEST)


@pytest.fixture
def with_token(cluster: Cluster) -> Cluster:
    assert isinstance(cluster.do(CREATE, time_ms=NOW), TokenCreated)
    return cluster


def create(token_id: str, *, owner: str = "alice", requester: str = "alice") -> CreateDelegationToken:
    return structs.replace(CREATE, token_id=token_id, owner=f"User:{owner}", requester=f"User:{requester}", renewers=())


def renew(period_ms: int = 100, *, renewer: str = "alice") -> RenewDelegationToken:
    return RenewDelegationToken(token_id=TOKEN_ID, renewer=f"User:{renewer}", period_ms=period_ms)


def expire(period_ms: int | None = None, *, requester: str = "alice") -> ExpireDelegationToken:
    period = None if period_ms is None else Milliseconds(period_ms)
    return ExpireDelegationToken(token_id=TOKEN_ID, requester=f"User:{requester}", period_ms=period)


def remove(now_ms: int, tokens_max: int = 1_000) -> RemoveExpiredTokens:
    return RemoveExpiredTokens(now_ms=Milliseconds(now_ms), tokens_max=tokens_max)


def rejection(outcome: Outcome) -> ErrorCode:
    assert isinstance(outcome, Rejected)
    return outcome.error_code


class TestCreation:
    def test_its_times_are_those_of_the_entry(self, with_token: Cluster) -> None:
        assert with_token.state.tokens == {
            TOKEN_ID: DelegationToken(
                owner=ALICE,
                requester=SPARK,
                renewers=(CAROL,),
                issue_ms=Milliseconds(NOW),
                expiry_ms=Milliseconds(NOW + 100),
                max_ms=Milliseconds(NOW + 1_000),
            )
        }

    def test_it_ends_with_its_longest_life(self, cluster: Cluster) -> None:
        outcome = cluster.do(structs.replace(CREATE, renewal_ms=2_000), time_ms=NOW)
        assert isinstance(outcome, TokenCreated)
        assert outcome.token.expiry_ms == outcome.token.max_ms == NOW + 1_000

    def test_no_end_is_later_than_an_answer_can_have(self, cluster: Cluster) -> None:
        cluster.do(structs.replace(CREATE, lifetime_ms=(1 << 63) - 1, renewal_ms=(1 << 63) - 1), time_ms=NOW)
        token = cluster.state.tokens[TOKEN_ID]
        assert token.expiry_ms == token.max_ms == DELEGATION_TOKEN_TIME_MS_MAX

    def test_an_id_that_is_there_is_rejected(self, with_token: Cluster) -> None:
        assert rejection(with_token.do(CREATE, time_ms=NOW)) is ErrorCode.duplicate_resource

    def test_beyond_a_limit_nothing_is_created(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(apply_tokens, "DELEGATION_TOKENS_MAX", 3)
        monkeypatch.setattr(apply_tokens, "DELEGATION_TOKENS_PER_REQUESTER_MAX", 2)
        renewers = ("User:carol",) * (DELEGATION_TOKEN_RENEWERS_MAX + 1)
        too_many = cluster.do(structs.replace(CREATE, renewers=renewers), time_ms=NOW)
        assert rejection(too_many) is ErrorCode.policy_violation
        for token_id in "AB":
            assert isinstance(cluster.do(create(token_id), time_ms=NOW), TokenCreated)
        assert rejection(cluster.do(create("C"), time_ms=NOW)) is ErrorCode.policy_violation
        assert isinstance(cluster.do(create("C", requester="spark"), time_ms=NOW), TokenCreated)
        assert rejection(cluster.do(create("D", requester="spark"), time_ms=NOW)) is ErrorCode.policy_violation
        assert list(cluster.state.tokens) == ["A", "B", "C"]


class TestRenewal:
    @pytest.mark.parametrize("renewer", ["alice", "carol"])
    def test_owner_and_renewers_prolong_it(self, with_token: Cluster, renewer: str) -> None:
        outcome = with_token.do(renew(300, renewer=renewer), time_ms=NOW + 50)
        assert outcome == TokenExpirySet(expiry_ms=Milliseconds(NOW + 350))
        assert with_token.state.tokens[TOKEN_ID].expiry_ms == NOW + 350

    def test_it_may_become_shorter_as_in_kafka(self, with_token: Cluster) -> None:
        assert with_token.do(renew(10), time_ms=NOW) == TokenExpirySet(expiry_ms=Milliseconds(NOW + 10))

    def test_never_beyond_its_longest_life(self, with_token: Cluster) -> None:
        assert with_token.do(renew(5_000), time_ms=NOW) == TokenExpirySet(expiry_ms=Milliseconds(NOW + 1_000))

    @pytest.mark.parametrize("user", ["spark", "mallory"])
    def test_not_by_others_nor_by_who_asked_for_it(self, with_token: Cluster, user: str) -> None:
        for command in (renew(renewer=user), expire(1, requester=user), expire(requester=user)):
            assert rejection(with_token.do(command, time_ms=NOW)) is ErrorCode.delegation_token_owner_mismatch

    def test_not_after_its_end(self, with_token: Cluster) -> None:
        """Kafka looks for the end first where a token is renewed, and for the owner first where it is expired."""
        assert isinstance(with_token.do(renew(100), time_ms=NOW + 100), TokenExpirySet)
        for command in (renew(), renew(renewer="mallory"), expire(1)):
            assert rejection(with_token.do(command, time_ms=NOW + 201)) is ErrorCode.delegation_token_expired
        late = with_token.do(expire(1, requester="mallory"), time_ms=NOW + 201)
        assert rejection(late) is ErrorCode.delegation_token_owner_mismatch

    def test_not_of_a_token_that_is_not_there(self, cluster: Cluster) -> None:
        for command in (renew(), expire(1), expire()):
            assert rejection(cluster.do(command, time_ms=NOW)) is ErrorCode.delegation_token_not_found


class TestExpiry:
    def test_at_once_it_is_removed_also_after_its_end(self, with_token: Cluster) -> None:
        assert with_token.do(expire(), time_ms=NOW + 5_000) == TokenExpirySet(expiry_ms=None)
        assert not with_token.state.tokens

    def test_a_period_sets_its_end_within_its_longest_life(self, with_token: Cluster) -> None:
        assert with_token.do(expire(0), time_ms=NOW) == TokenExpirySet(expiry_ms=Milliseconds(NOW))
        assert with_token.do(expire(9_999), time_ms=NOW) == TokenExpirySet(expiry_ms=Milliseconds(NOW + 1_000))

    def test_what_has_ended_is_removed_the_oldest_first(self, cluster: Cluster) -> None:
        for token_id in "ABC":
            cluster.do(create(token_id), time_ms=NOW)
        assert cluster.do(remove(NOW + 100), time_ms=NOW + 100) == TokensRemoved(token_ids=())
        assert cluster.do(remove(NOW + 101, 2), time_ms=NOW + 101) == TokensRemoved(token_ids=("A", "B"))
        assert cluster.do(remove(NOW + 101, 2), time_ms=NOW + 101) == TokensRemoved(token_ids=("C",))

    def test_s2_nothing_ends_by_a_time_ahead_of_the_checked_one(self, with_token: Cluster) -> None:
        assert with_token.do(remove(NOW + 101), time_ms=NOW + 50) == TokensRemoved(token_ids=())
        assert with_token.do(remove(NOW + 50), time_ms=NOW + 101) == TokensRemoved(token_ids=())
        assert with_token.do(remove(NOW + 101)) == TokensRemoved(token_ids=())


class TestWithoutATime:
    def test_s2_no_token_begins_or_is_prolonged(self, with_token: Cluster) -> None:
        before = dict(with_token.state.tokens)
        for command in (create("B"), renew(), expire(1)):
            assert rejection(with_token.do(command)) is ErrorCode.request_timed_out
        assert with_token.state.tokens == before

    def test_it_is_removed_all_the_same(self, with_token: Cluster) -> None:
        assert with_token.do(expire()) == TokenExpirySet(expiry_ms=None)


class TestDeletedUsers:
    @pytest.fixture
    def tokens(self, cluster: Cluster) -> Cluster:
        """Two users with credentials, one of them with two, and a token for each pair of owner and requester."""
        sha_512 = structs.replace(SCRAM_ROW, mechanism=ScramMechanism.SCRAM_SHA_512)
        cluster.do(AlterScram(upsertions=(SCRAM_ROW, sha_512, structs.replace(SCRAM_ROW, user="bob"))))
        for number, (owner, requester) in enumerate([("alice", "alice"), ("alice", "bob"), ("bob", "alice")]):
            cluster.do(create(str(number), owner=owner, requester=requester), time_ms=NOW)
        cluster.do(create("other", owner="bob", requester="bob"), time_ms=NOW)
        return cluster

    def test_the_last_credential_takes_the_tokens_with_it(self, tokens: Cluster) -> None:
        tokens.do(AlterScram(deletions=(("alice", ScramMechanism.SCRAM_SHA_256),)))
        assert list(tokens.state.tokens) == ["0", "1", "2", "other"]
        version = tokens.state.tokens_version
        tokens.do(AlterScram(deletions=(("alice", ScramMechanism.SCRAM_SHA_512),)))
        assert list(tokens.state.tokens) == ["other"]
        assert tokens.state.tokens_version > version

    def test_a_credential_that_is_set_again_keeps_them(self, tokens: Cluster) -> None:
        row = structs.replace(SCRAM_ROW, user="bob")
        tokens.do(AlterScram(deletions=(row.credential_id,), upsertions=(row,)))
        assert len(tokens.state.tokens) == 4

    def test_a_user_who_never_had_one_keeps_them(self, with_token: Cluster) -> None:
        with_token.do(AlterScram(deletions=(("alice", ScramMechanism.SCRAM_SHA_256),)))
        assert list(with_token.state.tokens) == [TOKEN_ID]


class TestForms:
    def test_under_older_rules_an_entry_has_no_effect(self) -> None:
        cluster = Cluster.started(RULES_SECURITY)
        for command in (CREATE, renew(), expire(), remove(NOW)):
            assert rejection(cluster.do(command, time_ms=NOW)) is ErrorCode.unsupported_version
        assert not cluster.state.tokens

    def test_a_snapshot_keeps_them_in_their_order(self, with_token: Cluster) -> None:
        with_token.do(create("B"), time_ms=NOW)
        with_token.do(create("A"), time_ms=NOW)
        state = with_token.state
        copy = decode_snapshot(encode_snapshot(state))
        assert list(copy.tokens.items()) == list(state.tokens.items())
        assert digest(copy) == digest(state)
        assert copy.tokens_version == state.position

    def test_each_change_gives_them_a_higher_version(self, cluster: Cluster) -> None:
        changes: list[TokenCommand] = [CREATE, renew(), expire(1), expire(), create("B"), remove(NOW + 9_999)]
        versions = [cluster.state.tokens_version]
        for number, command in enumerate(changes):
            cluster.do(command, time_ms=NOW + 9_999 * (number == len(changes) - 1))
            versions.append(cluster.state.tokens_version)
        assert sorted({*versions}) == versions
        cluster.do(remove(NOW + 9_999), time_ms=NOW + 9_999)
        assert cluster.state.tokens_version == versions[-1]

    @pytest.mark.parametrize("principal", ["alice", "Group:admins", "User:", ":alice"])
    @pytest.mark.parametrize(
        ("command", "fields"),
        [
            (CREATE, ("owner", "requester", "renewers")),
            (renew(), ("renewer",)),
            (expire(), ("requester",)),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_an_entry_with_a_principal_that_is_no_user_cannot_be_read(
        self, command: TokenCommand, fields: tuple[str, ...], principal: str
    ) -> None:
        for field in fields:
            entry = to_builtins(command)
            index = type(command).__struct_fields__.index(field) + 1  # the tag comes first
            entry[index] = [principal] if field == "renewers" else principal
            with pytest.raises(ValidationError, match=r"is no (user|principal)"):
                convert(entry, type(command))

    @pytest.mark.parametrize("damage", [lambda row: structs.replace(row, owner="Group:g")])
    def test_a_snapshot_with_one_cannot_be_read(
        self, with_token: Cluster, damage: Callable[[TokenRow], TokenRow]
    ) -> None:
        row = TokenRow.of(TOKEN_ID, with_token.state.tokens[TOKEN_ID])
        assert row.token() == with_token.state.tokens[TOKEN_ID]
        with pytest.raises(ValueError, match="'Group:g' is no user"):
            damage(row).token()
