"""Secrets of the configuration: read from a text or a file, and never shown."""

from pathlib import Path

import pytest

from agent.config.option_sources import InvalidSettings, gather
from agent.config.secret_values import Secret


def test_a_secret_is_a_text_or_a_files_text(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(" hush \r\n", encoding="utf-8")
    assert Secret(name="ssl.key.password", text="hush").read() == "hush"
    assert Secret(name="ssl.key.password", path=path).read() == " hush "


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=r"ssl.key.password.file=.*cannot be read"):
        Secret(name="ssl.key.password", path=tmp_path / "none").read()
    (tmp_path / "latin").write_bytes(b"\xff")
    with pytest.raises(InvalidSettings, match="is not UTF-8"):
        Secret(name="ssl.key.password", path=tmp_path / "latin").read()


def test_repr_does_not_show_it() -> None:
    assert "hush" not in repr(Secret(name="ssl.key.password", text="hush"))


def test_a_command_line_must_not_have_one(tmp_path: Path) -> None:
    for name in ("ssl.key.password", "listener.name.a.ssl.keystore.key"):
        with pytest.raises(InvalidSettings, match=rf"--set {name}: every user.*set {name}.file=PATH") as rejection:
            gather({"set": [f"{name}=hush"]}, {}, None)
        assert "hush" not in str(rejection.value)
    config = tmp_path / "penstock.toml"
    config.write_text('[set]\n"ssl.key.password" = "hush"\n', encoding="utf-8")
    assert gather({}, {}, str(config))["set"] == {"ssl.key.password": "hush"}
    assert gather({}, {"PENSTOCK_SET": "ssl.key.password=hush"}, None)["set"] == {"ssl.key.password": "hush"}
    assert gather({"set": ["ssl.key.password.file=/f"]}, {}, None)["set"] == {"ssl.key.password.file": "/f"}
