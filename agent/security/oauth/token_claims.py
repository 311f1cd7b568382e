"""The rules for the claims of a token, and the user that they name. Pure; the signature is verified elsewhere.

Source: org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator and OAuthBearerUtils (Kafka 4.3), which asks
org.jose4j.jwt.consumer.NumericDateValidator, IssValidator and AudValidator; RFC 7519, section 4.1. Differs from Kafka:
a token that was issued in the future is rejected, and so is one whose user would be ANONYMOUS. Drawn tokens are
compared with Kafka's class in tests/compat/oracle.
"""

from agent.config.oauth_settings import OauthSettings
from agent.security.oauth.web_tokens import InvalidToken, JsonObject
from protocol.auth.principals import ANONYMOUS
from protocol.auth.sasl_exchange import SaslIdentity
from protocol.limits import SASL_NAME_CHARS_MAX, TOKEN_GROUPS_MAX, TOKEN_TIME_SECONDS_MAX


def identity_of(claims: JsonObject, settings: OauthSettings, now_ms: int) -> SaslIdentity:
    """The user of a token whose signature is right. Raises `InvalidToken`.

    Args:
        claims: of the token.
        settings: whose tokens are accepted.
        now_ms: the wall clock's time, in milliseconds since 1970.
    """
    now_s, skew_s = now_ms / 1000, settings.clock_skew_s
    expires_s, issued_s, begins_s = _time(claims, "exp"), _time(claims, "iat"), _time(claims, "nbf")
    if expires_s is None or issued_s is None:
        raise InvalidToken(f"the token has no {'exp' if expires_s is None else 'iat'}")
    if issued_s < 0:
        raise InvalidToken("the token's iat is negative")
    if now_s - skew_s >= expires_s:
        raise InvalidToken("the token has expired")
    if now_s + skew_s < issued_s:
        raise InvalidToken("the token was issued in the future")
    if begins_s is not None and now_s + skew_s < begins_s:
        raise InvalidToken("the token is not valid yet")
    if expires_s < max(issued_s, begins_s or 0):
        raise InvalidToken("the token expires before it begins")
    if claims.get("iss") != settings.issuer:
        raise InvalidToken("the token is from another issuer")
    if not set(_texts(claims, "aud")) & set(settings.audiences):
        raise InvalidToken("the token is for another audience")
    if not isinstance(claims.get("jti"), str | None):
        raise InvalidToken("the token's jti is no text")
    _check_scopes(claims, settings.scope_claim)
    return SaslIdentity(
        name=_user(claims, settings.subject_claim),
        groups=_groups(claims, settings.groups_claim),
        expires_ms=expires_s * 1000,
    )


def _time(claims: JsonObject, name: str) -> int | None:
    """A time in whole seconds since 1970, as Kafka rounds it; None where the token has none."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidToken(f"the token's {name} is no time")
    # Comparisons alone: `math` raises for an integer that is no float, and strangers send any. NaN is never in range.
    if not -TOKEN_TIME_SECONDS_MAX <= value <= TOKEN_TIME_SECONDS_MAX:
        raise InvalidToken(f"the token's {name} is out of range")
    return int(value)


def _user(claims: JsonObject, claim: str) -> str:
    value = claims.get(claim)
    name = value.strip() if isinstance(value, str) else ""
    if not name:
        raise InvalidToken(f"the token names no user: the claim {claim} is missing or empty")
    if len(name) > SASL_NAME_CHARS_MAX:
        raise InvalidToken(f"the token's user has more than {SASL_NAME_CHARS_MAX} characters")
    if not _is_utf8(name):
        raise InvalidToken("the token's user has half of a surrogate pair, which is no character")
    if name == ANONYMOUS.name:  # the principal of those who did not log in
        raise InvalidToken(f"the token's user is {ANONYMOUS.name}")
    return name


def _groups(claims: JsonObject, claim: str) -> tuple[str, ...]:
    groups = _texts(claims, claim) if claim else ()
    # One that were left out might be the one that an ACL denies something to.
    if len(groups) > TOKEN_GROUPS_MAX:
        raise InvalidToken(f"the token has more than {TOKEN_GROUPS_MAX} groups: let its issuer leave out others")
    if any(len(group) > SASL_NAME_CHARS_MAX for group in groups):
        raise InvalidToken(f"a group of the token has more than {SASL_NAME_CHARS_MAX} characters")
    if not all(map(_is_utf8, groups)):
        raise InvalidToken("a group of the token has half of a surrogate pair, which is no character")
    return tuple(dict.fromkeys(groups))


def _is_utf8(name: str) -> bool:
    """Whether answers and entries can have the name: JSON may escape half of a surrogate pair."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_scopes(claims: JsonObject, claim: str) -> None:
    """Nothing here asks for scopes. Kafka accepts a claim of another type, as if there were no scopes."""
    if isinstance(claims.get(claim), str | list):
        scopes = [scope.strip() for scope in _texts(claims, claim)]
        if len(set(scopes)) != len(scopes):
            raise InvalidToken(f"the token's {claim} names something twice")


def _texts(claims: JsonObject, claim: str) -> tuple[str, ...]:
    """The texts of a claim that is one text or a list of them; none where it is missing."""
    value = claims.get(claim)
    if value is None:
        return ()
    values = value if isinstance(value, list) else [value]
    texts = tuple(text for text in values if isinstance(text, str) and text.strip())
    if len(texts) != len(values):
        raise InvalidToken(f"the token's {claim} is neither a text nor a list of texts")
    return texts
