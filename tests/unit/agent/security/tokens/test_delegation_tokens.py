"""The tokens of an agent: whom they prove, until when, and what is remembered of them."""

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec import structs

from agent.config.token_settings import TokenSettings
from agent.security.tokens.delegation_tokens import DelegationTokens
from agent.security.tokens.token_secrets import TokenSecrets
from coordinator.commands.delegation_tokens import ExpireDelegationToken
from coordinator.commands.rules import RULES_NEWEST
from protocol.auth.principals import Principal
from protocol.auth.scram_credentials import ScramMechanism
from protocol.auth.scram_keys import is_password_of
from tests.support.agent.ledger_parts import Parts, running_parts
from tests.support.commands.commands import start
from tests.support.commands.every_command import CREATE_TOKEN, TOKEN_ID

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
CREATE = structs.replace(CREATE_TOKEN, lifetime_ms=5_000, renewal_ms=1_000)
SECRETS = TokenSecrets(b"key")
REMOVE = ExpireDelegationToken(token_id=TOKEN_ID, requester="User:alice", period_ms=None)
SHOWN = f"{TOKEN_ID}~{b64encode(SECRETS.hmac(TOKEN_ID)).decode()}"


EXPECTED_HMAC = (
    "44e0a185f3cfab05ddc8f3189261288c4895f3fb4165f56af620bdbdecd7cb0a"
    "8d359c310388ba7672c53d2994976ab47793017a8f38dfff7b5759cfe28e81ba"
)


async def nothing() -> None:
    """No barrier is needed."""


@asynccontextmanager
async def with_token() -> AsyncIterator[tuple[Parts, DelegationTokens]]:
    async with running_parts(begin=start(rules=RULES_NEWEST)) as parts:
        settings = TokenSettings(key=SECRETS.key)
        tokens = DelegationTokens(parts.ledger, settings=settings, checked_time=parts.proposed_time)
        await parts.ledger.propose(CREATE)
        yield parts, tokens


class TestSecrets:
    def test_the_hmac_is_kafkas(self) -> None:
        """By `openssl dgst -sha512 -hmac key` of the id."""
        assert SECRETS.hmac("q1yVzUZmQ4WZ3o9gUuJrPA").hex() == EXPECTED_HMAC

    @pytest.mark.parametrize("mechanism", ScramMechanism)
    def test_the_password_of_a_token_is_its_hmac_in_base64(self, mechanism: ScramMechanism) -> None:
        credential = SECRETS.credential(TOKEN_ID, mechanism)
        assert is_password_of(credential, b64encode(SECRETS.hmac(TOKEN_ID)).decode(), mechanism)
        assert credential.iterations == 4_096

    def test_a_decoy_has_the_salt_of_the_token_and_no_password(self) -> None:
        decoy, credential = SECRETS.decoy(TOKEN_ID, SHA_256), SECRETS.credential(TOKEN_ID, SHA_256)
        assert (decoy.salt, decoy.iterations) == (credential.salt, credential.iterations)
        assert decoy.stored_key != credential.stored_key
        assert SECRETS.decoy("other", SHA_256).salt != decoy.salt != TokenSecrets(b"k").decoy(TOKEN_ID, SHA_256).salt

    def test_a_shown_token_is_known_by_its_hmac(self) -> None:
        assert SECRETS.shown_id(SHOWN) == TOKEN_ID
        token_id, _, shown = SHOWN.partition("~")
        for wrong in ("", "~", token_id, shown, f"~{shown}", f"{token_id}~", f"x{SHOWN}", f"{SHOWN}x", f"{SHOWN}é"):
            assert SECRETS.shown_id(wrong) is None
        assert TokenSecrets(b"other").shown_id(SHOWN) is None

    def test_no_text_of_them_has_the_key(self) -> None:
        assert "key" not in repr(TokenSecrets(b"key")).replace("key=", "")
        assert "b'key'" not in repr(TokenSettings(key=b"key"))


class TestTokens:
    async def test_a_token_proves_its_owner_until_its_end(self) -> None:
        async with with_token() as (parts, tokens):
            account = tokens.account(SHA_256, TOKEN_ID)
            assert account.identity is not None
            token = parts.ledger.state.tokens[TOKEN_ID]
            assert (account.identity.name, account.identity.token_id) == ("alice", TOKEN_ID)
            assert account.identity.expires_ms == token.expiry_ms == token.issue_ms + 1_000
            parts.clock.seconds += 1
            assert tokens.is_valid(TOKEN_ID)
            parts.clock.seconds += 0.002
            assert not tokens.is_valid(TOKEN_ID)
            assert tokens.account(SHA_256, TOKEN_ID).identity is None
            assert await tokens.owner_of(SHOWN, nothing) is None
            assert tokens.id_of(SECRETS.hmac(TOKEN_ID)) == TOKEN_ID, "its owner may remove it"

    async def test_s2_it_ends_by_the_ledgers_time_where_this_clock_is_not_believed(self) -> None:
        async with with_token() as (parts, tokens):
            parts.is_clock_checked = False
            parts.clock.seconds += 3_600
            assert tokens.is_valid(TOKEN_ID)
            parts.is_clock_checked = True
            await parts.ledger.propose(structs.replace(CREATE, token_id="B"))
            parts.is_clock_checked = False
            assert not tokens.is_valid(TOKEN_ID)
            assert tokens.is_valid("B")

    async def test_one_that_is_not_there_has_a_decoy(self) -> None:
        async with with_token() as (_, tokens):
            account = tokens.account(SHA_512, "other")
            assert account.identity is None
            assert account.credential == SECRETS.decoy("other", SHA_512)

    async def test_credentials_are_computed_once_and_forgotten_with_their_token(self) -> None:
        async with with_token() as (parts, tokens):
            first = tokens.account(SHA_256, TOKEN_ID)
            assert tokens.account(SHA_256, TOKEN_ID).credential is first.credential
            hmac = tokens.hmac_of(TOKEN_ID)
            assert tokens.id_of(hmac) == TOKEN_ID
            await parts.ledger.propose(REMOVE)
            assert tokens.id_of(hmac) is None
            await parts.ledger.propose(CREATE)
            again = tokens.account(SHA_256, TOKEN_ID)
            assert again.credential == first.credential
            assert again.credential is not first.credential

    async def test_s16_a_token_that_is_shown_is_unknown_behind_a_barrier_only(self) -> None:
        async with running_parts(begin=start(rules=RULES_NEWEST)) as parts:
            settings = TokenSettings(key=SECRETS.key)
            tokens = DelegationTokens(parts.ledger, settings=settings, checked_time=parts.proposed_time)
            owner = await tokens.owner_of(SHOWN, lambda: parts.ledger.propose(CREATE))
            assert owner == Principal("User", "alice")
            assert await tokens.owner_of("of another form", nothing) is None

    async def test_without_a_key_there_are_none(self) -> None:
        async with with_token() as (parts, _):
            tokens = DelegationTokens(parts.ledger, settings=TokenSettings(), checked_time=parts.proposed_time)
            assert not tokens.is_valid(TOKEN_ID)
            assert tokens.id_of(SECRETS.hmac(TOKEN_ID)) is None
            assert await tokens.owner_of(SHOWN, nothing) is None
