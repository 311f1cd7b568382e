"""The passwords of PLAIN are checked against SCRAM credentials, a few at once."""

import asyncio
from pathlib import Path

from agent.security.password_checks import PasswordChecks
from agent.security.plain_users import PlainUsers
from agent.security.scram_accounts import ScramAccounts
from protocol.auth.sasl_exchange import PasswordCheck, SaslIdentity
from protocol.auth.scram_credentials import ScramMechanism
from protocol.limits import PASSWORD_CHECKS_MAX, PASSWORD_CHECKS_WAITING_MAX
from tests.support.auth.login_server import ALICE, PASSWORD, UserCredentials, credential
from tests.support.auth.plain_users import plain_user

RIGHT = PasswordCheck(user="alice", password=PASSWORD)


def checks(credentials: UserCredentials, plain_users: PlainUsers | None = None) -> PasswordChecks:
    return PasswordChecks(ScramAccounts(credentials.source, decoy_secret=b"secret"), plain_users)


async def test_a_right_password_gives_the_user_and_its_credential() -> None:
    assert await checks(UserCredentials()).identity(RIGHT) == (SaslIdentity(name="alice"), ALICE)


async def test_a_wrong_password_and_an_unknown_user_give_nobody() -> None:
    found = checks(UserCredentials())
    assert await found.identity(PasswordCheck(user="alice", password="other")) is None
    assert await found.identity(PasswordCheck(user="bob", password=PASSWORD)) is None


async def test_a_user_with_both_mechanisms_has_the_longer_hash() -> None:
    credentials, key = UserCredentials(), ("alice", ScramMechanism.SCRAM_SHA_512)
    credentials.set(key, credential("newer", ScramMechanism.SCRAM_SHA_512))
    assert await checks(credentials).identity(PasswordCheck(user="alice", password="newer")) == (
        SaslIdentity(name="alice"),
        key,
    )


async def test_a_credential_that_is_deleted_meanwhile_gives_nobody() -> None:
    credentials = UserCredentials()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(checks(credentials).identity(RIGHT))
        tasks.create_task(_delete(credentials))
    assert running.result() is None


async def _delete(credentials: UserCredentials) -> None:
    credentials.set(ALICE, None)


async def test_the_file_of_users_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(plain_user("alice", "from the file"))
    found = checks(UserCredentials(), PlainUsers(path))
    assert await found.identity(RIGHT) is None
    in_file = PasswordCheck(user="alice", password="from the file")
    assert await found.identity(in_file) == (SaslIdentity(name="alice"), None)


async def test_a_user_of_the_file_who_is_changed_meanwhile_is_nobody(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(plain_user("alice", "from the file"))
    plain_users = PlainUsers(path)

    async def change() -> None:
        path.write_text(plain_user("alice", "newer"))
        assert plain_users.reload()

    async with asyncio.TaskGroup() as tasks:
        in_file = PasswordCheck(user="alice", password="from the file")
        running = tasks.create_task(checks(UserCredentials(), plain_users).identity(in_file))
        tasks.create_task(change())
    assert running.result() is None


async def test_beyond_those_that_may_wait_a_check_fails_at_once() -> None:
    found, count = checks(UserCredentials()), PASSWORD_CHECKS_MAX + PASSWORD_CHECKS_WAITING_MAX
    results = await asyncio.gather(*(found.identity(RIGHT) for _ in range(count + 5)))
    assert sum(result is None for result in results) == 5
    assert await found.identity(RIGHT) is not None
