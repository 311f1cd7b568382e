"""Draws tokens, most of them good but for one or two things, and compares what Kafka's own class says of each.

Differences that are meant are listed in DIFFERENCES, by what Penstock says of the token. Times stand 300 seconds or
more off every boundary, since Kafka's class reads the machine's clock.
"""

import json
import random
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from joserfc import jwk

from agent.config.oauth_settings import KeySource, OauthSettings
from agent.security.oauth.token_claims import identity_of
from agent.security.oauth.token_signatures import read_key_set, verify
from agent.security.oauth.web_tokens import InvalidToken, read_web_token
from tests.support.auth.token_issuer import AUDIENCE, ISSUER, new_key, public_pem, sign, sign_by_secret
from tests.support.services.java import JavaProgram

SOURCE: Final = Path(__file__).with_name("TokenOracle.java")
SECONDS_MAX: Final = 600
SETTINGS: Final = OauthSettings(
    keys=KeySource(url="file:///keys"), issuer=ISSUER, audiences=(AUDIENCE,), clock_skew_s=600
)
_LEFT_OUT: Final = object()
_TEXTS: Final[tuple[object, ...]] = (
    "",
    " ",
    "alice",
    " alice ",
    "ANONYMOUS",
    AUDIENCE,
    ISSUER,
    "penstock ",
    "é",
    1,
    True,
    [],
    {},
    None,
)


_HEADERS: Final[tuple[Mapping[str, object], ...]] = (
    {"kid": None},
    {"kid": "unknown"},
    {"kid": "p256"},
    {"kid": "secret"},
    {"kid": ""},
    {"typ": "at+jwt", "x5t": "abc", "unknown": [1]},
    {"crit": ["exp"], "exp": 1},
    {"crit": []},
    {"cty": "JWT"},
    {"alg": "ES256K"},
)
DIFFERENCES: Final[Mapping[str, str]] = {
    "the token was issued in the future": "Kafka does not compare `iat` with its clock",
    "the token's user is ANONYMOUS": "it is the principal of clients that have not logged in",
    "the token's header names critical extensions": "Kafka accepts an empty list, which RFC 7515 forbids",
}
"""Why Penstock rejects tokens that Kafka accepts, by its reason."""


@dataclass(frozen=True, slots=True)
class DrawnToken:
    """One token, and what is unusual about it."""

    text: str
    kind: str


@dataclass(slots=True)
class Keys:
    """The issuer's keys, and one that is not shown."""

    by_algorithm: dict[str, jwk.Key] = field(
        default_factory=lambda: {
            "RS256": new_key(key_id="rsa"),
            "ES256": new_key("ES256", key_id="p256"),
            "ES384": new_key("ES384", key_id="p384"),
            "ES512": new_key("ES512", key_id="p521"),
            "EdDSA": new_key("EdDSA", key_id="ed"),
        }
    )
    hidden: jwk.Key = field(default_factory=lambda: new_key(key_id="rsa"))

    def text(self) -> str:
        """The key set. It has keys that nothing may be verified by, too."""
        rows = [key.as_dict(private=False) for key in self.by_algorithm.values()]
        rows.append(new_key(key_id="for-encryption").as_dict(private=False) | {"use": "enc"})
        rows.append({"kty": "oct", "kid": "secret", "k": urlsafe_b64encode(b"x" * 32).decode().rstrip("=")})
        return json.dumps({"keys": rows})


def _draw_claims(draw: random.Random, now_s: int) -> tuple[dict[str, object], list[str]]:
    claims: dict[str, object] = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": f"user-{draw.randrange(100)}",
        "iat": now_s - draw.randrange(5, 60),
        "exp": now_s + draw.randrange(60, 7_200),
    }
    times = [now_s + offset for offset in (-7_200, -1_200, -300, 300, 1_200, 7_200)]
    others: Mapping[str, tuple[object, ...]] = {
        "iss": (*_TEXTS, f"{ISSUER}/", [ISSUER]),
        "aud": (*_TEXTS, [AUDIENCE], ["other", AUDIENCE], ["other"], [AUDIENCE, 1], [" "], [""]),
        "sub": _TEXTS,
        "iat": (*times, "1", 1.5, now_s - 10.25, -1, True, None, [], 1e300),
        "exp": (*times, str(now_s + 60), now_s + 60.75, 0, -1, True, None, [], 1e300, 1 << 62),
        "nbf": (*times, "1", 1.5, -1, True, None, []),
        "scope": (*_TEXTS, "a b", ["a", "b"], ["a", "a "], ["a", "a"], ["a", 1], [" "], ["a", None]),
        "jti": ("1", 1, None),
        "other": ({"a": [1, {"b": None}]}, "x" * 3_000),
    }
    changed = draw.sample(sorted(others), draw.choice((0, 1, 1, 1, 2)))
    for name in changed:
        claims[name] = draw.choice((*others[name], _LEFT_OUT))
    kept = {name: value for name, value in claims.items() if value is not _LEFT_OUT}
    return kept, [f"{name}={_kind(claims[name], now_s)}" for name in changed]


