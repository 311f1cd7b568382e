"""Whom a bearer token was issued to: its form, claims, key and signature in turn.

In: the token as a client sent it. Out: an identity that ends with the token, or `InvalidToken`. Claims come first,
since a token that is rejected by them costs neither a signature nor a reading of keys. Nothing is believed before the
signature is verified. A check takes about 0.1 ms, so it runs in the loop.
"""

from agent.config.oauth_settings import OauthSettings
from agent.runtime.clock import Clock
from agent.security.oauth.issuer_keys import IssuerKeys
from agent.security.oauth.token_claims import identity_of
from agent.security.oauth.token_signatures import verify
from agent.security.oauth.web_tokens import read_web_token
from protocol.auth.sasl_exchange import SaslIdentity


class BearerTokens:
    """The tokens that one listener, or the HTTP port, accepts."""

    def __init__(self, settings: OauthSettings, keys: IssuerKeys, clock: Clock) -> None:
        self._settings = settings
        self._keys = keys
        self._clock = clock

    @property
    def keys_version(self) -> int:
        """Another number after each change of the issuer's keys."""
        return self._keys.version

    async def identity(self, text: str) -> SaslIdentity:
        """Whom the token was issued to. Raises `InvalidToken`."""
        token = read_web_token(text)
        identity = identity_of(token.claims, self._settings, self._clock.now_ms())
        verify(token, await self._keys.key_of(token))
        return identity
