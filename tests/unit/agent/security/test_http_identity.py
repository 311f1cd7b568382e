"""Who sends a request, by its token, its password, its certificate, or nothing."""

import base64
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from agent.config.http_auth import AccessRejection, HttpAccess, HttpTokens
from agent.security.audit.audit_events import AuditEvent, AuthenticationEvent
from agent.security.http_identity import HttpIdentities, HttpIdentity, HttpRequestHead, HttpRights, TokenOwner
from agent.security.rights import ALL_RIGHTS
from protocol.auth.principals import ANONYMOUS, Principal, read_principal
from protocol.limits import HTTP_BEARER_SECONDS_REMEMBERED, HTTP_PASSWORD_SECONDS_REMEMBERED
from tests.support.agent.http_app import rights_by
from tests.support.agent.ledger_parts import ManualClock

TOKEN = "0123456789abcdef"
OTHER = "fedcba9876543210"
HERE = {"host": "127.0.0.1:9644"}
ALICE = read_principal("User:alice")


@dataclass
class OneUser:
    """`alice` with a password that may change. Counts the checks."""

    password: str = "pencil"
    checks: int = 0
    failures: list[str] = field(default_factory=list)

    async def is_current(self, user: str, password: str) -> Callable[[], bool] | None:
        self.checks += 1
        is_right = (user, password) == ("alice", self.password)
        return (lambda: password == self.password) if is_right else None

    def failure_delay_s(self, address: str) -> float:
        self.failures.append(address)
        return 0.0


