"""The file of users for PLAIN."""

from pathlib import Path

import pytest

from agent.config.option_sources import InvalidSettings
from agent.security.plain_users import PlainUsers, plain_user_line, read_plain_users
from protocol.auth.scram_credentials import ScramMechanism
from protocol.auth.scram_keys import is_password_of
from protocol.limits import PLAIN_USERS_BYTES_MAX
from tests.support.auth.plain_users import plain_user


def test_each_line_is_a_user_with_a_verifier() -> None:
    text = f"# users\n\n{plain_user('a:b', 'x')}\n{plain_user('bob', 'y', ScramMechanism.SCRAM_SHA_256)}\n"
    users = read_plain_users(text.encode(), "users")
    assert set(users) == {"a:b", "bob"}
    mechanism, credential = users["a:b"]
    assert is_password_of(credential, "x", mechanism)
    assert users["bob"][0] is ScramMechanism.SCRAM_SHA_256


def test_a_line_is_written_as_it_is_read() -> None:
    line = plain_user("a:b", "x", ScramMechanism.SCRAM_SHA_256)
    mechanism, credential = read_plain_users(line.encode(), "users")["a:b"]
    assert plain_user_line("a:b", mechanism, credential) == line


@pytest.mark.parametrize(
    "text",
    [
        "bob",
        "bob:secret",
        ":" + plain_user("", "x")[1:],
        plain_user("bob", "x").replace("$10:", "$0:"),
        plain_user("bob", "x").replace("$10:", "$:"),
        plain_user("bob", "x").replace("SHA-512", "SHA-256"),
        plain_user("bob", "x").replace("SHA-512", "SHA-1"),
        plain_user("bob", "x")[:-5],
        plain_user("bob", "x").replace("$10:", "$10:*"),
    ],
)
def test_a_line_of_another_form_is_named_and_not_shown(text: str) -> None:
    with pytest.raises(InvalidSettings, match="line 2 is not NAME:SCRAM-SHA-512") as error:
        read_plain_users(f"# users\n{text}\n".encode(), "users")
    assert "secret" not in str(error.value)


def test_a_user_may_be_there_once() -> None:
    with pytest.raises(InvalidSettings, match="line 2 has a user that an earlier line has"):
        read_plain_users(f"{plain_user('bob', 'x')}\n{plain_user('bob', 'y')}".encode(), "users")


def test_other_bytes_than_text_are_rejected() -> None:
    with pytest.raises(InvalidSettings, match="is not UTF-8"):
        read_plain_users(b"\xff", "users")


def test_a_file_that_is_not_there_or_too_large_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="cannot be read"):
        PlainUsers(tmp_path / "users")
    (tmp_path / "users").write_bytes(b"#" * (PLAIN_USERS_BYTES_MAX + 1))
    with pytest.raises(InvalidSettings, match="larger"):
        PlainUsers(tmp_path / "users")


def test_a_changed_file_is_read_again_and_a_wrong_one_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "users"
    path.write_text(plain_user("bob", "x"))
    users = PlainUsers(path)
    assert not users.reload()
    path.write_text(plain_user("eve", "x"))
    assert users.reload()
    assert users.credential("bob") is None
    assert users.credential("eve") is not None
    path.write_text("nonsense")
    assert not users.reload()
    assert users.credential("eve") is not None
    assert "stay as they were" in caplog.text
