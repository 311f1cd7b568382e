"""Delegation tokens that let nobody in, and what may not be done with them (KIP-48): over SASL and over HTTPS.

Kafka's rules, of 4.3.1: logins in org.apache.kafka.common.security.scram.internals.ScramSaslServer, who may ask in
kafka.server.KafkaApis (allowTokenRequests), and who may renew and expire in
org.apache.kafka.controller.DelegationTokenControlManager. Stricter than Kafka: a token that has ended lets nobody in
before it is swept, its connections are closed, and it goes with the last credential of its owner.
"""

import struct
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

import pytest

from protocol.api_versions import ApiKey
from protocol.auth.scram_credentials import ScramMechanism
from protocol.errors import ErrorCode
from tests.security.login_agent import PASSWORD, SESSION_MS, LoginAgent
from tests.support.auth.drawn_scram_client import DrawnScramClient
from tests.support.clients.kafka_requests import Entity
from tests.support.clients.login_client import ERROR_CODE_AT, LoginClient

FAILED = ErrorCode.sasl_authentication_failed
DISALLOWED = ErrorCode.delegation_token_request_not_allowed
MISMATCH = ErrorCode.delegation_token_owner_mismatch
NOT_FOUND = ErrorCode.delegation_token_not_found
EXPIRED = ErrorCode.delegation_token_expired
DENIED = ErrorCode.delegation_token_authorization_failed
SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
TOKEN_AUTH = ",tokenauth=true"
HOUR_MS = 3_600_000
ENDS_SECONDS_MAX = 5.0
"""Within a second a connection is closed whose token has ended, on a machine that is not busy."""

pytestmark = pytest.mark.xdist_group("login agent")


@dataclass(frozen=True, slots=True)
class Token:
    """A delegation token as its owner knows it."""

    token_id: str
    hmac: bytes

    @property
    def secret(self) -> str:
        """The password of a client that logs in with it."""
        return b64encode(self.hmac).decode()

    @property
    def bearer(self) -> str:
        """The header of a client of the HTTP port."""
        return f"Bearer {self.token_id}~{self.secret}"


@dataclass(frozen=True, slots=True)
class Owners:
    """Connections by password: alice is a super user, bob is not."""

    logins: LoginAgent
    alice: LoginClient
    bob: LoginClient


@pytest.fixture(scope="module")
def owners(logins: LoginAgent) -> Iterator[Owners]:
    with logins.connect() as alice, logins.connect() as bob:
        for client, user in ((alice, "alice"), (bob, "bob")):
            assert client.log_in(user, PASSWORD).error_code == 0
        yield Owners(logins, alice, bob)


@pytest.fixture(scope="module")
def token(owners: Owners) -> Token:
    """A token of alice that nothing ends."""
    return create(owners.alice)


def ask_for_token(client: LoginClient, lifetime_ms: int = -1, renewer: str = "", owner: str | None = None) -> Entity:
    """The answer to CreateDelegationToken."""
    values = {
        "owner_principal_type": "User",
        "owner_principal_name": owner,
        "renewers": [{"principal_type": "User", "principal_name": renewer}] if renewer else [],
        "max_lifetime": timedelta(milliseconds=lifetime_ms),
    }
    return client.ask(ApiKey.CREATE_DELEGATION_TOKEN, 3, values)


def create(client: LoginClient, lifetime_ms: int = -1, renewer: str = "") -> Token:
    answer = ask_for_token(client, lifetime_ms, renewer)
    assert answer.error_code == 0, answer
    return Token(answer.token_id, answer.hmac)


def renew(client: LoginClient, hmac: bytes) -> int:
    """The error of RenewDelegationToken."""
    values = {"hmac": hmac, "renew_period": timedelta(milliseconds=HOUR_MS)}
    return error_of(client, ApiKey.RENEW_DELEGATION_TOKEN, values)


