"""The accounts that SCRAM and PLAIN check: the users of the cluster's state, and decoys for all other names.

Rule: a decoy has the mechanism, the iterations and the kind of salt that real users have, so that neither the answers
nor their times differ. It is worked out for known names, too, as that takes time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agent.security.plain_users import PlainUsers, Verifier
from protocol.auth.decoy_credentials import CredentialShape, decoy, decoy_mechanism, shapes_of
from protocol.auth.sasl_exchange import SaslIdentity
from protocol.auth.scram import ScramAccount
from protocol.auth.scram_credentials import ScramCredential, ScramMechanism

CredentialKey = tuple[str, ScramMechanism]
BY_PREFERENCE: Final = (ScramMechanism.SCRAM_SHA_512, ScramMechanism.SCRAM_SHA_256)
"""The credential that a password is checked against is the first of these that the user has."""
_EMPTY_FILE: Final[Mapping[str, Verifier]] = {}
FindTokenAccount = Callable[[ScramMechanism, str], ScramAccount]
"""The account of a delegation token's id, made up where there is no such token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialSource:
    """Where credentials come from."""

    credentials: Callable[[], Mapping[CredentialKey, ScramCredential]]
    """The credentials of all users, as they are now."""
    version: Callable[[], int]
    """A number that is another one after each change of the credentials."""


class ScramAccounts:
    """The accounts of one agent. All agents of a cluster find the same account for a name."""

    def __init__(
        self,
        source: CredentialSource,
        *,
        decoy_secret: bytes,
        plain_users: PlainUsers | None = None,
        find_token: FindTokenAccount | None = None,
    ) -> None:
        """Begin.

        Args:
            source: the users of the cluster's state.
            decoy_secret: see `decoy`.
            plain_users: more users of PLAIN, whom decoys have to resemble.
            find_token: finds the accounts of delegation tokens; None where there are none.
        """
        self.source = source
        self._decoy_secret = decoy_secret
        self._plain_users = plain_users
        self._find_token = find_token
        self._shapes: Mapping[ScramMechanism, Sequence[CredentialShape]] = {}
        self._password_shapes: Mapping[ScramMechanism, Sequence[CredentialShape]] = {}
        self._shapes_version: int | None = None
        self._file_version: Mapping[str, Verifier] = _EMPTY_FILE

    def scram_account(
        self,
        mechanism: ScramMechanism,
        user: str,
        is_token: bool,  # noqa: FBT001 - as `FindAccount` has it
    ) -> ScramAccount:
        """The account of a user's name, or of a delegation token's id; a decoy where there is no such user or token."""
        if is_token and self._find_token is not None:
            return self._find_token(mechanism, user)
        self._look_at_shapes()
        the_decoy = decoy(self._decoy_secret, user, mechanism, self._shapes[mechanism])
        credential = None if is_token else self.source.credentials().get((user, mechanism))
        if credential is None:
            return ScramAccount(credential=the_decoy, identity=None)
        return ScramAccount(credential=credential, identity=SaslIdentity(name=user))

    def password_credentials(self, user: str) -> tuple[CredentialKey, ScramCredential, bool]:
        """The credential that a password of PLAIN is checked against, and whether it is a real one.

        A user with both mechanisms has that of SHA-512.
        """
        self._look_at_shapes()
        mechanism = decoy_mechanism(self._decoy_secret, user, self._password_shapes)
        the_decoy = decoy(self._decoy_secret, user, mechanism, self._password_shapes[mechanism])
        credentials = self.source.credentials()
        for choice in BY_PREFERENCE:
            credential = credentials.get((user, choice))
            if credential is not None:
                return (user, choice), credential, True
        return (user, mechanism), the_decoy, False

    def _look_at_shapes(self) -> None:
        """Finds out what real credentials look like, where they have changed: 20 ms for 50,000 users."""
        version = self.source.version()
        in_file = _EMPTY_FILE if self._plain_users is None else self._plain_users.verifiers
        if version == self._shapes_version and in_file is self._file_version:
            return
        stored = self.source.credentials()
        items = zip(stored, stored.values(), strict=True)  # as they are stored: the encrypted ones are not opened
        by_mechanism: dict[ScramMechanism, list[ScramCredential]] = {mechanism: [] for mechanism in ScramMechanism}
        passwords: dict[ScramMechanism, list[ScramCredential]] = {}
        preferred, _ = BY_PREFERENCE
        for (user, mechanism), credential in items:
            by_mechanism[mechanism].append(credential)
            if mechanism is preferred or (user, preferred) not in stored:
                passwords.setdefault(mechanism, []).append(credential)
        for mechanism, credential in in_file.values():
            passwords.setdefault(mechanism, []).append(credential)
        self._shapes = {mechanism: shapes_of(of_mechanism) for mechanism, of_mechanism in by_mechanism.items()}
        self._password_shapes = {
            mechanism: shapes_of(of_mechanism) for mechanism, of_mechanism in (passwords or {preferred: []}).items()
        }
        self._shapes_version, self._file_version = version, in_file
