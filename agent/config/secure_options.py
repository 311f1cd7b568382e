"""`penstock run --secure`: the options that it stands for, and the files in the data folder that they name. Pure.

The listener is SASL_SSL, HTTP is HTTPS, and `User:admin` is the super user. The audit log is a file of bounded size.
Options that are given go before these.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.config.option_sources import InvalidSettings, Value
from protocol.limits import AUDIT_LOG_FILE_BYTES_SECURE

ADMIN: Final = "admin"
SASL_SSL: Final = "SASL_SSL"
_OTHER_MEANS: Final = ("tls-cert", "tls-key", "bootstrap-users", "insecure")
"""Options that say otherwise how the agent is protected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecureFiles:
    """The files that `--secure` keeps in the data folder. They are created at the first start."""

    data_dir: Path

    @property
    def authority(self) -> Path:
        """The certificate that clients trust."""
        return self.data_dir / "tls" / "ca.pem"

    @property
    def authority_key(self) -> Path:
        return self.data_dir / "tls" / "ca.key"

    @property
    def certificate(self) -> Path:
        return self.data_dir / "tls" / "server.pem"

    @property
    def key(self) -> Path:
        return self.data_dir / "tls" / "server.key"

    @property
    def password(self) -> Path:
        """The password of `User:admin`."""
        return self.data_dir / "admin.password"

    @property
    def audit_log(self) -> Path:
        return self.data_dir / "audit.log"

    @property
    def properties(self) -> Path:
        """The properties with which Kafka's tools connect."""
        return self.data_dir / "admin.properties"


def secure_values(values: Mapping[str, Value], files: SecureFiles, *, listen: str, http: str) -> dict[str, Value]:
    """The values of all options with those that `--secure` stands for. Raises `InvalidSettings`.

    `listen` and `http` are the addresses where none are given.
    """
    for name in _OTHER_MEANS:
        if values.get(name):
            raise InvalidSettings(f"--secure and --{name}: use one of them")
    addresses, http_text = values.get("listen", (listen,)), values.get("http", http)
    assert isinstance(addresses, tuple)
    assert isinstance(http_text, str)
    pairs = values.get("set", {})
    assert isinstance(pairs, Mapping)
    audit: Mapping[str, Value] = {"audit-log": str(files.audit_log), "audit-log-bytes": AUDIT_LOG_FILE_BYTES_SECURE}
    return {
        **({} if "audit-log" in values else audit),
        **values,
        "listen": tuple(_encrypted("listen", SASL_SSL, text) for text in addresses),
        "http": _encrypted("http", "https", http_text),
        "tls-cert": str(files.certificate),
        "tls-key": str(files.key),
        "set": {"super.users": f"User:{ADMIN}", **pairs},
    }


def _encrypted(option: str, scheme: str, text: str) -> str:
    given, separator, address = text.rpartition("://")
    if separator and given.upper() != scheme.upper():
        raise InvalidSettings(f"--{option} {text}: with --secure write {scheme}://{address}, or {address} alone")
    return f"{scheme}://{address}"
