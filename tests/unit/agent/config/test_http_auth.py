"""The options and the token file of the HTTP port, and names and addresses of this machine."""

from pathlib import Path

import pytest

from agent.config.http_auth import (
    TOKEN_PRINCIPAL,
    HttpAccess,
    HttpTokens,
    http_access,
    is_this_machine,
    read_tokens,
)
from agent.config.option_sources import InvalidSettings
from protocol.auth.principals import read_principal

TOKEN = "0123456789abcdef"
OTHER = "fedcba9876543210"


def test_a_token_has_a_principal() -> None:
    alice = read_principal("User:alice")
    tokens = HttpTokens.of(TOKEN) + HttpTokens.of(OTHER, principal=alice)
    assert [tokens.principal_of(each) for each in (TOKEN, OTHER, f"{TOKEN}x", "")] == [
        TOKEN_PRINCIPAL,
        alice,
        None,
        None,
    ]
    assert bool(tokens)
    assert not HttpTokens()


def test_a_line_may_name_the_user_of_its_token(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"User:alice {TOKEN}\n{OTHER}\n")
    tokens = read_tokens(path)
    assert str(tokens.principal_of(TOKEN)) == "User:alice"
    assert str(tokens.principal_of(OTHER)) == "User:token"


@pytest.mark.parametrize("name", ["alice", "Group:readers", "User:", "User:ANONYMOUS", "User:a b", "a:b"])
def test_only_users_have_tokens(tmp_path: Path, name: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"# {TOKEN}\n{name} {TOKEN}\n")
    with pytest.raises(InvalidSettings, match="line 2 is neither TOKEN nor User:NAME TOKEN") as error:
        read_tokens(path)
    assert TOKEN not in str(error.value)


@pytest.mark.parametrize("peer", ["::ffff:10.0.0.7", "10.0.0.7", "fe80::1", None, "a-name"])
def test_another_machine_is_not_this_one(peer: str | None) -> None:
    assert not is_this_machine(peer)


def test_tokens_are_not_shown() -> None:
    assert "principals" not in repr(HttpTokens.of(TOKEN))


def test_a_file_holds_a_token_a_line(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"# of spark\n{TOKEN}\n\n  {OTHER}  \r\n")
    assert read_tokens(path) == HttpTokens.of(TOKEN, OTHER)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no token"),
        ("# none\n", "has no token"),
        ("short", "line 1 is no token: write 16 to 512 letters"),
        (f"{TOKEN}\nhas spaces in between it\n", "line 2 is no token"),
        ("x" * 513, "line 1 is no token"),
        (f"User:ann {TOKEN}\nUser:ben {TOKEN}\n", "line 2 has the token of a line before"),
    ],
)
def test_a_file_without_good_tokens_stops_the_start(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(InvalidSettings, match=message):
        read_tokens(path)


def test_a_file_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=r"--http-token-file .*none cannot be read: No such file"):
        read_tokens(tmp_path / "none")


def test_options_say_who_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"{TOKEN}\n")
    access = http_access({"http-token-file": str(path), "metrics-open": True})
    assert access == HttpAccess(tokens=HttpTokens.of(TOKEN), token_file=path, is_metrics_open=True)
    assert http_access({}) == HttpAccess()
