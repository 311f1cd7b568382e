"""Passwords over HTTP are those of the cluster's users, and hold as long as their credentials do."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from agent.security.connections.failure_delays import FailureDelays
from agent.security.password_checks import PasswordChecks
from agent.security.plain_users import PlainUsers
from agent.security.scram_accounts import ScramAccounts
from agent.security.user_passwords import UserPasswords
from protocol.limits import AUTHENTICATION_FAILURES_MAX, HTTP_FAILED_LOGIN_SECONDS
from tests.support.agent.ledger_parts import ManualClock
from tests.support.auth.login_server import ALICE, PASSWORD, UserCredentials, credential
from tests.support.auth.plain_users import plain_user


async def no_barrier() -> None:
    """Nothing is in the ledger that is not applied."""


def passwords_of(
    credentials: UserCredentials,
    plain_users: PlainUsers | None = None,
    before_login: Callable[[], Awaitable[None]] = no_barrier,
) -> UserPasswords:
    checks = PasswordChecks(ScramAccounts(credentials.source, decoy_secret=b"secret"), plain_users)
    return UserPasswords(
        passwords=checks,
        source=credentials.source,
        plain_users=plain_users,
        failures=FailureDelays(),
        before_login=before_login,
        clock=ManualClock(),
    )


async def test_a_right_password_holds_until_its_credential_changes() -> None:
    credentials = UserCredentials()
    is_current = await passwords_of(credentials).is_current("alice", PASSWORD)
    assert is_current is not None
    assert is_current()
    credentials.set(ALICE, credential("newer", ALICE[1]))
    assert not is_current()
    credentials.set(ALICE, None)
    assert not is_current()


async def test_a_wrong_password_and_an_unknown_user_are_none() -> None:
    passwords = passwords_of(UserCredentials())
    assert await passwords.is_current("alice", "other") is None
    assert await passwords.is_current("bob", PASSWORD) is None


async def test_a_user_of_the_file_holds_until_the_file_says_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(plain_user("alice", "from the file"))
    plain_users = PlainUsers(path)
    is_current = await passwords_of(UserCredentials(), plain_users).is_current("alice", "from the file")
    assert is_current is not None
    assert is_current()
    path.write_text(plain_user("alice", "another"))
    assert plain_users.reload()
    assert not is_current()


def test_failures_wait_longer_and_longer() -> None:
    passwords = passwords_of(UserCredentials())
    delays = [passwords.failure_delay_s("10.0.0.7") for _ in range(AUTHENTICATION_FAILURES_MAX + 3)]
    assert delays[0] == HTTP_FAILED_LOGIN_SECONDS
    assert delays[-1] > delays[-2] > HTTP_FAILED_LOGIN_SECONDS
    assert passwords.failure_delay_s("10.0.0.8") == HTTP_FAILED_LOGIN_SECONDS


async def test_s16_a_user_that_another_agent_created_before_is_known() -> None:
    credentials = UserCredentials()

    async def before_login() -> None:
        credentials.set(("bob", ALICE[1]), credential("builder"))

    assert await passwords_of(credentials, before_login=before_login).is_current("bob", "builder") is not None
