"""The files with secrets that the settings of an agent name: keys, passwords, tokens and users. No file is read here,
but the one of `--config` where a config with a secret is set.

In: the values of options, and all broker configs that are set. Out: `SecretFile`s. `agent.security.file_modes` judges
who may read them.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.config.bootstrap_users import BootstrapUser
from agent.config.external_catalog_settings import ExternalCatalogSettings
from agent.config.option_sources import Value
from agent.config.secret_key import NAME as SECRET_KEY
from agent.config.secure_options import SecureFiles

_OPTIONS: Final = (
    "tls-key",
    "http-token-file",
    "bootstrap-users",
    "plain-users",
    "ledger-key",
    "ledger-password-file",
    "external-catalogs",
)
"""The options that name a file with secrets."""
_KEYSTORE: Final = "ssl.keystore.location"
_KEY_FILE: Final = "ssl.keystore.key.file"
"""Where it is set, the keystore has certificates alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretFile:
    """One file with secrets. `path` is absolute; the file need not be there."""

    origin: str
    """The option or config that names it."""
    path: Path


def secret_files(
    values: Mapping[str, Value],
    pairs: Mapping[str, str],
    *,
    config_path: str | None = None,
    users: Iterable[BootstrapUser] = (),
    catalogs: Iterable[ExternalCatalogSettings] = (),
    secure: SecureFiles | None = None,
) -> tuple[SecretFile, ...]:
    """The files, each once, named by the first setting that names it.

    Args:
        values: the values of options.
        pairs: all broker configs that are set, with secrets.
        config_path: the TOML file of options; it is a secret where it has the text of one.
        users, catalogs: what the files of `--bootstrap-users` and `--external-catalogs` say; they may name files, too.
        secure: the files of `--secure`.
    """
    settings_and_paths = [
        *((f"--{name}", str(values[name])) for name in _OPTIONS if values.get(name)),
        *_of_configs(pairs),
        *(("--bootstrap-users", str(user.password_file)) for user in users if user.password_file is not None),
        *(("--external-catalogs", str(path)) for catalog in catalogs for path in catalog.secret_files),
        *(("--secure", str(path)) for path in _of_secure(secure)),
        *([("--config", config_path)] if config_path and _has_secret(config_path, pairs) else []),
    ]
    by_path: dict[Path, str] = {}
    for origin, text in settings_and_paths:
        by_path.setdefault(Path(text).expanduser().absolute(), origin)
    return tuple(SecretFile(origin=origin, path=path) for path, origin in by_path.items())


def _of_configs(pairs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The configs whose value is the path of a file with secrets, each with the path."""
    if not pairs:
        return
    # Late: importing the room takes time.
    from coordinator.configs.oauth_configs import JWKS_TOKEN_FILE, without_prefix
    from coordinator.configs.security_configs import FILE_SUFFIX, is_secret, listener_config, sni_config

    for name, value in pairs.items():
        own = listener_config(name)
        plain = name if own is None else without_prefix(own[1])
        sni = sni_config(plain)
        has_key = plain == _KEYSTORE and name.replace(_KEYSTORE, _KEY_FILE) not in pairs
        is_named = has_key or plain in (SECRET_KEY, JWKS_TOKEN_FILE) or (sni is not None and sni[1] == "key")
        if (is_named or (name.endswith(FILE_SUFFIX) and is_secret(name.removesuffix(FILE_SUFFIX)))) and value.strip():
            yield name, value.strip()


def _of_secure(files: SecureFiles | None) -> tuple[Path, ...]:
    """The ledger is among them: it has keys of users, and a data folder that was there before may be open to all."""
    if files is None:
        return ()
    # One in SQLite, one that was taken over, and the folder of a journal.
    ledgers = (files.data_dir / name for name in ("ledger.sqlite", "ledger.sqlite.upgraded", "journal"))
    return files.password, files.properties, files.authority_key, files.key, *ledgers


def _has_secret(config_path: str, pairs: Mapping[str, str]) -> bool:
    """Whether the TOML file has the text of a secret. It was read before, so that it is known to be TOML."""
    if not pairs:
        return False
    from coordinator.configs.security_configs import is_secret  # late: importing the room takes time

    if not any(is_secret(name) for name in pairs):
        return False
    value = tomllib.loads(Path(config_path).read_text(encoding="utf-8")).get("set", {})
    names = value if isinstance(value, list | dict) else [value]  # a table, an array of NAME=VALUE, or one of them
    return any(is_secret(str(name).partition("=")[0].strip()) for name in names)
