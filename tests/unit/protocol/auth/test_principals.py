"""Principals are read and written as Kafka does it (SecurityUtils.parseKafkaPrincipal)."""

import pytest

from protocol.auth.principals import ANONYMOUS, InvalidPrincipal, Principal, read_principal


@pytest.mark.parametrize("text", ["User:alice", "User:CN=a,O=b", "User:a:b", "Group:", "User:*"])
def test_what_is_read_is_written_the_same(text: str) -> None:
    assert str(read_principal(text)) == text


def test_case_counts() -> None:
    assert read_principal("User:a") != read_principal("User:A")
    assert read_principal("User:a") != read_principal("user:a")


@pytest.mark.parametrize("text", ["", "alice", ":alice"])
def test_what_has_no_type_is_rejected_with_the_right_form(text: str) -> None:
    with pytest.raises(InvalidPrincipal, match="User:alice"):
        read_principal(text)


def test_anonymous_is_a_user() -> None:
    assert Principal("User", "ANONYMOUS") == ANONYMOUS
