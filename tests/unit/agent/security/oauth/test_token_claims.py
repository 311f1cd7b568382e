"""The claims of a token: who it is for, who it is from, when it holds, and the user and groups that it names."""

from dataclasses import replace

import pytest

from agent.config.oauth_settings import KeySource, OauthSettings
from agent.security.oauth.token_claims import identity_of
from agent.security.oauth.web_tokens import InvalidToken
from protocol.auth.sasl_exchange import SaslIdentity

NOW_S = 1_700_000_000
SETTINGS = OauthSettings(
    keys=KeySource(url="file:///keys"), issuer="issuer", audiences=("penstock", "lake"), groups_claim="groups"
)
GOOD: dict[str, object] = {"iss": "issuer", "aud": "lake", "sub": "alice", "iat": NOW_S, "exp": NOW_S + 60}


def identity(settings: OauthSettings = SETTINGS, /, **claims: object) -> SaslIdentity:
    return identity_of({name: value for name, value in (GOOD | claims).items() if value != ...}, settings, NOW_S * 1000)


def test_a_good_token_names_its_user_until_it_expires() -> None:
    assert identity() == SaslIdentity(name="alice", expires_ms=(NOW_S + 60) * 1000)


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"exp": ...}, "no exp"),
        ({"iat": ...}, "no iat"),
        ({"exp": NOW_S - 30, "iat": NOW_S - 90}, "expired"),
        ({"iat": NOW_S + 31}, "in the future"),
        ({"nbf": NOW_S + 31}, "not valid yet"),
        ({"exp": NOW_S - 5}, "expires before it begins"),
        ({"exp": NOW_S + 5, "nbf": NOW_S + 6}, "expires before it begins"),
        ({"exp": "tomorrow"}, "exp is no time"),
        ({"exp": True}, "exp is no time"),
        ({"iat": [NOW_S]}, "iat is no time"),
        ({"exp": 1e999}, "exp is out of range"),
        ({"exp": float("nan")}, "exp is out of range"),
        ({"exp": 10**400}, "exp is out of range"),
        ({"nbf": -(10**400)}, "nbf is out of range"),
        ({"exp": 1 << 63}, "exp is out of range"),
        ({"iat": -1}, "iat is negative"),
        ({"nbf": -(1 << 63)}, "nbf is out of range"),
        ({"jti": 1}, "jti is no text"),
        ({"iss": ...}, "another issuer"),
        ({"iss": "issuer/"}, "another issuer"),
        ({"iss": ["issuer"]}, "another issuer"),
        ({"aud": ...}, "another audience"),
        ({"aud": "other"}, "another audience"),
        ({"aud": ["other", "Lake"]}, "another audience"),
        ({"aud": 1}, "aud is neither"),
        ({"aud": ["lake", 1]}, "aud is neither"),
        ({"sub": ...}, "names no user"),
        ({"sub": ""}, "names no user"),
        ({"sub": " "}, "names no user"),
        ({"sub": 1}, "names no user"),
        ({"sub": "ANONYMOUS"}, "ANONYMOUS"),
        ({"sub": "a" * 1025}, "more than 1024 characters"),
        ({"sub": "a\ud800"}, "the token's user has half of a surrogate pair"),
        ({"groups": ["a", "\udfff"]}, "a group of the token has half of a surrogate pair"),
        ({"scope": ["a", "a "]}, "scope names something twice"),
        ({"scope": ["a", ""]}, "scope is neither"),
        ({"scope": " "}, "scope is neither"),
        ({"groups": [f"g{number}" for number in range(33)]}, "more than 32 groups"),
        ({"groups": ["a" * 1025]}, "more than 1024 characters"),
        ({"groups": {"a": 1}}, "groups is neither"),
        ({"groups": ["a", ""]}, "groups is neither"),
    ],
)
def test_another_one_is_rejected(claims: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidToken, match=message):
        identity(SETTINGS, **claims)


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": NOW_S - 29, "iat": NOW_S - 90},
        {"iat": NOW_S + 30},
        {"nbf": NOW_S + 30},
        {"exp": NOW_S + 1.5},
        {"nbf": -1},
        {"jti": "1"},
        {"jti": None},
        {"nbf": None},
        {"aud": ["other", "penstock"]},
        {"sub": " alice "},
        {"scope": "read write"},
        {"scope": ["read", "write"]},
        {"scope": 1},
        {"scope": ...},
        {"groups": ...},
        {"anything": {"else": []}},
    ],
)
def test_what_else_it_says_or_how_clocks_differ_a_little_does_not_matter(claims: dict[str, object]) -> None:
    assert identity(SETTINGS, **claims).name == "alice"


def test_groups_are_a_text_or_a_list_and_count_once() -> None:
    assert identity(groups="team").groups == ("team",)
    assert identity(groups=["a", "b", "a"]).groups == ("a", "b")
    assert identity(groups=[f"g{number}" for number in range(32)]).groups[31] == "g31"
    assert identity(replace(SETTINGS, groups_claim=""), groups=1).groups == ()


def test_the_user_may_stand_in_another_claim() -> None:
    settings = replace(SETTINGS, subject_claim="email", scope_claim="scp", clock_skew_s=0)
    assert identity(settings, email="a@b", sub=1, scope=["a", "a"]).name == "a@b"
    with pytest.raises(InvalidToken, match="the claim email"):
        identity(settings)