@dataclass
class Port:
    """The identities of one HTTP port."""

    tokens: HttpTokens = field(default_factory=HttpTokens)
    rights: HttpRights = field(default_factory=HttpRights)
    passwords: OneUser | None = None
    token_owner: TokenOwner | None = None
    clock: ManualClock = field(default_factory=ManualClock)
    events: list[AuditEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.identities = HttpIdentities(
            access=HttpAccess(tokens=self.tokens),
            rights=self.rights,
            passwords=self.passwords,
            clock=self.clock,
            digest_key=bytes(32),
            token_owner=self.token_owner,
            own_names={"broker.lan", "10.0.0.7"},
            record=self.events.append,
        )

    async def __call__(
        self,
        peer: str | None = "127.0.0.1",
        certificate: Principal = ANONYMOUS,
        /,
        path: str = "/api/topics",
        **headers: str,
    ) -> HttpIdentity | AccessRejection:
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        head = HttpRequestHead(
            peer=peer,
            headers={**HERE, **named},
            api=f"GET {path}",
            delay=self.clock.sleep,
            certificate=certificate,
        )
        return await self.identities.identify(head)

    async def status(self, peer: str | None = "127.0.0.1", **headers: str) -> int:
        found = await self(peer, ANONYMOUS, **headers)
        return found.status if isinstance(found, AccessRejection) else 200


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class TestWithoutALogin:
    @pytest.mark.parametrize("peer", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
    @pytest.mark.parametrize(
        "host", ["localhost:9644", "LOCALHOST", "127.0.0.1", "[::1]:9644", "broker.lan:1", "broker.lan.", "localhost."]
    )
    async def test_this_machine_is_answered(self, peer: str, host: str) -> None:
        found = await Port()(peer, host=host)
        assert isinstance(found, HttpIdentity)
        assert (found.principal, found.mechanism, found.rights) == (ANONYMOUS, "", ALL_RIGHTS)

    @pytest.mark.parametrize(
        "peer", ["10.0.0.7", "192.168.1.1", "fe80::1", "::ffff:10.0.0.7", "0.0.0.0", "", "a-name", None]
    )
    async def test_nobody_else_is(self, peer: str | None) -> None:
        assert await Port().status(peer) == 403

    @pytest.mark.parametrize("header", ["forwarded", "x_forwarded_for", "x_real_ip"])
    async def test_what_a_proxy_on_this_machine_passes_on_comes_from_elsewhere(self, header: str) -> None:
        assert await Port().status(**{header: "127.0.0.1"}) == 403

    @pytest.mark.parametrize(
        "host", ["", "evil.example", "localhost.evil.example", "10.0.0.7:9644", "[::2]", "[", ":9644"]
    )
    async def test_a_name_that_somebody_else_gave_this_machine_is_rejected(self, host: str) -> None:
        found = await Port()(host=host)
        assert isinstance(found, AccessRejection)
        assert (found.status, found.code) == (403, "foreign_host")

    @pytest.mark.parametrize("peer", ["127.0.0.1", "10.0.0.9", None])
    async def test_nobody_is_where_there_are_tokens(self, peer: str | None) -> None:
        found = await Port(tokens=HttpTokens.of(TOKEN))(peer)
        assert isinstance(found, AccessRejection)
        assert found.status == 401
        assert "--http-token-file" in found.remedy

    @pytest.mark.parametrize("peer", ["127.0.0.1", "10.0.0.9"])
    async def test_with_an_authorizer_rights_decide_on_this_machine_too(self, peer: str) -> None:
        found = await Port(tokens=HttpTokens.of(TOKEN), rights=rights_by({}))(peer)
        assert isinstance(found, HttpIdentity)
        assert (found.principal, found.host) == (ANONYMOUS, peer)
        assert found.rights is not ALL_RIGHTS
        assert not found.is_allowed_without_acls

    async def test_with_an_authorizer_a_page_whose_name_leads_here_is_still_rejected(self) -> None:
        assert await Port(rights=rights_by({})).status(host="evil.example") == 403

    async def test_pyiceberg_without_a_token_shows_nothing(self) -> None:
        found = await Port()(authorization="Bearer None")
        assert isinstance(found, HttpIdentity)
        assert (found.principal, found.mechanism) == (ANONYMOUS, "")
        assert await Port().status("10.0.0.7", authorization="Bearer None") == 403
        assert await Port(tokens=HttpTokens.of(TOKEN)).status(authorization="Bearer None") == 401

    async def test_a_certificate_names_the_principal(self) -> None:
        found = await Port(tokens=HttpTokens.of(TOKEN))("10.0.0.9", ALICE)
        assert isinstance(found, HttpIdentity)
        assert (found.principal, found.mechanism) == (ALICE, "certificate")


class TestTokens:
    @pytest.mark.parametrize("peer", ["127.0.0.1", "10.0.0.7", None])
    async def test_each_names_its_principal_from_anywhere(self, peer: str | None) -> None:
        port = Port(tokens=HttpTokens.of(TOKEN) + HttpTokens.of(OTHER, principal=ALICE))
        found = await port(peer, authorization=f"Bearer {TOKEN}", host="lake.example")
        other = await port(peer, authorization=f"bearer {OTHER}", x_forwarded_for="10.0.0.9")
        assert isinstance(found, HttpIdentity)
        assert isinstance(other, HttpIdentity)
        assert (str(found.principal), other.principal, other.mechanism) == ("User:token", ALICE, "Bearer")

    @pytest.mark.parametrize(
        "authorization",
        [
            "",
            TOKEN,
            "Bearer",
            "Bearer ",
            f"Bearer {TOKEN}x",
            f"Bearer {TOKEN[:-1]}",
            "Bearer \xff",
            "Bearer " + "x" * 513,
        ],
    )
    @pytest.mark.parametrize("has_tokens", [True, False])
    async def test_what_is_none_is_rejected_even_where_nothing_would_be_needed(
        self, authorization: str, has_tokens: bool
    ) -> None:
        port = Port(tokens=HttpTokens.of(TOKEN) if has_tokens else HttpTokens(), rights=rights_by({}))
        assert await port.status(authorization=authorization) == 401
        (event,) = port.events
        assert isinstance(event, AuthenticationEvent)
        assert not event.is_success
        assert TOKEN not in event.reason


class TestAuditLog:
    async def test_a_log_in_by_token_is_recorded_once_a_minute(self) -> None:
        port = Port(tokens=HttpTokens.of(TOKEN, principal=ALICE))
        for _ in range(3):
            assert await port.status("10.0.0.9", authorization=f"Bearer {TOKEN}") == 200
        (event,) = port.events
        assert isinstance(event, AuthenticationEvent)
        assert (event.is_success, event.source.principal, event.source.mechanism) == (True, ALICE, "Bearer")
        assert (event.source.host, event.api) == ("10.0.0.9", "GET /api/topics")
        port.clock.seconds += HTTP_BEARER_SECONDS_REMEMBERED
        assert await port.status("10.0.0.9", authorization=f"Bearer {TOKEN}") == 200
        assert len(port.events) == 2

    async def test_a_log_in_by_delegation_token_or_certificate_is_recorded(self) -> None:
        async def owner(token: str) -> Principal | None:
            return ALICE if token == "id~hmac" else None

        port = Port(token_owner=owner)
        assert await port.status("10.0.0.9", authorization="Bearer id~hmac") == 200
        assert isinstance(await port("10.0.0.9", ALICE), HttpIdentity)
        assert [event.source.mechanism for event in port.events] == ["Bearer", "certificate"]
        assert {event.source.principal for event in port.events} == {ALICE}

    async def test_who_has_no_login_chooses_no_text_of_an_event(self) -> None:
        port = Port(rights=rights_by({}))
        assert await port.status("10.0.0.9", path="/" + "x" * 200, authorization=f"Bearer {OTHER}") == 401
        assert await port.status("10.0.0.9", path="/api/topics/drawn", authorization=f"Bearer {OTHER}") == 401
        assert [event.api for event in port.events] == ["GET (no route)", "GET /api/topics/{name}"]
        anonymous = await port("10.0.0.9", path="/api/topics/drawn")
        assert isinstance(anonymous, HttpIdentity)
        assert anonymous.api == "GET /api/topics/{name}"

    async def test_who_has_logged_in_has_the_path_in_events(self) -> None:
        port = Port(tokens=HttpTokens.of(TOKEN))
        found = await port("10.0.0.9", path="/api/topics/orders", authorization=f"Bearer {TOKEN}")
        assert isinstance(found, HttpIdentity)
        assert found.api == "GET /api/topics/orders"


class TestPasswords:
    async def test_a_user_of_the_cluster_is_known_by_the_password(self) -> None:
        port = Port(passwords=OneUser())
        found = await port("10.0.0.9", authorization=basic("alice", "pencil"))
        assert isinstance(found, HttpIdentity)
        assert (found.principal, found.mechanism, found.host) == (ALICE, "Basic", "10.0.0.9")
        (event,) = port.events
        assert isinstance(event, AuthenticationEvent)
        assert (event.is_success, event.source.principal) == (True, ALICE)

    async def test_a_success_is_remembered_for_a_minute(self) -> None:
        port = Port(passwords=OneUser())
        assert port.passwords is not None
        for _ in range(3):
            assert await port.status(authorization=basic("alice", "pencil")) == 200
        assert port.passwords.checks == 1
        port.clock.seconds += HTTP_PASSWORD_SECONDS_REMEMBERED + 1
        assert await port.status(authorization=basic("alice", "pencil")) == 200
        assert port.passwords.checks == 2

    async def test_what_is_remembered_ends_with_the_credential(self) -> None:
        port = Port(passwords=OneUser())
        assert port.passwords is not None
        assert await port.status(authorization=basic("alice", "pencil")) == 200
        port.passwords.password = "crayon"
        assert await port.status(authorization=basic("alice", "pencil")) == 401
        assert await port.status(authorization=basic("alice", "crayon")) == 200

    @pytest.mark.parametrize(
        "authorization",
        [
            basic("alice", "crayon"),
            basic("alice", ""),
            basic("", "pencil"),
            basic("bob", "pencil"),
            basic("ANONYMOUS", "pencil"),
            "Basic",
            "Basic !!",
            "Basic " + base64.b64encode(b"alice").decode(),
            "Basic " + base64.b64encode(b"\xff:x").decode(),
            "Digest x",
        ],
    )
    async def test_another_one_is_rejected_late_and_told_to_the_audit_log(self, authorization: str) -> None:
        port = Port(passwords=OneUser())
        assert port.passwords is not None
        assert await port.status("10.0.0.9", authorization=authorization) == 401
        assert port.passwords.failures == ["10.0.0.9"]
        (event,) = port.events
        assert "pencil" not in str(event)
        assert "crayon" not in str(event)

    async def test_users_and_wrong_passwords_get_the_same_answer(self) -> None:
        port = Port(passwords=OneUser())
        assert await port(authorization=basic("alice", "x")) == await port(authorization=basic("bob", "x"))

    async def test_without_users_nobody_is_known(self) -> None:
        assert await Port().status(authorization=basic("alice", "pencil")) == 401


class TestDelegationTokens:
    async def owner(self, text: str) -> Principal | None:
        return Principal("User", "alice") if text == "ID~c2VjcmV0==" else None

    async def test_a_client_that_shows_one_is_its_owner(self) -> None:
        port = Port(token_owner=self.owner, tokens=HttpTokens.of(TOKEN))
        found = await port("10.0.0.9", ANONYMOUS, authorization="Bearer ID~c2VjcmV0==")
        assert isinstance(found, HttpIdentity)
        assert (found.principal, found.mechanism) == (Principal("User", "alice"), "Bearer")
        assert await port.status(authorization=f"Bearer {TOKEN}") == 200

    @pytest.mark.parametrize("shown", ["ID~c2VjcmV0", "ID", "~"])
    async def test_any_other_is_rejected(self, shown: str) -> None:
        assert await Port(token_owner=self.owner).status(authorization=f"Bearer {shown}") == 401
        assert await Port().status(authorization=f"Bearer {shown}") == 401