def expire(client: LoginClient, hmac: bytes, period_ms: int = -1) -> int:
    """The error of ExpireDelegationToken, which removes the token where the period is negative."""
    values = {"hmac": hmac, "expiry_time_period": timedelta(milliseconds=period_ms)}
    return error_of(client, ApiKey.EXPIRE_DELEGATION_TOKEN, values)


def error_of(client: LoginClient, api_key: ApiKey, values: Mapping[str, object]) -> int:
    """The error of an answer whose time may lie before 1970, which kio does not read."""
    client.send_request(api_key, 2, values)
    (error_code,) = struct.unpack_from(">h", client.receive(), ERROR_CODE_AT)
    return int(error_code)


def describe(client: LoginClient, owner: str = "") -> Entity:
    """The answer to DescribeDelegationToken, about all owners or one."""
    asked = [{"principal_type": "User", "principal_name": owner}] if owner else None
    return client.ask(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, {"owners": asked})


def wait_for_end(owners: Owners, token: Token) -> None:
    """Returns once a token of alice is behind its end, whose own millisecond still belongs to it."""
    (ends_ms,) = (row.expiry_timestamp for row in describe(owners.alice).tokens if row.token_id == token.token_id)
    owners.logins.process.wait_until(lambda: time.time() * 1000 >= ends_ms + 1, "the end of a token")


def all_errors(client: LoginClient, token: Token) -> list[int]:
    """The errors of the four APIs."""
    created, described = ask_for_token(client), describe(client)
    assert created.error_code == 0 or not hasattr(created, "token_id")
    assert described.error_code == 0 or not described.tokens
    return [created.error_code, renew(client, token.hmac), expire(client, token.hmac), described.error_code]


def by_token(token: Token, mechanism: ScramMechanism = SHA_512, gs2_header: str = "n,,") -> DrawnScramClient:
    """A client that logs in with a token."""
    return scram(token.token_id, token.secret, mechanism, gs2_header=gs2_header)


def scram(
    user: str,
    password: str,
    mechanism: ScramMechanism = SHA_512,
    extensions: str = TOKEN_AUTH,
    gs2_header: str = "n,,",
) -> DrawnScramClient:
    return DrawnScramClient(
        mechanism=mechanism, user=user, password=password, extensions=extensions, gs2_header=gs2_header
    )


def is_in(logins: LoginAgent, token: Token) -> bool:
    """Whether a client comes in with the token, which is the same over SASL by either mechanism, and over HTTPS."""
    found = set[bool]()
    for mechanism in ScramMechanism:
        with logins.connect() as client:
            answer = client.log_in_by_scram(by_token(token, mechanism))
            assert answer.error_code in (0, FAILED)
            assert client.is_served if answer.error_code == 0 else client.is_closed()
            found.add(answer.error_code == 0)
    status = logins.https_status(token.bearer)
    assert status in (200, 401)
    found.add(status == 200)
    assert len(found) == 1, "one of the ways is another"
    return found.pop()


def test_a_good_token_lets_its_owner_in(logins: LoginAgent, token: Token) -> None:
    assert is_in(logins, token)