def _kind(value: object, now_s: int) -> str:
    if value is _LEFT_OUT:
        return "missing"
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value - now_s) < 10_000:
        return f"now{value - now_s:+g}"
    return json.dumps(value)[:40]


def draw_token(draw: random.Random, keys: Keys, now_s: int) -> DrawnToken:
    """One token."""
    claims, kinds = _draw_claims(draw, now_s)
    algorithm = draw.choice((*keys.by_algorithm, "RS384", "RS512", "PS256", "PS384", "PS512"))
    key = keys.by_algorithm.get(algorithm, keys.by_algorithm["RS256"])
    header: dict[str, object] = {}
    if draw.random() < 0.2:
        header = dict(draw.choice(_HEADERS))
        kinds.append(f"header {json.dumps(header)}")
    match draw.randrange(12):
        case 0:
            kinds.append("signed by another key")
            text = sign(claims, keys.hidden, "RS256")
        case 1:
            kinds.append("HS256 by the public key")
            text = sign_by_secret(claims, public_pem(keys.by_algorithm["RS256"]), kid="rsa")
        case 2:
            kinds.append("none")
            text = sign(claims, None, "none", kid="rsa")
        case 3:
            text, kind = _broken(draw, sign(claims, key, algorithm))
            kinds.append(kind)
        case _:
            name = header.pop("alg", None)
            text = sign(claims, key, algorithm, **header)
            if name is not None:
                text = _renamed(text, str(name))
    return DrawnToken(text, "; ".join(kinds))


def _renamed(text: str, algorithm: str) -> str:
    header, rest = text.split(".", 1)
    names = json.loads(urlsafe_b64decode(header + "=" * (-len(header) % 4))) | {"alg": algorithm}
    return f"{urlsafe_b64encode(json.dumps(names).encode()).decode().rstrip('=')}.{rest}"


def _broken(draw: random.Random, text: str) -> tuple[str, str]:
    """A token of which a part is cut, changed, doubled or left out."""
    parts = text.split(".")
    match draw.randrange(6):
        case 0:
            return text[: draw.randrange(len(text))], "cut"
        case 1:
            place = draw.randrange(len(text))
            return f"{text[:place]}{draw.choice('aB3-_.')}{text[place + 1 :]}", "one character changed"
        case 2:
            return ".".join(parts[:2]), "two parts"
        case 3:
            return f"{text}.{parts[2]}", "four parts"
        case 4:
            return f"{parts[0]}.{parts[1]}.", "no signature"
        case _:
            doubled = '{"sub": "alice", "sub": "bob"}'
            return f"{parts[0]}.{urlsafe_b64encode(doubled.encode()).decode().rstrip('=')}.{parts[2]}", "doubled name"


@dataclass(slots=True)
class TokenComparison:
    """The result of one run."""

    tokens: int = 0
    accepted: int = 0
    """By Kafka."""
    meant: Counter[str] = field(default_factory=Counter)
    """How often each of DIFFERENCES came about."""
    differences: list[str] = field(default_factory=list)
    """Each what is unusual about a token, the token, and both answers."""


def compare_tokens(oracle: JavaProgram, folder: Path, *, seed: int, count: int, now_s: int) -> TokenComparison:
    """Draws tokens, and compares what both say of them."""
    draw, keys, found = random.Random(seed), Keys(), TokenComparison(tokens=count)
    key_path, asked, answered = folder / "keys.json", folder / "tokens.txt", folder / "users.txt"
    key_path.write_text(keys.text())
    drawn = [draw_token(draw, keys, now_s) for _ in range(count)]
    asked.write_text("".join(f"{token.text}\n" for token in drawn), encoding="utf-8")
    oracle.run(f"file://{key_path}", str(asked), str(answered), timeout_seconds=SECONDS_MAX)
    answers = answered.read_text(encoding="utf-8").split("\n")[:-1]
    assert len(answers) == count, f"{count} tokens, {len(answers)} answers"
    known = read_key_set(keys.text())
    for token, answer in zip(drawn, answers, strict=True):
        found.accepted += answer != ""
        try:
            read = read_web_token(token.text)
            identity = identity_of(read.claims, SETTINGS, now_s * 1_000)
            key = known.find(read)
            if key is None:
                raise InvalidToken("the token's key is none of its issuer")
            verify(read, key)
            ours, reason = f"{identity.name}\t{identity.expires_ms}", ""
        except InvalidToken as error:
            ours, reason = "", str(error)
        if ours == answer:
            continue
        if ours == "" and reason in DIFFERENCES:
            found.meant[reason] += 1
            continue
        found.differences.append(f"{token.kind}\n{token.text}\nKafka: {answer!r}, Penstock: {ours!r} {reason}")
    return found
