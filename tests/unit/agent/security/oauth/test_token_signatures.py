"""Which keys of an issuer verify which tokens."""

import json
from dataclasses import replace
from typing import Any

import pytest

from agent.security.oauth.token_signatures import ALGORITHMS, InvalidKeySet, KeySet, read_key_set, verify
from agent.security.oauth.web_tokens import InvalidToken, read_web_token
from tests.support.auth.token_issuer import key_set, new_key, public_pem, sign, sign_by_secret

CLAIMS = {"sub": "alice"}
RSA = new_key(key_id="a")


def check(keys: KeySet, token: str) -> None:
    """Raises `InvalidToken`, also where no key is found."""
    read = read_web_token(token)
    key = keys.find(read)
    if key is None:
        raise InvalidToken("no key")
    verify(read, key)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_algorithm_is_verified_and_a_changed_token_is_not(algorithm: str) -> None:
    key = new_key(algorithm)
    keys, token = read_key_set(key_set(key)), sign(CLAIMS, key, algorithm)
    check(keys, token)
    signed, _, signature = token.rpartition(".")
    changed = f"{signed}.{'B' if signature[0] == 'A' else 'A'}{signature[1:]}"
    for wrong in (changed, f"{signed}.AAAA", sign(CLAIMS, new_key(algorithm), algorithm)):
        with pytest.raises(InvalidToken, match="signature is wrong"):
            check(keys, wrong)


def test_a_key_verifies_no_algorithm_of_another_type() -> None:
    keys = read_key_set(key_set(RSA))
    for token in (
        sign_by_secret(CLAIMS, public_pem(RSA), kid="a"),
        sign(CLAIMS, new_key("ES256", key_id="a"), "ES256"),
    ):
        with pytest.raises(InvalidToken):
            check(keys, token)


@pytest.mark.parametrize("algorithm", ["none", "None", "HS256", "HS512", "ES256K", "rs256", "", "RSA1_5", "Ed25519"])
def test_no_other_algorithm_is_accepted(algorithm: str) -> None:
    token = replace(read_web_token(sign(CLAIMS, RSA)), algorithm=algorithm)
    with pytest.raises(InvalidToken, match="algorithm is not accepted"):
        read_key_set(key_set(RSA)).find(token)


def test_the_key_is_the_one_that_the_token_names() -> None:
    other = new_key(key_id="b")
    keys = read_key_set(key_set(other, RSA))
    check(keys, sign(CLAIMS, RSA))
    assert keys.find(read_web_token(sign(CLAIMS, RSA, kid="c"))) is None
    with pytest.raises(InvalidToken, match="signature is wrong"):
        check(keys, sign(CLAIMS, RSA, kid="b"))


def test_a_token_that_names_no_key_is_of_the_only_one_that_fits() -> None:
    elliptic = new_key("ES256", key_id="b")
    check(read_key_set(key_set(RSA, elliptic)), sign(CLAIMS, RSA, kid=None))
    with pytest.raises(InvalidToken, match="names no key"):
        check(read_key_set(key_set(RSA, new_key(key_id="b"))), sign(CLAIMS, RSA, kid=None))


def test_a_key_that_is_for_one_algorithm_or_another_use_verifies_nothing_else() -> None:
    row: dict[str, Any] = RSA.as_dict(private=False)
    keys = read_key_set(json.dumps({"keys": [row | {"alg": "RS512"}]}))
    check(keys, sign(CLAIMS, RSA, "RS512"))
    assert keys.find(read_web_token(sign(CLAIMS, RSA))) is None
    for others in ({"use": "enc"}, {"key_ops": ["encrypt"]}, {"key_ops": "verify"}):
        with pytest.raises(InvalidKeySet, match="none of its 1 keys"):
            read_key_set(json.dumps({"keys": [row | others]}))


def test_keys_that_cannot_be_used_are_skipped() -> None:
    small = new_key(key_id="small", bits=1_024).as_dict(private=False)
    wrong = [
        None,
        {},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "a"},
        {"kty": "RSA", "kid": "x"},
        {"kty": "RSA", "n": 1, "e": "AQAB"},
        {"kty": "RSA", "n": "", "e": "AQAB"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "EC", "crv": "P-1", "x": "AA", "y": "AA"},
        {"kty": "OKP", "crv": "Ed25519", "x": "AA"},
        {"kty": ["RSA"]},
        small,
    ]
    keys = read_key_set(json.dumps({"keys": [*wrong, RSA.as_dict(private=True)]}))
    assert len(keys.keys) == 1
    check(keys, sign(CLAIMS, RSA))
    with pytest.raises(InvalidKeySet, match=r"none of its 11 keys"):
        read_key_set(json.dumps({"keys": wrong}))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"keys": {}}', '{"keys": [], "keys": []}', "{" * 20_000])
def test_another_text_is_no_key_set(text: str) -> None:
    with pytest.raises(InvalidKeySet):
        read_key_set(text)
