"""Tokens are taken apart, and nothing that a stranger sends raises another error."""

import json
from base64 import urlsafe_b64encode
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.security.oauth.web_tokens import InvalidToken, WebToken, has_token_form, read_web_token


def encoded(part: bytes | str) -> str:
    return urlsafe_b64encode(part.encode() if isinstance(part, str) else part).decode().rstrip("=")


def compact(header: bytes | str, payload: bytes | str = "{}", signature: bytes = b"s") -> str:
    return ".".join((encoded(header), encoded(payload), encoded(signature)))


def test_a_token_has_an_algorithm_a_key_claims_and_a_signature() -> None:
    text = compact('{"alg": "RS256", "kid": "a", "typ": "JWT"}', '{"sub": "alice"}', b"signed")
    token = read_web_token(text)
    assert token == WebToken(
        algorithm="RS256",
        key_id="a",
        claims={"sub": "alice"},
        signed=text.rpartition(".")[0].encode(),
        signature=b"signed",
    )
    assert "alice" not in repr(token)
    assert has_token_form(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.b",
        "a.b.c.d",
        "a..c",
        ".b.c",
        "a.b.",
        "a.b.c=",
        "a.b c.d",
        "a.b.c\n",
        "a+.b.c",
        compact("{}"),
        compact("[]"),
        compact("1"),
        compact("{"),
        compact(b"\xff"),
        compact('{"alg": null}'),
        compact('{"alg": "RS256", "kid": 1}'),
        compact('{"alg": "RS256", "alg": "none"}'),
        compact('{"alg": "RS256", "crit": ["exp"]}'),
        compact('{"alg": "RS256", "cty": "JWT"}'),
        compact('{"alg": "RS256", "x": NaN}'),
        compact('{"alg": "RS256"}', "[]"),
        compact('{"alg": "RS256"}', '{"sub": "a", "sub": "b"}'),
        compact('{"alg": "RS256"}', '{"a": {"b": 1, "b": 2}}'),
        compact('{"alg": "RS256"}', "[" * 9_000),
        compact('{"alg": "RS256"}', '{"exp": ' + "9" * 9_000 + "}"),
        compact("[" * 9_000),
        "a" * 5 + ".aaaa.aaaa",
        compact('{"alg": "RS256"}', json.dumps({"sub": "a" * 17 * 1024})),
    ],
)
def test_another_text_is_no_token(text: str) -> None:
    with pytest.raises(InvalidToken):
        read_web_token(text)


@given(st.text(alphabet="abAB09-_=.", max_size=60) | st.binary(max_size=40).map(lambda part: compact(part, part)))
def test_any_text_is_a_token_or_invalid(text: str) -> None:
    with suppress(InvalidToken):
        read_web_token(text)
