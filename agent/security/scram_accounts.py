"""The accounts that SCRAM and PLAIN check: the users of the cluster's state, and decoys for all other names."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from protocol.auth.decoy_credentials import CredentialShape, decoy, shapes_of
from protocol.auth.sasl_exchange import SaslIdentity
from protocol.auth.scram import ScramAccount
from protocol.auth.scram_credentials import ScramCredential, ScramMechanism

CredentialKey = tuple[str, ScramMechanism]


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialSource:
    """Where credentials come from."""

    credentials: Callable[[], Mapping[CredentialKey, ScramCredential]]
    """The credentials of all users, as they are now."""
    version: Callable[[], int]
    """A number that is another one after each change of the credentials."""


class ScramAccounts:
    """The accounts of one agent. All agents of a cluster find the same account for a name."""

    def __init__(self, source: CredentialSource, *, decoy_secret: bytes) -> None:
        self.source = source
        self._decoy_secret = decoy_secret
        self._shapes: Sequence[CredentialShape] = ()
        self._shapes_version: int | None = None

    def scram_account(
        self,
        mechanism: ScramMechanism,
        user: str,
        is_token: bool,  # noqa: FBT001 - as `FindAccount` has it
    ) -> ScramAccount:
        """The account of a user's name; a decoy where there is no such user. No delegation token is known yet."""
        credential = None if is_token else self.source.credentials().get((user, mechanism))
        if credential is None:
            return ScramAccount(credential=self._decoy(user, mechanism), identity=None)
        return ScramAccount(credential=credential, identity=SaslIdentity(name=user))

    def password_credentials(self, user: str) -> tuple[CredentialKey, ScramCredential, bool]:
        """The credential that a password of PLAIN is checked against, and whether it is a real one.

        A user with both mechanisms has that of SHA-512. A decoy has its mechanism, too, so that both take as long.
        """
        credentials = self.source.credentials()
        for mechanism in (ScramMechanism.SCRAM_SHA_512, ScramMechanism.SCRAM_SHA_256):
            credential = credentials.get((user, mechanism))
            if credential is not None:
                return (user, mechanism), credential, True
        mechanism = ScramMechanism.SCRAM_SHA_512
        return (user, mechanism), self._decoy(user, mechanism), False

    def _decoy(self, user: str, mechanism: ScramMechanism) -> ScramCredential:
        version = self.source.version()
        if version != self._shapes_version:
            self._shapes, self._shapes_version = shapes_of(self.source.credentials().values()), version
        return decoy(self._decoy_secret, user, mechanism, self._shapes)
