"""Who is answered at the HTTP port."""

from pathlib import Path

import pytest

from agent.config.http_auth import HttpAccess, HttpTokens, http_access, is_this_machine, read_tokens
from agent.config.option_sources import InvalidSettings

TOKEN = "0123456789abcdef"
OTHER = "fedcba9876543210"
HERE = {"host": "127.0.0.1:9644"}


def status(tokens: HttpTokens, peer: str | None, headers: dict[str, str]) -> int:
    rejection = tokens.rejection(peer, headers)
    return 200 if rejection is None else rejection.status


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize("host", ["localhost:9644", "LOCALHOST", "127.0.0.1", "[::1]:9644", "127.0.1.1:1"])
def test_without_tokens_this_machine_may_ask(peer: str, host: str) -> None:
    assert status(HttpTokens(), peer, {"host": host}) == 200


@pytest.mark.parametrize(
    "peer", ["10.0.0.7", "192.168.1.1", "fe80::1", "::ffff:10.0.0.7", "0.0.0.0", "", "a-name", None]
)
def test_without_tokens_nobody_else_may(peer: str | None) -> None:
    assert status(HttpTokens(), peer, HERE) == 403
    assert status(HttpTokens(), peer, {**HERE, "authorization": f"Bearer {TOKEN}"}) == 403
    assert not is_this_machine(peer)


@pytest.mark.parametrize("header", ["forwarded", "x-forwarded-for", "x-real-ip"])
def test_what_a_proxy_on_this_machine_passes_on_comes_from_elsewhere(header: str) -> None:
    assert status(HttpTokens(), "127.0.0.1", {**HERE, header: "127.0.0.1"}) == 403


@pytest.mark.parametrize("host", ["", "evil.example", "localhost.evil.example", "10.0.0.7:9644", "[::2]", "[", ":9644"])
def test_a_name_that_somebody_else_gave_this_machine_is_refused(host: str) -> None:
    assert status(HttpTokens(), "127.0.0.1", {"host": host} if host else {}) == 403


@pytest.mark.parametrize("peer", ["127.0.0.1", "10.0.0.7", None])
def test_with_tokens_everybody_shows_one(peer: str | None) -> None:
    tokens = HttpTokens.of(TOKEN, OTHER)
    assert status(tokens, peer, HERE) == 401
    assert status(tokens, peer, {"authorization": f"Bearer {TOKEN}"}) == 200
    assert status(tokens, peer, {"authorization": f"bearer {OTHER}", "x-forwarded-for": "10.0.0.9"}) == 200


@pytest.mark.parametrize(
    "authorization",
    ["", TOKEN, f"Basic {TOKEN}", "Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer \xff"],
)
def test_what_is_no_token_of_theirs_is_refused(authorization: str) -> None:
    assert status(HttpTokens.of(TOKEN), "127.0.0.1", {**HERE, "authorization": authorization}) == 401


def test_tokens_are_not_shown() -> None:
    assert "digests" not in repr(HttpTokens.of(TOKEN))


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


@pytest.mark.parametrize(
    ("host", "answer"),
    [("broker.lan:9644", 200), ("broker.lan.:9644", 200), ("localhost.", 200), ("10.0.0.7:9644", 403), ("x.lan", 403)],
)
def test_this_machines_own_names_may_be_used_but_addresses_of_others_not(host: str, answer: int) -> None:
    """A sidecar passes on requests from elsewhere over loopback, with the pod's address as the name."""
    rejection = HttpTokens().rejection("127.0.0.1", {"host": host}, {"broker.lan", "10.0.0.7"})
    assert (200 if rejection is None else rejection.status) == answer
