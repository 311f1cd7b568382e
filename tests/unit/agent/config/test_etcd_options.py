"""How an agent gets into etcd: what options mean together, and what is found wrong at the start."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import trustme

from agent.config.etcd_options import LedgerAccess
from agent.config.settings import CliCommand, InvalidSettings, Settings, load_settings

URL = "etcd://127.0.0.1:2379/c"


def load(
    given: Mapping[str, str] | None = None, *, url: str = URL, environment: Mapping[str, str] | None = None
) -> Settings:
    options = {"ledger": url, "store": "memory:", **(given or {})}
    return load_settings(CliCommand.AGENT, options, environment=environment or {})


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """A certificate authority, and a certificate of it with its key, as the options name them."""
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    paths = {name: tmp_path / f"{name}.pem" for name in ("ledger-ca", "ledger-cert", "ledger-key")}
    authority.cert_pem.write_to_path(paths["ledger-ca"])
    issued.cert_chain_pems[0].write_to_path(paths["ledger-cert"])
    issued.private_key_pem.write_to_path(paths["ledger-key"])
    return {name: str(path) for name, path in paths.items()}


def test_etcd_without_more_is_plain() -> None:
    assert load().ledger_access == LedgerAccess()


def test_the_scheme_asks_for_tls() -> None:
    assert load(url="etcds://127.0.0.1:2379/c").ledger_access == LedgerAccess(is_tls=True)


def test_certificates_ask_for_tls(files: dict[str, str]) -> None:
    access = load(files).ledger_access
    assert access.is_tls
    assert [str(path) for path in (access.ca, access.cert, access.key)] == list(files.values())
    assert load({"ledger-ca": files["ledger-ca"]}).ledger_access.is_tls


def test_the_password_comes_from_a_file_or_from_the_environment_and_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("s3cret\nanything\n")
    settings = load({"ledger-user": "penstock", "ledger-password-file": str(file)})
    assert (settings.ledger_access.user, settings.ledger_access.password) == ("penstock", "s3cret")
    assert "s3cret" not in repr(settings)
    given = load({"ledger-user": "penstock"}, environment={"PENSTOCK_LEDGER_PASSWORD": "pässword"})
    assert given.ledger_access.password == "pässword"


def test_what_concerns_its_disk() -> None:
    access = load_settings(
        CliCommand.AGENT,
        {"ledger": URL, "store": "memory:", "etcd-compaction": False, "ledger-quota-bytes": "8GiB"},
        environment={},
    ).ledger_access
    assert (access.is_compacted, access.quota_bytes) == (False, 8 << 30)


@pytest.mark.parametrize("option", ["ledger-ca", "ledger-cert", "ledger-key", "ledger-password-file"])
def test_a_file_that_is_not_there_is_named_with_its_option(files: dict[str, str], option: str, tmp_path: Path) -> None:
    given = {**files, "ledger-user": "u", option: str(tmp_path / "missing")}
    with pytest.raises(InvalidSettings, match=f"--{option} .*missing cannot be read: No such file"):
        load(given, environment={"PENSTOCK_LEDGER_PASSWORD": "x"} if option != "ledger-password-file" else {})


def test_a_file_that_is_no_certificate(files: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "note").write_text("hello")
    with pytest.raises(InvalidSettings, match=r"--ledger-ca .*note has no certificate"):
        load({"ledger-ca": str(tmp_path / "note")})
    with pytest.raises(InvalidSettings, match="are not a certificate and its key"):
        load({**files, "ledger-cert": str(tmp_path / "note")})


def test_a_key_of_another_certificate(files: dict[str, str], tmp_path: Path) -> None:
    trustme.CA().issue_cert("localhost").private_key_pem.write_to_path(tmp_path / "other")
    with pytest.raises(InvalidSettings, match=r"are not a certificate and its key.*mismatch"):
        load({**files, "ledger-key": str(tmp_path / "other")})


@pytest.mark.parametrize(("given", "missing"), [("ledger-cert", "--ledger-key"), ("ledger-key", "--ledger-cert")])
def test_half_a_client_certificate(files: dict[str, str], given: str, missing: str) -> None:
    with pytest.raises(InvalidSettings, match=f"needs {missing}"):
        load({given: files[given]})


def test_a_user_needs_a_password_and_a_password_a_user(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="--ledger-user needs a password"):
        load({"ledger-user": "penstock"})
    with pytest.raises(InvalidSettings, match="a password for the ledger needs --ledger-user"):
        load(environment={"PENSTOCK_LEDGER_PASSWORD": "x"})
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(InvalidSettings, match="its first line is the password"):
        load({"ledger-user": "penstock", "ledger-password-file": str(tmp_path / "empty")})
    (tmp_path / "given").write_text("x")
    with pytest.raises(InvalidSettings, match="both set"):
        load(
            {"ledger-user": "penstock", "ledger-password-file": str(tmp_path / "given")},
            environment={"PENSTOCK_LEDGER_PASSWORD": "x"},
        )


def test_other_ledgers_take_none_of_it() -> None:
    with pytest.raises(InvalidSettings, match="--ledger-user needs a ledger in etcd"):
        load({"ledger-user": "penstock"}, url="memory:")
    with pytest.raises(InvalidSettings, match="ledger-user is an option of penstock agent"):
        load_settings(CliCommand.RUN, {}, environment={"PENSTOCK_LEDGER_USER": "penstock"})
