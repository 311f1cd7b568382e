"""Decoys: SCRAM credentials of users that do not exist, so that a guesser does not find out who exists.

A decoy has the salt that its name always has, of the length and alphabet, and the iterations, that real credentials
have. No password fits it. Its keys, which no client sees, are those of all decoys: only its salt is worked out for each
name. The secret distinguishes decoys from credentials; no client sees it.
Source: RFC 5802, section 9, says that a server should not reveal who exists; Kafka does.
"""

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from protocol.auth.scram_credentials import ScramCredential, ScramMechanism

KAFKA_ALPHABET: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
"""Kafka's tools make salts of text: a number of 130 bits in base 36."""
KAFKA_SALT_BYTES: Final = 25
_AS_TEXT: Final = bytes(KAFKA_ALPHABET[byte % len(KAFKA_ALPHABET)] for byte in range(256))
_ITERATIONS: Final = 4_096


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class CredentialShape:
    """The part of a credential that a client sees before it has the password, but for the salt's own bytes."""

    salt_bytes: int = KAFKA_SALT_BYTES
    is_text: bool = True
    iterations: int = _ITERATIONS


def shapes_of(credentials: Iterable[ScramCredential]) -> Sequence[CredentialShape]:
    """The different shapes, in an order that every agent finds alike; that of Kafka's tools where there are none."""
    seen = {  # of tuples: there may be tens of thousands
        (len(credential.salt), not credential.salt.translate(None, KAFKA_ALPHABET), credential.iterations)
        for credential in credentials
    }
    shapes = [
        CredentialShape(salt_bytes=salt_bytes, is_text=is_text, iterations=iterations)
        for salt_bytes, is_text, iterations in sorted(seen)
    ]
    return shapes or [CredentialShape()]


def decoy(secret: bytes, user: str, mechanism: ScramMechanism, shapes: Sequence[CredentialShape]) -> ScramCredential:
    """The decoy of a user's name.

    Args:
        secret: the same in all agents of the cluster, so that all of them answer alike.
        user: the name, whether or not it looks like one.
        mechanism: decides the length of the keys.
        shapes: of real credentials; not empty.
    """
    name = f"{mechanism.sasl_name}\0{user}".encode()
    # The highest of the digests wins: another shape, added or removed, leaves most names with what they have.
    shape = shapes[0]
    if len(shapes) > 1:
        shape = max(shapes, key=lambda shape: _derive(secret, b"shape", name, repr(shape).encode()))
    drawn = _stream(secret, name, shape.salt_bytes)
    return ScramCredential(
        salt=drawn.translate(_AS_TEXT) if shape.is_text else drawn,
        stored_key=_key(secret, b"stored key", mechanism),
        server_key=_key(secret, b"server key", mechanism),
        iterations=shape.iterations,
    )


def decoy_mechanism(secret: bytes, user: str, mechanisms: Iterable[ScramMechanism]) -> ScramMechanism:
    """The mechanism of a user's decoy where the client names none (PLAIN): one of those that real users have."""
    name = user.encode()
    return max(mechanisms, key=lambda mechanism: _derive(secret, b"mechanism", name, mechanism.sasl_name.encode()))


def _stream(secret: bytes, name: bytes, count: int) -> bytes:
    blocks = range(-(-count // hashlib.sha256().digest_size))
    return b"".join(_derive(secret, b"salt", name, block.to_bytes(4)) for block in blocks)[:count]


def _derive(secret: bytes, purpose: bytes, name: bytes, more: bytes) -> bytes:
    return hmac.digest(secret, b"\0".join((purpose, more.hex().encode(), name)), "sha256")


@cache  # four of them: an agent has one secret, and no client names a purpose
def _key(secret: bytes, purpose: bytes, mechanism: ScramMechanism) -> bytes:
    return hmac.digest(secret, purpose, mechanism.hash_name)
