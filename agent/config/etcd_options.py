"""The agent's access to the cluster's etcd: TLS, client certificate, user and password.

Every fault that shows without a request to etcd is found here, at the start: files that are missing, are not PEM, or do
not belong together. A password comes from a file or from the environment, as every user of the machine can see a
command line.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.config.addresses import EtcdUrl, read_ledger_url
from agent.config.option_sources import LEDGER_PASSWORD_VARIABLE, InvalidSettings, Value

_ETCD_OPTIONS = (
    "ledger-ca",
    "ledger-cert",
    "ledger-key",
    "ledger-user",
    "ledger-password-file",
    "etcd-compaction",
    "ledger-quota-bytes",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerAccess:
    """The access to etcd. Paths are absolute. Without a `ca` gRPC's list of public authorities is used."""

    is_tls: bool = False
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    user: str | None = None
    password: str = field(default="", repr=False)
    is_compacted: bool = True
    """Whether agents compact etcd's history behind the trimmed ledger (safety rule S10)."""
    quota_bytes: int | None = None
    """etcd's quota, for versions that do not report it."""


def ledger_access(ledger_url: str, values: Mapping[str, Value], environment: Mapping[str, str]) -> LedgerAccess:
    """The access that options and environment describe. Raises `InvalidSettings`."""
    url = read_ledger_url(ledger_url)
    if not isinstance(url, EtcdUrl):
        for name in _ETCD_OPTIONS:
            if name in values:
                raise InvalidSettings(f"--{name} needs a ledger in etcd, and --ledger is {ledger_url}")
        return LedgerAccess()
    ca, cert, key = (_path(values, name) for name in ("ledger-ca", "ledger-cert", "ledger-key"))
    _check_certificates(ca, cert, key)
    user = _text(values, "ledger-user")
    quota_bytes = values.get("ledger-quota-bytes")
    assert quota_bytes is None or isinstance(quota_bytes, int)
    return LedgerAccess(
        is_tls=url.is_tls or ca is not None or cert is not None,
        ca=ca,
        cert=cert,
        key=key,
        user=user,
        password=_password(user, _path(values, "ledger-password-file"), environment.get(LEDGER_PASSWORD_VARIABLE)),
        is_compacted=bool(values.get("etcd-compaction", True)),
        quota_bytes=quota_bytes,
    )


def _check_certificates(ca: Path | None, cert: Path | None, key: Path | None) -> None:
    if (cert is None) != (key is None):
        present, missing = ("ledger-cert", "ledger-key") if key is None else ("ledger-key", "ledger-cert")
        raise InvalidSettings(f"--{present} needs --{missing}: TLS needs the client certificate and its key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca is not None:
        _readable("ledger-ca", ca)
        try:
            context.load_verify_locations(ca)
        except ssl.SSLError as error:
            raise InvalidSettings(f"--ledger-ca {ca} has no certificate in PEM") from error
    if cert is not None and key is not None:
        _readable("ledger-cert", cert)
        _readable("ledger-key", key)
        try:
            context.load_cert_chain(cert, key, password="")
        except (ssl.SSLError, ValueError) as error:
            raise InvalidSettings(
                f"--ledger-cert {cert} and --ledger-key {key} are not a certificate and its key: both have to be PEM, "
                f"and the key unencrypted ({error})"
            ) from error


def _password(user: str | None, path: Path | None, in_environment: str | None) -> str:
    if path is not None and in_environment is not None:
        raise InvalidSettings(f"--ledger-password-file and {LEDGER_PASSWORD_VARIABLE} are both set: remove one of them")
    password = in_environment if path is None else _read_password(path)
    if (user is None) != (password is None):
        needs = f"a password: --ledger-password-file or {LEDGER_PASSWORD_VARIABLE}" if user else "--ledger-user"
        raise InvalidSettings(f"{'--ledger-user' if user else 'a password for the ledger'} needs {needs}")
    return password or ""


def _read_password(path: Path) -> str:
    """The file's first line."""
    _readable("ledger-password-file", path)
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    if not lines or not lines[0]:
        raise InvalidSettings(f"--ledger-password-file {path}: its first line is the password, and it is empty")
    return lines[0]


def _readable(option: str, path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise InvalidSettings(f"--{option} {path} cannot be read: {error.strerror}") from error


def _path(values: Mapping[str, Value], name: str) -> Path | None:
    text = _text(values, name)
    return None if text is None else Path(text).expanduser().absolute()


def _text(values: Mapping[str, Value], name: str) -> str | None:
    value = values.get(name)
    assert value is None or isinstance(value, str)
    return value
