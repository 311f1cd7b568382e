"""The delegation tokens of one agent: those of the state, with their HMACs and SCRAM credentials.

In: ids, HMACs and texts that clients show. Out: tokens that are valid now, and accounts to log in with.
Rule: a token ends by a checked clock: the state's time, or this machine's while it is believed (safety rule S2).
HMACs and credentials are computed when they are first needed, and forgotten with their token.
Source: org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache (Kafka 4.3). Differs from
Kafka: a token that has ended proves nothing from that moment on, not only once it was removed.
"""

from collections.abc import Awaitable, Callable, Mapping

from agent.config.token_settings import TokenSettings
from agent.ledger.ledger_client import LedgerClient
from agent.security.tokens.token_secrets import TokenSecrets
from coordinator.security.delegation_tokens import DelegationToken
from coordinator.state.state import NO_TIME
from protocol.auth.principals import Principal
from protocol.auth.sasl_exchange import SaslIdentity
from protocol.auth.scram import ScramAccount
from protocol.auth.scram_credentials import ScramCredential, ScramMechanism
from protocol.types import Milliseconds


class DelegationTokens:
    """One agent has one, also where it has no key: then there are no tokens for it."""

    def __init__(
        self,
        ledger: LedgerClient,
        *,
        settings: TokenSettings,
        checked_time: Callable[[], Milliseconds | None],
    ) -> None:
        """`checked_time`: the wall clock's time, None while it is not believed."""
        self.settings = settings
        self.secrets = None if settings.key is None else TokenSecrets(settings.key)
        self._ledger = ledger
        self._checked_time = checked_time
        self._ids: dict[bytes, str] = {}
        """The ids of the state's tokens by their HMACs, as of `_seen`."""
        self._hmacs: dict[str, bytes] = {}
        self._seen: Mapping[str, DelegationToken] | None = None
        self._seen_version = -1
        self._credentials: dict[tuple[str, ScramMechanism], ScramCredential] = {}

    @property
    def now_ms(self) -> Milliseconds:
        """The time by which tokens end."""
        return max(self._ledger.state.time_ms, self._checked_time() or NO_TIME)

    def is_valid(self, token_id: str) -> bool:
        """Whether the token is there and has not ended."""
        return self._valid(token_id) is not None

    def id_of(self, token_hmac: bytes) -> str | None:
        """The id of the token that has an HMAC, also if it has ended; None where there is none.

        A look-up in a dict: Python's hash of bytes has a random key, so its time says nothing about the HMACs.
        """
        self._look_at_tokens()
        return self._ids.get(token_hmac)

    def hmac_of(self, token_id: str) -> bytes:
        """The HMAC of a token."""
        assert self.secrets is not None, "without a key there are no tokens"
        return self._hmacs.get(token_id) or self.secrets.hmac(token_id)

    def account(self, mechanism: ScramMechanism, token_id: str) -> ScramAccount:
        """The account of a token for SCRAM; a decoy where there is no such token, or it has ended."""
        assert self.secrets is not None, "without a key there are no tokens"
        token = self._valid(token_id)
        if token is None:
            return ScramAccount(credential=self.secrets.decoy(token_id, mechanism), identity=None)
        self._look_at_tokens()
        key = (token_id, mechanism)
        credential = self._credentials.get(key)
        if credential is None:
            credential = self._credentials[key] = self.secrets.credential(token_id, mechanism)
        identity = SaslIdentity(name=token.owner.name, expires_ms=token.expiry_ms, token_id=token_id)
        return ScramAccount(credential=credential, identity=identity)

    async def owner_of(self, text: str, catch_up: Callable[[], Awaitable[object]]) -> Principal | None:
        """The owner of the token that a client shows as `ID~HMAC`; None where it is none, or not valid.

        `catch_up` takes a barrier: a token that another agent created before is known behind it (safety rule S16).
        """
        token_id = None if self.secrets is None else self.secrets.shown_id(text)
        if token_id is None:
            return None
        if not self.is_valid(token_id):
            await catch_up()
        token = self._valid(token_id)
        return None if token is None else token.owner

    def _valid(self, token_id: str) -> DelegationToken | None:
        token = self._ledger.state.tokens.get(token_id)
        return None if token is None or self.secrets is None or token.is_expired(self.now_ms) else token

    def _look_at_tokens(self) -> None:
        """Learn the tokens that came, and forget those that went: 2 us for each that came."""
        state = self._ledger.state
        if self.secrets is None or (state.tokens is self._seen and state.tokens_version == self._seen_version):
            return
        tokens = state.tokens
        for token_id in self._hmacs.keys() - tokens.keys():
            del self._ids[self._hmacs.pop(token_id)]
            for mechanism in ScramMechanism:
                self._credentials.pop((token_id, mechanism), None)
        for token_id in tokens.keys() - self._hmacs.keys():
            self._hmacs[token_id] = self.secrets.hmac(token_id)
            self._ids[self._hmacs[token_id]] = token_id
        self._seen, self._seen_version = tokens, state.tokens_version
