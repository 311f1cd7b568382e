"""Which files with secrets the settings of an agent name."""

from pathlib import Path

import pytest

from agent.config.settings import CliCommand, Settings, load_settings
from tests.support.certificates import TestAuthority


def files_of(settings: Settings) -> dict[str, Path]:
    return {each.origin: each.path for each in settings.secret_files}


def test_an_agent_without_secrets_names_no_file() -> None:
    assert load_settings(CliCommand.RUN, {}, environment={}).secret_files == ()


def test_files_of_options_and_of_configs_are_named_by_them(tmp_path: Path) -> None:
    issued = TestAuthority(folder=tmp_path).issue("server")
    for name in ("key", "tokens", "users", "mac", "password", "jwks"):
        (tmp_path / name).write_bytes(b"k" * 32)
    values = {
        "listen": ["SASL_SSL://127.0.0.1:0"],
        "tls-cert": str(issued.cert),
        "tls-key": str(issued.key),
        "http-token-file": str(tmp_path / "tokens"),
        "plain-users": str(tmp_path / "users"),
        "set": [
            f"penstock.secret.key.file={tmp_path}/key",
            f"delegation.token.secret.key.file={tmp_path}/mac",
            f"listener.name.sasl_ssl.penstock.sni.a.example.key={issued.key.parent}/other.key",
            f"listener.name.sasl_ssl.penstock.sni.a.example.cert={issued.cert}",
            f"ssl.key.password.file={tmp_path}/password",
            f"ssl.truststore.location={issued.cert}",
        ],
    }
    assert files_of(load_settings(CliCommand.RUN, values, environment={})) == {
        "--tls-key": issued.key,
        "--http-token-file": tmp_path / "tokens",
        "--plain-users": tmp_path / "users",
        "penstock.secret.key.file": tmp_path / "key",
        "delegation.token.secret.key.file": tmp_path / "mac",
        "listener.name.sasl_ssl.penstock.sni.a.example.key": issued.key.parent / "other.key",
        "ssl.key.password.file": tmp_path / "password",
    }


def test_files_that_a_file_of_users_or_catalogs_names_are_there_too(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    (tmp_path / "password").write_text("secret")
    users, catalogs = tmp_path / "users.toml", tmp_path / "catalogs.toml"
    users.write_text('[[users]]\nname = "a"\npassword.file = "password"\n[[users]]\nname = "b"\npassword = "x"\n')
    catalogs.write_text(f'[c]\ntype = "sql"\nuri = {{ file = "{tmp_path}/uri" }}\n')
    (tmp_path / "uri").write_text("sqlite:///x\n")
    values = {"bootstrap-users": str(users), "external-catalogs": str(catalogs)}
    settings = load_settings(CliCommand.RUN, values, environment={})
    assert [(each.origin, each.path.name) for each in settings.secret_files] == [
        ("--bootstrap-users", "users.toml"),
        ("--external-catalogs", "catalogs.toml"),
        ("--bootstrap-users", "password"),
        ("--external-catalogs", "uri"),
    ]


@pytest.mark.parametrize("form", ['[set]\n"{}" = "x"\n', 'set = ["{}=x"]\n', 'set = "{}=x"\n'])
def test_the_file_of_options_is_named_where_it_has_a_secret_itself(tmp_path: Path, form: str) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text(form.format("delegation.token.secret.key"))
    assert files_of(load_settings(CliCommand.RUN, {}, environment={"PENSTOCK_CONFIG": str(config)})) == {
        "--config": config
    }
    config.write_text(form.format("num.partitions").replace("x", "2"))
    in_environment = {"PENSTOCK_CONFIG": str(config), "PENSTOCK_SET": "delegation.token.secret.key=x"}
    assert load_settings(CliCommand.RUN, {}, environment=in_environment).secret_files == ()


def test_secure_names_the_files_that_it_creates_and_the_ledger(tmp_path: Path) -> None:
    settings = load_settings(CliCommand.RUN, {"secure": True, "data-dir": str(tmp_path)}, environment={})
    assert {each.path.relative_to(tmp_path).as_posix() for each in settings.secret_files} == {
        "tls/server.key",
        "tls/ca.key",
        "admin.password",
        "admin.properties",
        "ledger.sqlite",
        "ledger.sqlite.upgraded",
        "journal",
    }
