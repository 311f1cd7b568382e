"""Decoys: SCRAM credentials of users that do not exist, so that a guesser does not find out who exists.

A decoy has the salt that its name always has, of the length and alphabet, and the iterations, that real credentials
have. No password fits it. The secret distinguishes decoys from credentials; no client sees it.
Source: RFC 5802, section 9, says that a server should not reveal who exists; Kafka does.
"""

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from protocol.auth.scram_credentials import ScramCredential, ScramMechanism

KAFKA_ALPHABET: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
"""Kafka's tools make salts of text: a number of 130 bits in base 36."""
KAFKA_SALT_BYTES: Final = 25
_ITERATIONS: Final = 4_096


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class CredentialShape:
    """The part of a credential that a client sees before it has the password, but for the salt's own bytes."""

    salt_bytes: int = KAFKA_SALT_BYTES
    is_text: bool = True
    iterations: int = _ITERATIONS


def shapes_of(credentials: Iterable[ScramCredential]) -> Sequence[CredentialShape]:
    """The different shapes, in an order that every agent finds alike; that of Kafka's tools where there are none."""
    shapes = {
        CredentialShape(
            salt_bytes=len(credential.salt),
            is_text=all(byte in KAFKA_ALPHABET for byte in credential.salt),
            iterations=credential.iterations,
        )
        for credential in credentials
    }
    return sorted(shapes) or [CredentialShape()]


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
    shape = max(shapes, key=lambda shape: _derive(secret, b"shape", name, repr(shape).encode()))
    drawn = _stream(secret, name, shape.salt_bytes)
    return ScramCredential(
        salt=bytes(KAFKA_ALPHABET[byte % len(KAFKA_ALPHABET)] for byte in drawn) if shape.is_text else drawn,
        stored_key=_key(secret, b"stored key", name, mechanism),
        server_key=_key(secret, b"server key", name, mechanism),
        iterations=shape.iterations,
    )


def _stream(secret: bytes, name: bytes, count: int) -> bytes:
    blocks = range(-(-count // hashlib.sha256().digest_size))
    return b"".join(_derive(secret, b"salt", name, block.to_bytes(4)) for block in blocks)[:count]


def _derive(secret: bytes, purpose: bytes, name: bytes, more: bytes) -> bytes:
    return hmac.digest(secret, b"\0".join((purpose, more.hex().encode(), name)), "sha256")


def _key(secret: bytes, purpose: bytes, name: bytes, mechanism: ScramMechanism) -> bytes:
    return hmac.digest(secret, purpose + b"\0" + name, mechanism.hash_name)
