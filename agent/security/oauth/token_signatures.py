"""Keys of an issuer and signatures of its tokens. The only module that knows the library `joserfc`.

Rule: a key verifies only tokens of the algorithms that fit its type, and none of them is an HMAC: a public key is no
shared secret. The library is imported where it is used, since that takes 0.1 s.
Source: RFC 7517, RFC 7518; org.jose4j.jwk.VerificationJwkSelector and org.jose4j.keys.resolvers (of Kafka 4.3).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agent.security.oauth.web_tokens import InvalidToken, JsonObject, WebToken, read_json_object
from protocol.limits import RSA_KEY_BITS_MIN

if TYPE_CHECKING:
    from joserfc.jwk import Key

ALGORITHMS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    **{f"{family}{bits}": ("RSA", ()) for family in ("RS", "PS") for bits in (256, 384, 512)},
    "ES256": ("EC", ("P-256",)),
    "ES384": ("EC", ("P-384",)),
    "ES512": ("EC", ("P-521",)),
    "EdDSA": ("OKP", ("Ed25519", "Ed448")),
}
"""The algorithms of signatures that are accepted, with the type and the curves of their keys."""
_PUBLIC: Final[Mapping[str, tuple[str, ...]]] = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
"""The parameters of a public key by its type."""
_CURVES: Final = frozenset(curve for _, curves in ALGORITHMS.values() for curve in curves)


class InvalidKeySet(ValueError):
    """A text is no key set that can be used. The message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerKey:
    """One public key."""

    key_id: str | None
    key_type: str
    curve: str
    algorithm: str
    """The only algorithm that the key is for; "" for any that fits its type."""
    key: "Key"

    def fits(self, algorithm: str) -> bool:
        """Whether signatures of the algorithm may be the key's."""
        key_type, curves = ALGORITHMS[algorithm]
        return self.key_type == key_type and (not curves or self.curve in curves) and self.algorithm in ("", algorithm)


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys of an issuer at one time."""

    keys: Sequence[IssuerKey] = ()

    def find(self, token: WebToken) -> IssuerKey | None:
        """The key that a token's signature has to be of; None where the set has none.

        A token that names no key is that of the only one that fits. Raises `InvalidToken` where its algorithm is
        not accepted, or where several keys fit it.
        """
        if token.algorithm not in ALGORITHMS:
            raise InvalidToken("the token's algorithm is not accepted")
        fitting = [key for key in self.keys if key.fits(token.algorithm)]
        if token.key_id is not None:
            return next((key for key in fitting if key.key_id == token.key_id), None)
        if len(fitting) > 1:
            raise InvalidToken("the token names no key, and several of its issuer fit")
        return fitting[0] if fitting else None


def read_key_set(text: str) -> KeySet:
    """The keys of a JSON Web Key Set that can verify tokens. Raises `InvalidKeySet` where there is none."""
    try:
        value = read_json_object(text)
    except ValueError as error:
        raise InvalidKeySet(f"it is no JSON object: {error}") from error
    rows = value.get("keys")
    if not isinstance(rows, list):
        raise InvalidKeySet("it has no array `keys`, as a JSON Web Key Set has (RFC 7517, section 5)")
    keys = tuple(_keys(rows))
    if not keys:
        raise InvalidKeySet(f"none of its {len(rows)} keys is a public key for signatures that is supported")
    return KeySet(keys)


def verify(token: WebToken, key: IssuerKey) -> None:
    """Raises `InvalidToken` unless the token's signature is of the key."""
    from joserfc.jws import JWSRegistry

    model = JWSRegistry.algorithms[token.algorithm]
    assert key.fits(token.algorithm), "a key verifies what fits its type alone"
    if not model.verify(token.signed, token.signature, key.key):
        raise InvalidToken("the token's signature is wrong")


def _keys(rows: Sequence[object]) -> Iterator[IssuerKey]:
    """The keys that can be used. Others are skipped, as RFC 7517, section 5, says."""
    from joserfc import jwk
    from joserfc.errors import JoseError

    for row in rows:
        parameters = row if isinstance(row, dict) else {}
        key_type = parameters.get("kty")
        if not isinstance(key_type, str) or key_type not in _PUBLIC or not _is_for_signatures(parameters):
            continue
        public = {name: value for name in _PUBLIC[key_type] if isinstance(value := parameters.get(name), str)}
        if len(public) < len(_PUBLIC[key_type]) or _is_too_short(public):
            continue
        if public.get("crv", "P-256") not in _CURVES:
            continue
        try:
            key = jwk.import_key({"kty": key_type, **public})
        except (JoseError, ValueError):
            continue
        key_id, algorithm = parameters.get("kid"), parameters.get("alg", "")
        yield IssuerKey(
            key_id=key_id if isinstance(key_id, str) else None,
            key_type=key_type,
            curve=public.get("crv", ""),
            algorithm=algorithm if isinstance(algorithm, str) else "",
            key=key,
        )


def _is_too_short(public: JsonObject) -> bool:
    modulus = public.get("n")  # of RSA alone; base64url, six bits a character
    return isinstance(modulus, str) and 6 * len(modulus) < RSA_KEY_BITS_MIN


def _is_for_signatures(parameters: JsonObject) -> bool:
    operations = parameters.get("key_ops", ["verify"])
    return parameters.get("use", "sig") == "sig" and isinstance(operations, list) and "verify" in operations
