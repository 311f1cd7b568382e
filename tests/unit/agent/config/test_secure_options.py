"""The options that `--secure` stands for."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from agent.config.option_sources import InvalidSettings, Value
from agent.config.secure_options import SecureFiles, secure_values
from protocol.limits import AUDIT_LOG_FILE_BYTES_SECURE

FILES = SecureFiles(data_dir=Path("/data"))


def secured(values: Mapping[str, Value]) -> Mapping[str, Value]:
    return secure_values(values, FILES, listen="127.0.0.1:9092", http="127.0.0.1:9644")


def test_the_addresses_encrypt_and_admin_is_the_super_user() -> None:
    assert secured({}) == {
        "audit-log": "/data/audit.log",
        "audit-log-bytes": AUDIT_LOG_FILE_BYTES_SECURE,
        "listen": ("SASL_SSL://127.0.0.1:9092",),
        "http": "https://127.0.0.1:9644",
        "tls-cert": "/data/tls/server.pem",
        "tls-key": "/data/tls/server.key",
        "set": {"super.users": "User:admin"},
    }


def test_given_addresses_and_configs_stay() -> None:
    values = secured(
        {
            "listen": (":9092",),
            "http": "https://0.0.0.0:443",
            "set": {"super.users": "User:root", "num.partitions": "3"},
        }
    )
    assert values["listen"] == ("SASL_SSL://:9092",)
    assert values["http"] == "https://0.0.0.0:443"
    assert values["set"] == {"super.users": "User:root", "num.partitions": "3"}


@pytest.mark.parametrize("target", ["none", "stderr", "topic", "/var/log/audit.log"])
def test_another_audit_log_is_not_bounded(target: str) -> None:
    values = secured({"audit-log": target})
    assert (values["audit-log"], values.get("audit-log-bytes")) == (target, None)


@pytest.mark.parametrize("name", ["tls-cert", "tls-key", "bootstrap-users"])
def test_other_means_of_protection_are_rejected(name: str) -> None:
    with pytest.raises(InvalidSettings, match=f"--secure and --{name}"):
        secured({name: "file"})


def test_so_is_insecure() -> None:
    with pytest.raises(InvalidSettings, match="--secure and --insecure"):
        secured({"insecure": True})


@pytest.mark.parametrize("values", [{"listen": ("PLAINTEXT://127.0.0.1:9092",)}, {"http": "http://127.0.0.1:9644"}])
def test_an_address_that_does_not_encrypt_is_rejected(values: Mapping[str, Value]) -> None:
    with pytest.raises(InvalidSettings, match="with --secure write"):
        secured(values)