WRONG_FORMS: dict[str, Callable[[Token, Token], DrawnScramClient]] = {
    "wrong HMAC": lambda token, _: scram(token.token_id, b64encode(bytes(64)).decode()),
    "HMAC of another token": lambda token, other: scram(token.token_id, other.secret),
    "HMAC as bytes in hex": lambda token, _: scram(token.token_id, token.hmac.hex()),
    "no HMAC": lambda token, _: scram(token.token_id, ""),
    "password of the owner": lambda token, _: scram(token.token_id, PASSWORD),
    "unknown id": lambda token, _: scram("A" * 22, token.secret),
    "id in lower case": lambda token, _: scram(token.token_id.swapcase(), token.secret),
    "HMAC as the id": lambda token, _: scram(token.secret, token.secret),
    "name of the owner": lambda token, _: scram("alice", token.secret),
    "without tokenauth": lambda token, _: scram(token.token_id, token.secret, extensions=""),
    "tokenauth=false": lambda token, _: scram(token.token_id, token.secret, extensions=",tokenauth=false"),
    "tokenauth that is taken back": lambda token, _: scram(
        token.token_id, token.secret, extensions=",tokenauth=true,tokenauth=false"
    ),
    "owner with tokenauth": lambda *_: scram("alice", PASSWORD, SHA_256),
    "another user with tokenauth": lambda *_: scram("bob", PASSWORD),
    "in the name of the owner": lambda token, _: by_token(token, gs2_header="n,a=alice,"),
    "in the name of another token": lambda token, other: by_token(token, gs2_header=f"n,a={other.token_id},"),
    "channel binding": lambda token, _: by_token(token, gs2_header="p=tls-unique,,"),
}


@pytest.mark.parametrize("made", WRONG_FORMS.values(), ids=WRONG_FORMS)
def test_a_login_that_fails(
    logins: LoginAgent, owners: Owners, token: Token, made: Callable[[Token, Token], DrawnScramClient]
) -> None:
    with logins.connect() as client:
        assert client.log_in_by_scram(made(token, create(owners.bob))).error_code == FAILED
        assert client.is_closed()


def test_a_token_is_no_password_of_plain(logins: LoginAgent, token: Token) -> None:
    for user in (token.token_id, "alice"):
        with logins.connect() as client:
            assert client.log_in(user, token.secret).error_code == FAILED
            assert client.is_closed()


def test_wrong_tokens_over_http(logins: LoginAgent, owners: Owners, token: Token) -> None:
    other = create(owners.bob)
    basic = b64encode(f"{token.token_id}:{token.secret}".encode()).decode()
    for wrong in (
        f"Bearer {token.token_id}~{other.secret}",
        f"Bearer {token.token_id}~{token.secret.rstrip('=')}",
        f"Bearer {token.token_id}~{token.hmac.hex()}",
        f"Bearer {token.token_id}~{token.secret}~{token.secret}",
        f"Bearer {token.token_id}~",
        f"Bearer {token.token_id}",
        f"Bearer ~{token.secret}",
        f"Bearer {token.secret}",
        f"Bearer alice~{token.secret}",
        f"Bearer {'A' * 22}~{token.secret}",
        f"Basic {basic}",
    ):
        assert logins.https_status(wrong) == 401, wrong


def removed(owners: Owners) -> Token:
    token = create(owners.alice)
    assert expire(owners.alice, token.hmac) == 0
    return token


def ended_by_its_owner(owners: Owners) -> Token:
    token = create(owners.alice)
    assert expire(owners.alice, token.hmac, 0) == 0
    wait_for_end(owners, token)
    return token


def of_full_age(owners: Owners) -> Token:
    """A token whose longest life is over, and so is its time."""
    token = create(owners.alice, lifetime_ms=1)
    wait_for_end(owners, token)
    return token


def removed_by_its_renewer(owners: Owners) -> Token:
    token = create(owners.alice, renewer="bob")
    assert renew(owners.bob, token.hmac) == 0
    assert expire(owners.bob, token.hmac) == 0
    return token


def of_a_deleted_user(owners: Owners) -> Token:
    """A token whose owner has no credential any more: in Kafka it goes on."""
    with_password = {"name": "dora", "mechanism": int(SHA_256), "iterations": 4096, "salt": b"salt"}
    asked = {"deletions": [], "upsertions": [{**with_password, "salted_password": bytes(32)}]}
    deleted = {"deletions": [{"name": "dora", "mechanism": int(SHA_256)}], "upsertions": []}
    assert owners.alice.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, asked).results[0].error_code == 0
    answer = ask_for_token(owners.alice, owner="dora")
    assert answer.error_code == 0
    assert owners.alice.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deleted).results[0].error_code == 0
    return Token(answer.token_id, answer.hmac)


