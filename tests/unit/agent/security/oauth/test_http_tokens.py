"""Tokens of an issuer over HTTP: the same ones as on the Kafka port, remembered for a minute at most."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent.config.http_auth import AccessRejection, HttpAccess, HttpTokens
from agent.config.oauth_settings import KeySource, OauthSettings
from agent.runtime.metrics import Metrics
from agent.security.audit.audit_events import AuditEvent, AuthenticationEvent
from agent.security.http_identity import HttpIdentities, HttpIdentity, HttpRequestHead, HttpRights
from agent.security.oauth.bearer_tokens import BearerTokens
from agent.security.oauth.issuer_keys import IssuerKeys
from agent.security.rights import ALL_RIGHTS, Rights
from protocol.auth.principals import ANONYMOUS, Principal, read_principal
from protocol.auth.sasl_exchange import SaslIdentity
from tests.support.agent.ledger_parts import BEGAN_MS, ManualClock
from tests.support.auth.token_issuer import AUDIENCE, ISSUER, TokenKeys
from tests.support.auth.wrong_tokens import WRONG_TOKENS

NOW_S = BEGAN_MS // 1000
KEYS = TokenKeys()
ALICE = read_principal("User:alice")
FILE_TOKEN = "header.payload.signature-of-a-file"


class ImpatientClock(ManualClock):
    """A clock by which nobody waits for keys: nothing reads them again here."""

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        return asyncio.timeout(0)


class CountedTokens(BearerTokens):
    """Counts the checks."""

    checks = 0
    version = 0

    async def identity(self, text: str) -> SaslIdentity:
        self.checks += 1
        return await super().identity(text)

    @property
    def keys_version(self) -> int:
        return self.version


@dataclass
class Port:
    """The HTTP port of an agent that accepts the issuer's tokens."""

    folder: Path
    is_accepting: bool = True
    clock: ManualClock = field(default_factory=ManualClock)
    events: list[AuditEvent] = field(default_factory=list)
    asked: list[tuple[Principal, tuple[Principal, ...], str]] = field(default_factory=list)
    """Whose rights were asked for."""

    def __post_init__(self) -> None:
        path = self.folder / "keys"
        path.write_text(KEYS.key_set())
        source = KeySource(url=f"file://{path}")
        oauth = OauthSettings(keys=source, issuer=ISSUER, audiences=(AUDIENCE,), groups_claim="groups")
        self.tokens = CountedTokens(oauth, IssuerKeys(source, clock=ImpatientClock(), metrics=Metrics()), self.clock)
        self.identities = HttpIdentities(
            access=HttpAccess(tokens=HttpTokens.of(FILE_TOKEN)) if not self.is_accepting else HttpAccess(),
            rights=HttpRights(rights_of=self.rights_of),
            passwords=None,
            clock=self.clock,
            digest_key=bytes(32),
            bearer_tokens=self.tokens if self.is_accepting else None,
            record=self.events.append,
        )

    def rights_of(self, principal: Principal, groups: object, host: str) -> Rights:
        assert isinstance(groups, tuple)
        self.asked.append((principal, groups, host))
        return ALL_RIGHTS

    async def __call__(self, token: str) -> HttpIdentity | AccessRejection:
        headers = {"host": "lake.example", "authorization": f"Bearer {token}"}
        head = HttpRequestHead(peer="10.0.0.9", headers=headers, api="GET /api/topics", delay=self.clock.sleep)
        return await self.identities.identify(head)

    async def status(self, token: str) -> int:
        found = await self(token)
        return found.status if isinstance(found, AccessRejection) else 200


def token(subject: str = "alice", **claims: object) -> str:
    return KEYS.token(subject, now_s=NOW_S, **claims)


async def test_a_good_token_has_its_user_and_groups(tmp_path: Path) -> None:
    port = Port(tmp_path)
    found = await port(token(groups=["a", "b"]))
    assert isinstance(found, HttpIdentity)
    assert (found.principal, found.mechanism, found.host) == (ALICE, "Bearer", "10.0.0.9")
    assert [str(group) for group in found.groups] == ["Group:a", "Group:b"]
    assert port.asked == [(ALICE, found.groups, "10.0.0.9")]
    assert found.audit_source.groups == ("a", "b")
    (event,) = port.events
    assert isinstance(event, AuthenticationEvent)
    assert (event.is_success, event.source.groups) == (True, ("a", "b"))


async def test_a_success_is_remembered_for_a_minute_until_the_keys_change(tmp_path: Path) -> None:
    port, shown = Port(tmp_path), token()
    for checks, seconds in ((1, 59), (1, 2), (2, 0)):
        assert await port.status(shown) == 200
        assert (port.tokens.checks, len(port.events)) == (checks, checks)
        port.clock.seconds += seconds
    port.tokens.version += 1
    assert await port.status(shown) == 200
    assert port.tokens.checks == 3


async def test_what_is_remembered_ends_with_the_token(tmp_path: Path) -> None:
    port, shown = Port(tmp_path), token(exp=NOW_S + 5)
    assert await port.status(shown) == 200
    port.clock.seconds += 36
    assert await port.status(shown) == 401
    assert port.tokens.checks == 2


@pytest.mark.parametrize("name", WRONG_TOKENS)
async def test_another_token_is_rejected_for_a_reason_that_only_the_audit_log_has(tmp_path: Path, name: str) -> None:
    port = Port(tmp_path)
    wrong = WRONG_TOKENS[name](KEYS, NOW_S)
    found = await port(wrong)
    assert isinstance(found, AccessRejection)
    assert (found.status, found.message) == (401, "the request's token is not valid")
    assert found.headers["WWW-Authenticate"].startswith("Bearer")
    (event,) = port.events
    assert isinstance(event, AuthenticationEvent)
    assert not event.is_success
    assert event.reason
    assert wrong not in repr(event)


async def test_a_token_of_17_kib_is_not_looked_at(tmp_path: Path) -> None:
    port = Port(tmp_path)
    assert await port.status(token(scope="a" * 17 * 1024)) == 401
    assert port.tokens.checks == 0


async def test_where_tokens_are_accepted_nobody_is_anonymous(tmp_path: Path) -> None:
    headers = {"host": "127.0.0.1"}
    head = HttpRequestHead(peer="127.0.0.1", headers=headers, api="GET /api/topics", delay=ManualClock().sleep)
    found = await Port(tmp_path).identities.identify(head)
    assert isinstance(found, AccessRejection)
    assert found.status == 401


async def test_without_an_issuer_only_tokens_of_the_file_count(tmp_path: Path) -> None:
    port = Port(tmp_path, is_accepting=False)
    assert await port.status(token()) == 401
    assert await port.status(FILE_TOKEN) == 200
    assert ANONYMOUS not in [principal for principal, _, _ in port.asked]
