"""The file of users for PLAIN (`--plain-users`): one user a line, with a verifier instead of the password.

A line is `NAME:VERIFIER`, and a verifier is `SCRAM-SHA-512$ITERATIONS:SALT$STORED_KEY:SERVER_KEY` in base64, the form
that PostgreSQL has for pg_authid.rolpassword. Empty lines and lines that begin with # are skipped. The file is read
again when its content has changed; one that cannot be read then changes nothing.
"""

import binascii
import hashlib
import logging
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agent.config.option_sources import InvalidSettings
from protocol.auth.scram_credentials import ScramCredential, ScramMechanism
from protocol.limits import PLAIN_USERS_BYTES_MAX

log = logging.getLogger(__name__)

_VERIFIER: Final = re.compile(r"(SCRAM-SHA-256|SCRAM-SHA-512)\$([0-9]{1,9}):([^$:]+)\$([^$:]+):([^$:]+)")
FORM: Final = "NAME:SCRAM-SHA-512$ITERATIONS:SALT$STORED_KEY:SERVER_KEY"
Verifier = tuple[ScramMechanism, ScramCredential]


class PlainUsers:
    """The users of one file."""

    def __init__(self, path: Path) -> None:
        """Reads the file. Raises `InvalidSettings`."""
        self._path = path
        self._content = _read(path)
        self._users = read_plain_users(self._content, str(path))

    def credential(self, user: str) -> Verifier | None:
        """The verifier of a user; None where the file has no such user."""
        return self._users.get(user)

    @property
    def verifiers(self) -> Mapping[str, Verifier]:
        """All users' verifiers, in another object after each change."""
        return self._users

    def reload(self) -> bool:
        """Read the file again; whether its users have changed. Logs what is wrong with it."""
        try:
            content = _read(self._path)
            if content == self._content:
                return False
            self._users = read_plain_users(content, str(self._path))
        except InvalidSettings as error:
            log.error("the users of PLAIN stay as they were", extra={"reason": str(error)})
            return False
        self._content = content
        return True


def read_plain_users(content: bytes, path: str) -> Mapping[str, Verifier]:
    """The verifiers by user. Raises `InvalidSettings`, whose message names the line and shows nothing of it."""
    users: dict[str, Verifier] = {}
    try:
        lines = str(content, "utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InvalidSettings(f"--plain-users {path} is not UTF-8") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, text = line.strip().rpartition(":SCRAM-")
        verifier = _read_verifier("SCRAM-" + text)
        if not name or verifier is None:
            raise InvalidSettings(f"--plain-users {path}: line {number} is not {FORM}")
        if name in users:
            raise InvalidSettings(f"--plain-users {path}: line {number} has a user that an earlier line has")
        users[name] = verifier
    return users


def plain_user_line(user: str, mechanism: ScramMechanism, credential: ScramCredential) -> str:
    """The line of a user."""
    parts = (credential.salt, credential.stored_key, credential.server_key)
    salt, stored_key, server_key = (b64encode(part).decode() for part in parts)
    return f"{user}:{mechanism.sasl_name}${credential.iterations}:{salt}${stored_key}:{server_key}"


def _read_verifier(text: str) -> Verifier | None:
    match = _VERIFIER.fullmatch(text)
    if match is None:
        return None
    mechanism = ScramMechanism[match[1].replace("-", "_")]
    try:
        salt, stored_key, server_key = (b64decode(part, validate=True) for part in match.groups()[2:])
    except (binascii.Error, ValueError):
        return None
    iterations = int(match[2])
    if (
        not salt
        or iterations < 1
        or not len(stored_key) == len(server_key) == hashlib.new(mechanism.hash_name).digest_size
    ):
        return None
    return mechanism, ScramCredential(salt=salt, stored_key=stored_key, server_key=server_key, iterations=iterations)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(PLAIN_USERS_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidSettings(f"--plain-users {path} cannot be read: {error.strerror}") from error
    if len(content) > PLAIN_USERS_BYTES_MAX:
        raise InvalidSettings(f"--plain-users {path} is larger than {PLAIN_USERS_BYTES_MAX} bytes")
    return content