ENDED = [removed, ended_by_its_owner, of_full_age, removed_by_its_renewer, of_a_deleted_user]


@pytest.mark.parametrize("ended", ENDED, ids=[each.__name__ for each in ENDED])
def test_a_token_that_has_ended(logins: LoginAgent, owners: Owners, ended: Callable[[Owners], Token]) -> None:
    token = ended(owners)
    assert not is_in(logins, token)
    assert renew(owners.alice, token.hmac) in (EXPIRED, NOT_FOUND), "nothing brings it back"
    assert not is_in(logins, token)


def test_neither_salt_nor_answer_tells_a_token_from_none(logins: LoginAgent, owners: Owners) -> None:
    token = create(owners.alice)
    answers = set[tuple[str, str | None]]()
    for is_there in (True, False):
        assert is_there or expire(owners.alice, token.hmac) == 0
        with logins.connect() as client:
            client.shake_hands(SHA_512.sasl_name)
            wrong = scram(token.token_id, "wrong")
            challenge = client.authenticate(wrong.first())
            last = client.authenticate(wrong.final(challenge.token))
            assert (challenge.error_code, last.error_code) == (0, FAILED)
            answers.add((challenge.token.decode().partition(",")[2], last.message))
    assert len(answers) == 1


def test_a_last_message_with_a_token_counts_once(logins: LoginAgent, token: Token) -> None:
    made = by_token(token)
    with logins.connect() as client:
        client.shake_hands(SHA_512.sasl_name)
        recorded = made.final(client.authenticate(made.first()).token)
        assert client.authenticate(recorded).error_code == 0
    with logins.connect() as replayed:
        replayed.shake_hands(SHA_512.sasl_name)
        assert replayed.authenticate(made.first()).error_code == 0
        assert replayed.authenticate(recorded).error_code == FAILED
        assert replayed.is_closed()


def test_a_session_by_a_token_may_not_ask_about_tokens(logins: LoginAgent, owners: Owners, token: Token) -> None:
    """KafkaApis.allowTokenRequests: else a token of an hour would be worth one of a week."""
    with logins.connect() as client:
        assert client.log_in_by_scram(by_token(token)).error_code == 0
        assert all_errors(client, token) == [DISALLOWED] * 4
        assert client.is_served
    assert is_in(logins, token)


def test_a_client_without_a_login_may_not_ask_about_tokens(logins: LoginAgent, token: Token) -> None:
    with logins.connect("OPEN") as client:
        assert all_errors(client, token) == [DISALLOWED] * 4
    assert is_in(logins, token)


def test_a_session_by_a_token_ends_with_it(logins: LoginAgent, owners: Owners) -> None:
    token = create(owners.alice, lifetime_ms=SESSION_MS)
    with logins.connect() as client:
        answer = client.log_in_by_scram(by_token(token))
        assert answer.error_code == 0
        assert 0 < answer.lifetime_ms <= SESSION_MS
        logins.process.wait_until(lambda: not client.is_served, "the end of the session", seconds_max=ENDS_SECONDS_MAX)
    assert not is_in(logins, token)


def test_a_session_by_a_token_ends_with_its_removal(logins: LoginAgent, owners: Owners) -> None:
    token = create(owners.alice)
    with logins.connect() as client:
        assert client.log_in_by_scram(by_token(token)).error_code == 0
        assert client.is_served
        assert expire(owners.alice, token.hmac) == 0
        logins.process.wait_until(lambda: not client.is_served, "the end of the session", seconds_max=ENDS_SECONDS_MAX)


def test_authenticating_again_by_a_token_of_another_owner(logins: LoginAgent, owners: Owners, token: Token) -> None:
    for another, error_code in ((create(owners.alice), 0), (create(owners.bob), FAILED)):
        with logins.connect("SHORT") as client:
            assert client.log_in_by_scram(by_token(token)).error_code == 0
            assert client.shake_hands(SHA_512.sasl_name).error_code == 0
            assert client.log_in_by_scram_started(by_token(another)).error_code == error_code
            assert client.is_served is (error_code == 0)


