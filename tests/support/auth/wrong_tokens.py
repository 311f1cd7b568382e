"""Tokens that nobody may use, by what is wrong with them; each is made of an issuer's keys and the time in seconds.

They are for a listener that takes users from `sub`, and groups from `groups`, with a clock skew of 30 s.
"""

from collections.abc import Callable, Mapping
from typing import Final

from tests.support.auth.token_issuer import TokenKeys, new_key, public_pem, sign, sign_by_secret

WrongToken = Callable[[TokenKeys, int], str]


def _claims(**claims: object) -> WrongToken:
    """A token of the issuer that is good but for these claims; one that is None is left out."""

    def token(keys: TokenKeys, now_s: int) -> str:
        changed = keys.claims(now_s=now_s) | claims
        return sign({name: value for name, value in changed.items() if value is not None}, keys.keys[-1])

    return token


def _times(**seconds: int) -> WrongToken:
    """A token of the issuer that is good but for these times, which count from now."""
    return lambda keys, now_s: _claims(**{name: now_s + count for name, count in seconds.items()})(keys, now_s)


def _of_two_users(keys: TokenKeys, now_s: int) -> str:
    """The claims of one user with the signature of another."""
    header, _, signature = keys.token("alice", now_s=now_s).split(".")
    return f"{header}.{keys.token('bob', now_s=now_s).split('.')[1]}.{signature}"


WRONG_TOKENS: Final[Mapping[str, WrongToken]] = {
    "none": lambda keys, now_s: sign(keys.claims(now_s=now_s), None, "none", kid=keys.keys[-1].kid),
    "HS256 by the public key": lambda keys, now_s: sign_by_secret(
        keys.claims(now_s=now_s), public_pem(keys.keys[-1]), kid=keys.keys[-1].kid
    ),
    "HS256 by the key set": lambda keys, now_s: sign_by_secret(
        keys.claims(now_s=now_s), keys.key_set().encode(), kid=keys.keys[-1].kid
    ),
    "another key": lambda keys, now_s: sign(keys.claims(now_s=now_s), new_key(key_id=keys.keys[-1].kid)),
    "wrong kid": lambda keys, now_s: sign(keys.claims(now_s=now_s), keys.keys[-1], kid="other"),
    "wrong aud": _claims(aud="other"),
    "wrong iss": _claims(iss="https://other.example"),
    "expired": _times(iat=-90, exp=-31),
    "from the future": _times(iat=40),
    "not yet valid": _times(nbf=40),
    "no exp": _claims(exp=None),
    "exp of 400 digits": _claims(exp=10**400),
    "no sub": _claims(sub=None),
    "empty sub": _claims(sub=""),
    "33 groups": _claims(groups=[str(number) for number in range(33)]),
    "a changed claim": _of_two_users,
    "no token": lambda _keys, _now_s: "a.b.c",
    "two parts": lambda _keys, _now_s: "a.b",
}
