"""Encrypts the keys of SCRAM credentials before they enter the ledger, by a key that all agents of a cluster share.

In: credentials of users. Out: credentials whose two keys are encrypted by AES-256-GCM, or the keys again. So neither
the ledger nor a snapshot has what a thief could try passwords on, or impersonate the server with.
Rule: a sealed key is bound to its user, its mechanism and its place: it opens nowhere else. Its length says that it is
sealed. Without a key file, credentials pass as they are. A credential that cannot be opened here counts as none, and is
an error in the log.
Source: NIST SP 800-38D (AES-GCM, nonces of 96 random bits).
"""

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, ValuesView
from dataclasses import replace
from typing import Final

from agent.config.secret_key import SecretKey
from agent.runtime.ids import Ids
from coordinator.commands.security import CredentialId
from protocol.auth.scram_credentials import ScramCredential
from protocol.limits import OUTAGE_REMINDER_SECONDS

log = logging.getLogger(__name__)

NONCE_BYTES: Final = 12
STORED, SERVER = b"stored", b"server"
REMEDY: Final = "start all agents with the same penstock.secret.key.file, or set the user's password again"


class SealedElsewhere(ValueError):
    """A sealed key that this agent's key does not open, or that it has no key for."""


class CredentialSeal:
    """The seal of one agent; without a key it leaves credentials as they are."""

    def __init__(self, key: SecretKey | None = None) -> None:
        self._key = key

    def seal(self, credential_id: CredentialId, credential: ScramCredential, ids: Ids) -> ScramCredential:
        """The credential as it may be stored."""
        if self._key is None:
            return credential
        return replace(
            credential,
            stored_key=self._sealed(credential_id, STORED, credential.stored_key, ids),
            server_key=self._sealed(credential_id, SERVER, credential.server_key, ids),
        )

    def open(self, credential_id: CredentialId, credential: ScramCredential) -> ScramCredential:
        """The credential as it was before `seal`. Raises `SealedElsewhere`."""
        key_bytes = hashlib.new(credential_id[1].hash_name).digest_size
        if len(credential.stored_key) == key_bytes == len(credential.server_key):
            return credential
        return replace(
            credential,
            stored_key=self._opened(credential_id, STORED, credential.stored_key),
            server_key=self._opened(credential_id, SERVER, credential.server_key),
        )

    def _sealed(self, credential_id: CredentialId, place: bytes, plain: bytes, ids: Ids) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        assert self._key is not None
        nonce = hashlib.blake2b(ids.new_uuid() + ids.new_uuid(), digest_size=NONCE_BYTES).digest()
        return nonce + AESGCM(self._key.value).encrypt(nonce, plain, _bound_to(credential_id, place))

    def _opened(self, credential_id: CredentialId, place: bytes, sealed: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if self._key is None:
            raise SealedElsewhere("its keys are encrypted, and this agent has no penstock.secret.key.file")
        try:
            nonce, encrypted = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
            return AESGCM(self._key.value).decrypt(nonce, encrypted, _bound_to(credential_id, place))
        except (InvalidTag, ValueError) as error:
            raise SealedElsewhere("its keys were encrypted by another penstock.secret.key.file") from error


def _bound_to(credential_id: CredentialId, place: bytes) -> bytes:
    user, mechanism = credential_id
    return b"\0".join((b"penstock scram", place, mechanism.sasl_name.encode(), user.encode()))


class OpenCredentials(Mapping[CredentialId, ScramCredential]):
    """Credentials of the state, opened as they are looked up."""

    def __init__(
        self,
        stored: Callable[[], Mapping[CredentialId, ScramCredential]],
        seal: CredentialSeal,
        *,
        monotonic_s: Callable[[], float],
    ) -> None:
        self._stored = stored
        self._seal = seal
        self._monotonic_s = monotonic_s
        self._logged_s = float("-inf")
        self._failures_count = 0
        """Look-ups since the last line of the log that found a credential which cannot be opened."""

    def __getitem__(self, key: CredentialId) -> ScramCredential:
        try:
            return self._seal.open(key, self._stored()[key])
        except SealedElsewhere as error:
            self._report(key[0], error)
            raise KeyError(key) from error

    def _report(self, user: str, error: SealedElsewhere) -> None:
        # With the wrong key every log-in fails, and clients try again and again: one line a minute for all of them.
        self._failures_count += 1
        now_s = self._monotonic_s()
        if now_s - self._logged_s < OUTAGE_REMINDER_SECONDS:
            return
        log.error(
            "users cannot log in at this agent: %s",
            error,
            extra={"user": user, "failures": self._failures_count, "remedy": REMEDY},
        )
        self._logged_s, self._failures_count = now_s, 0

    def __contains__(self, key: object) -> bool:
        return key in self._stored()

    def __iter__(self) -> Iterator[CredentialId]:
        return iter(self._stored())

    def __len__(self) -> int:
        return len(self._stored())

    def values(self) -> ValuesView[ScramCredential]:
        """The credentials as they are stored: their salts and iterations are never encrypted."""
        return dict(self._stored()).values()
