"""The file of a cluster's first users."""

from pathlib import Path

import pytest

from agent.config.bootstrap_users import BootstrapUser, read_bootstrap_users
from agent.config.option_sources import InvalidSettings
from coordinator.security.acls import Acl
from protocol.auth.operations import Operation, PatternType, Permission, ResourceType
from protocol.auth.principals import Principal
from protocol.auth.scram_credentials import ScramMechanism

ACL = (
    'operation = "read", resource_type = "topic", name = "orders", '
    'pattern = "prefixed", permission = "deny", host = "h"'
)


def read(folder: Path, text: str) -> tuple[BootstrapUser, ...]:
    path = folder / "users.toml"
    path.write_text(text)
    return read_bootstrap_users(path)


def test_users_have_a_password_a_mechanism_and_acls(tmp_path: Path) -> None:
    (tmp_path / "bob.password").write_text("from a file\n")
    text = f"""
        [[users]]
        name = "alice"
        password = "secret"
        mechanism = "SCRAM-SHA-256"
        acls = [{{{ACL}}}, {{operation = "ALL", resource_type = "CLUSTER", name = "kafka-cluster"}}]
        [[users]]
        name = "bob"
        password.file = "bob.password"
    """
    alice, bob = read(tmp_path, text)
    assert (alice.name, alice.mechanism, alice.password) == ("alice", ScramMechanism.SCRAM_SHA_256, "secret")
    assert alice.acls[0] == Acl(
        principal=Principal("User", "alice"),
        host="h",
        operation=Operation.READ,
        permission=Permission.DENY,
        resource_type=ResourceType.TOPIC,
        name="orders",
        pattern=PatternType.PREFIXED,
    )
    assert (alice.acls[1].host, alice.acls[1].permission) == ("*", Permission.ALLOW)
    assert (bob.mechanism, bob.password, bob.acls) == (ScramMechanism.SCRAM_SHA_512, "from a file", ())


def test_a_user_shows_no_password(tmp_path: Path) -> None:
    assert "secret" not in repr(read(tmp_path, '[[users]]\nname = "a"\npassword = "secret"'))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"write a \[\[users\]\] table"),
        ("users = []", r"write a \[\[users\]\] table"),
        ("users = [1]", "user 1: write a table with name"),
        ("[[users]]\n[other]", r"write a \[\[users\]\] table"),
        ("[[users]]\nname = 'secret' 'x'", "is not TOML"),
        ("[[users]]\nnames = 'a'", "'names' is none of name, mechanism"),
        ("[[users]]\nname = ''", "name has to be a text"),
        ("[[users]]\nname = 5", "name has to be a text"),
        ("[[users]]\nname = '" + "a" * 2_000 + "'", "at most 1024 characters"),
        ("[[users]]\nname = 'a'", "give it password"),
        ("[[users]]\nname = 'a'\npassword = ''", "give it password"),
        ("[[users]]\nname = 'a'\npassword.file = 'missing'", "cannot be read"),
        ("[[users]]\nname = 'a'\npassword = 'secret'\nmechanism = 'PLAIN'", "'PLAIN' is none of SCRAM-SHA-256"),
        ("[[users]]\nname = 'a'\npassword = 'secret'\nacls = 5", "acls is an array"),
        ("[[users]]\nname = 'a'\npassword = 'secret'\nacls = [{operation = 'eat'}]", "operation 'EAT' is none of"),
        (
            "[[users]]\nname = 'a'\npassword = 'secret'\n"
            "acls = [{operation = 'ANY', resource_type = 'TOPIC', name = 't'}]",
            "Invalid operation ANY",
        ),
        ("[[users]]\nname = 'a'\npassword = 'secret'\n" * 2, "a is there twice"),
    ],
)
def test_a_wrong_file_is_explained_and_not_shown(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidSettings, match=message) as error:
        read(tmp_path, text)
    assert "secret" not in str(error.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="cannot be read"):
        read_bootstrap_users(tmp_path / "missing.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    with pytest.raises(InvalidSettings, match="is not UTF-8"):
        read_bootstrap_users(tmp_path / "bytes.toml")
