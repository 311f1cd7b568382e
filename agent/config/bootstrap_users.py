"""The file of a cluster's first users (`--bootstrap-users`), in TOML. It is read once, when the agent starts.

Each `[[users]]` has `name`, `password` or `password.file` (a path, relative to this file), and may have `mechanism`
(SCRAM-SHA-512 where it has none) and `acls`: tables with `operation`, `resource_type` and `name`, and with `pattern`,
`permission` and `host` where they are not LITERAL, ALLOW and `*`. The words are Kafka's.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Final, TypeVar

from agent.config.option_sources import InvalidSettings
from coordinator.security.acls import Acl, InvalidAcl, check_acl
from protocol.auth.operations import Operation, PatternType, Permission, ResourceType
from protocol.auth.principals import USER, Principal
from protocol.auth.scram_credentials import ScramMechanism
from protocol.limits import SASL_NAME_CHARS_MAX
from protocol.suggestions import nearest

_USER_KEYS: Final = ("name", "mechanism", "password", "acls")
_ACL_KEYS: Final = ("operation", "resource_type", "name", "pattern", "permission", "host")
Word = TypeVar("Word", bound=IntEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapUser:
    """One of the first users."""

    name: str
    mechanism: ScramMechanism
    password: str = field(repr=False)
    password_file: Path | None = None
    """The file that the password comes from."""
    acls: tuple[Acl, ...] = ()


def read_bootstrap_users(path: Path) -> tuple[BootstrapUser, ...]:
    """The users of a file. Raises `InvalidSettings`, whose message shows no password."""
    where = f"--bootstrap-users {path}"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSettings(f"{where} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidSettings(f"{where} is not UTF-8") from error
    except tomllib.TOMLDecodeError:
        # The error may quote the line, and with it a password.
        raise InvalidSettings(f"{where} is not TOML") from None
    rows = table.get("users")
    if set(table) != {"users"} or not isinstance(rows, list) or not rows:
        raise InvalidSettings(f"{where}: write a [[users]] table for each user, and nothing else")
    users = tuple(_user(f"{where}: user {number}", row, path.parent) for number, row in enumerate(rows, start=1))
    names = [(user.name, user.mechanism) for user in users]
    for user in users:
        if names.count((user.name, user.mechanism)) > 1:
            raise InvalidSettings(f"{where}: {user.name} is there twice with the same mechanism")
    return users


def _user(where: str, row: object, folder: Path) -> BootstrapUser:
    table = _table(where, row, _USER_KEYS)
    name = _text(where, table, "name")
    if len(name) > SASL_NAME_CHARS_MAX:
        raise InvalidSettings(f"{where}: a name has at most {SASL_NAME_CHARS_MAX} characters")
    mechanisms = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}
    mechanism = _text(where, table, "mechanism", ScramMechanism.SCRAM_SHA_512.sasl_name)
    if mechanism not in mechanisms:
        raise InvalidSettings(f"{where}: {mechanism!r} is none of {', '.join(mechanisms)}")
    value = table.get("password")
    path = _password_file(value, folder)
    return BootstrapUser(
        name=name,
        mechanism=mechanisms[mechanism],
        password=_password(where, value, path),
        password_file=path,
        acls=tuple(_acls(where, name, table.get("acls", []))),
    )


def _password_file(value: object, folder: Path) -> Path | None:
    if isinstance(value, dict) and set(value) == {"file"} and isinstance(value["file"], str):
        return folder / value["file"]
    return None


def _password(where: str, value: object, path: Path | None) -> str:
    if path is not None:
        try:
            value = path.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidSettings(f"{where}: password.file {path} cannot be read as UTF-8") from error
    if not isinstance(value, str) or not value:
        raise InvalidSettings(f'{where}: give it password = "..." or password.file = "PATH"')
    return value


def _acls(where: str, user: str, rows: object) -> Iterator[Acl]:
    if not isinstance(rows, list):
        raise InvalidSettings(f"{where}: acls is an array of tables")
    for row in rows:
        table = _table(f"{where}, its acls", row, _ACL_KEYS)
        acl = Acl(
            principal=Principal(USER, user),
            host=_text(where, table, "host", "*"),
            operation=_word(where, table, "operation", Operation),
            permission=_word(where, table, "permission", Permission, "ALLOW"),
            resource_type=_word(where, table, "resource_type", ResourceType),
            name=_text(where, table, "name"),
            pattern=_word(where, table, "pattern", PatternType, "LITERAL"),
        )
        try:
            check_acl(acl)
        except InvalidAcl as error:
            raise InvalidSettings(f"{where}: {error}") from error
        yield acl


def _table(where: str, row: object, keys: tuple[str, ...]) -> Mapping[str, object]:
    if not isinstance(row, dict):
        raise InvalidSettings(f"{where}: write a table with {', '.join(keys)}")
    for key in row:
        if key not in keys:
            raise InvalidSettings(f"{where}: {key!r} is none of {', '.join(keys)}{nearest(key, keys)}")
    return row


def _text(where: str, table: Mapping[str, object], key: str, default: str = "") -> str:
    value = table.get(key, default)
    if not isinstance(value, str) or not value:
        raise InvalidSettings(f"{where}: {key} has to be a text")
    return value


def _word(where: str, table: Mapping[str, object], key: str, words: type[Word], default: str = "") -> Word:
    text = _text(where, table, key, default).upper()
    names = [word.name for word in words]
    if text not in names:
        raise InvalidSettings(f"{where}: {key} {text!r} is none of {', '.join(names)}{nearest(text, names)}")
    return words[text]
