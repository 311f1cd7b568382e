"""Decoys resemble the users that there are, in what a client is shown and in how long a check of a password takes."""

import time
from pathlib import Path

from agent.config.secret_key import SecretKey
from agent.security.plain_users import PlainUsers
from agent.security.scram_accounts import ScramAccounts
from agent.security.wiring import decoy_secret
from protocol.auth.scram_credentials import ScramCredential, ScramMechanism
from protocol.auth.scram_keys import credential_of
from tests.support.auth.login_server import UserCredentials, credential
from tests.support.auth.plain_users import plain_user

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
NAMES = [f"nobody-{number}" for number in range(30)]


def accounts(credentials: UserCredentials, plain_users: PlainUsers | None = None) -> ScramAccounts:
    return ScramAccounts(credentials.source, decoy_secret=b"secret", plain_users=plain_users)


def made(iterations: int, mechanism: ScramMechanism) -> ScramCredential:
    return credential_of(bytes(32), salt=b"salt", iterations=iterations, mechanism=mechanism)


def test_decoys_of_a_mechanism_have_the_iterations_of_its_users_and_not_of_the_others() -> None:
    credentials = UserCredentials({("ann", SHA_256): made(4096, SHA_256), ("ben", SHA_512): made(8192, SHA_512)})
    found = accounts(credentials)
    for mechanism, iterations in ((SHA_256, 4096), (SHA_512, 8192)):
        decoys = [found.scram_account(mechanism, name, False) for name in NAMES]
        assert {(each.identity, each.credential.iterations) for each in decoys} == {(None, iterations)}


def test_a_password_of_an_unknown_user_is_checked_by_what_users_have() -> None:
    found = accounts(UserCredentials({("ann", SHA_256): made(4096, SHA_256)}))
    assert {(found.password_credentials(name)[0][1], found.password_credentials(name)[2]) for name in NAMES} == {
        (SHA_256, False)
    }


def test_only_the_credential_that_is_checked_counts() -> None:
    found = accounts(UserCredentials({("ann", SHA_256): made(4096, SHA_256), ("ann", SHA_512): made(8192, SHA_512)}))
    checked = [found.password_credentials(name) for name in ("ann", *NAMES)]
    assert {(key[1], credential.iterations) for key, credential, _ in checked} == {(SHA_512, 8192)}


def test_users_of_the_file_count_and_so_does_a_change_of_it(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text(plain_user("ann", "wonderland"))
    in_file = PlainUsers(path)
    found = accounts(UserCredentials({}), in_file)
    assert found.password_credentials("nobody")[0][1] is SHA_512
    path.write_text(plain_user("ann", "wonderland", SHA_256))
    assert in_file.reload()
    assert found.password_credentials("nobody")[0][1] is SHA_256


def test_without_users_a_decoy_looks_like_one_of_kafkas_tools() -> None:
    key, decoy, is_known = accounts(UserCredentials({})).password_credentials("nobody")
    assert (key, decoy.iterations, is_known) == (("nobody", SHA_512), 4096, False)


def test_a_change_among_many_users_holds_up_nobody_for_long() -> None:
    by_key = {(f"user-{number}", SHA_512): credential() for number in range(50_000)}
    credentials = UserCredentials(by_key)
    found = accounts(credentials)
    taken: list[float] = []
    for _ in range(3):
        credentials.version += 1
        began = time.process_time()
        found.scram_account(SHA_512, "nobody", False)
        taken.append(time.process_time() - began)
    assert min(taken) < 0.1


def test_the_secret_key_makes_the_salts_where_there_is_one() -> None:
    key = SecretKey(bytes(32))
    assert decoy_secret(key, "a") == decoy_secret(key, "b") != decoy_secret(SecretKey(bytes(range(32))), "a")
    assert decoy_secret(None, "a") != decoy_secret(None, "b")
    assert key.value not in decoy_secret(key, "a")