def test_authenticating_again_by_a_token_that_was_removed(logins: LoginAgent, owners: Owners) -> None:
    first, second = create(owners.alice), create(owners.alice)
    with logins.connect("SHORT") as client:
        assert client.log_in_by_scram(by_token(first)).error_code == 0
        assert client.shake_hands(SHA_512.sasl_name).error_code == 0
        assert expire(owners.alice, second.hmac) == 0
        assert client.log_in_by_scram_started(by_token(second)).error_code == FAILED
        assert client.is_closed()


def test_only_the_owner_and_renewers_may_renew_and_expire(logins: LoginAgent, owners: Owners) -> None:
    """DelegationTokenControlManager: not even a super user, nor who asked for it, is among them."""
    of_alice, of_bob = create(owners.alice, renewer="carol"), create(owners.bob)
    for client, token in ((owners.bob, of_alice), (owners.alice, of_bob)):
        assert renew(client, token.hmac) == MISMATCH
        assert expire(client, token.hmac) == MISMATCH
        assert expire(client, token.hmac, 0) == MISMATCH
        assert is_in(logins, token)
    answer = ask_for_token(owners.alice, owner="bob")
    assert answer.error_code == 0
    assert renew(owners.alice, answer.hmac) == expire(owners.alice, answer.hmac) == MISMATCH
    assert expire(owners.bob, answer.hmac) == 0


def test_no_renewal_of_a_token_that_has_ended(owners: Owners) -> None:
    for token in (ended_by_its_owner(owners), of_full_age(owners)):
        assert renew(owners.alice, token.hmac) == EXPIRED
        assert expire(owners.alice, token.hmac, HOUR_MS) == EXPIRED
        assert renew(owners.bob, token.hmac) == EXPIRED
        assert expire(owners.bob, token.hmac) == MISMATCH
        assert expire(owners.alice, token.hmac) == 0
        assert renew(owners.alice, token.hmac) == expire(owners.alice, token.hmac) == NOT_FOUND


def test_no_renewal_beyond_the_longest_life(logins: LoginAgent, owners: Owners) -> None:
    token = create(owners.alice, lifetime_ms=SESSION_MS // 3)
    assert renew(owners.alice, token.hmac) == 0
    wait_for_end(owners, token)
    assert not is_in(logins, token)


def test_renewing_by_what_is_no_hmac(owners: Owners, token: Token) -> None:
    for wrong in (b"", bytes(64), token.token_id.encode(), token.secret.encode(), token.hmac[:-1], token.hmac + b"\0"):
        assert renew(owners.alice, wrong) == expire(owners.alice, wrong) == NOT_FOUND


def test_no_token_of_another_owner_is_shown_or_created(owners: Owners, token: Token) -> None:
    of_bob = create(owners.bob)
    for asked in ("", "alice"):
        answer = describe(owners.bob, asked)
        assert answer.error_code == 0
        assert {row.principal_name for row in answer.tokens} == (set() if asked else {"bob"})
        assert repr(token.hmac) not in repr(answer)
    assert repr(of_bob.hmac) in repr(describe(owners.alice, "bob")), "a super user sees it"
    assert ask_for_token(owners.bob, owner="alice").error_code == DENIED


def test_no_secret_of_a_token_is_in_the_logs(logins: LoginAgent, owners: Owners) -> None:
    token = create(owners.alice)
    assert is_in(logins, token)
    assert logins.https_status(f"{token.bearer}x") == 401
    assert expire(owners.alice, token.hmac) == 0
    texts = logins.audited(token.token_id) + logins.process.stderr + logins.process.stdout
    for secret in (token.secret, token.hmac.hex(), token.bearer):
        assert secret not in texts
