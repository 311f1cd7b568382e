"""Where recover and audit find ledger and bucket: flags, environment, a file, and how one gets into etcd."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from agent.cli.failure import CommandFailed
from agent.cli.places import PLACE_OPTIONS, is_cluster_named, place_settings
from agent.config.addresses import JournalUrl, read_ledger_url

LEDGER, STORE = "etcds://127.0.0.1:2379/c", "memory:"
NOTHING: Mapping[str, object] = dict.fromkeys(PLACE_OPTIONS | {"data-dir"})


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PENSTOCK_LEDGER", "PENSTOCK_STORE", "PENSTOCK_DATA_DIR", "PENSTOCK_CONFIG"):
        monkeypatch.delenv(name, raising=False)


def test_every_option_of_a_ledger_and_its_bucket_is_there() -> None:
    assert sorted(PLACE_OPTIONS) == [
        "etcd-compaction",
        "ledger",
        "ledger-ca",
        "ledger-cert",
        "ledger-key",
        "ledger-password-file",
        "ledger-quota-bytes",
        "ledger-user",
        "store",
        "store-timeout-s",
    ]


def test_flags_say_how_one_gets_into_etcd(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret\n")
    flags = {"ledger": LEDGER, "store": STORE, "ledger-user": "me", "ledger-password-file": str(password)}
    settings = place_settings({**NOTHING, **flags, "store-timeout-s": "7"}, None)
    access = settings.ledger_access
    assert (access.is_tls, access.user, access.password) == (True, "me", "secret")
    assert settings.store_timeout_s == 7


def test_flags_go_before_the_environment_and_that_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "agent.toml"
    config.write_text('ledger = "etcd://a:1/file"\nstore = "memory:"\n')
    assert place_settings(NOTHING, str(config)).ledger_url == "etcd://a:1/file"
    assert not is_cluster_named(NOTHING)
    monkeypatch.setenv("PENSTOCK_LEDGER", "etcd://a:1/variable")
    assert is_cluster_named(NOTHING)
    assert place_settings(NOTHING, str(config)).ledger_url == "etcd://a:1/variable"
    flagged = {**NOTHING, "ledger": "etcd://a:1/flag"}
    assert is_cluster_named(flagged)
    assert place_settings(flagged, str(config)).ledger_url == "etcd://a:1/flag"


def test_a_folder_of_penstock_run_stands_for_both(tmp_path: Path) -> None:
    settings = place_settings({**NOTHING, "data-dir": str(tmp_path)}, None)
    assert read_ledger_url(settings.ledger_url) == JournalUrl(path=f"{tmp_path}/journal")
    assert settings.store_url == f"file://{tmp_path}/store"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({}, "name the cluster: --ledger and --store, or --data-dir"),
        ({"store": STORE}, "name the cluster"),
        ({"ledger": LEDGER}, "needs --store"),
        ({"ledger": LEDGER, "store": STORE, "data-dir": "d"}, "name two clusters"),
        ({"ledger": LEDGER, "store": STORE, "ledger-user": "me"}, "needs a password"),
        ({"ledger": "sqlite:///x", "store": STORE, "ledger-user": "me"}, "needs a ledger in etcd"),
    ],
)
def test_what_does_not_go_together_is_refused(flags: dict[str, object], message: str) -> None:
    with pytest.raises(CommandFailed, match=message) as failed:
        place_settings({**NOTHING, **flags}, None)
    assert failed.value.exit_code == 2
