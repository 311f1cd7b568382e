"""Keys of users are encrypted before they enter the ledger, and open for their own user alone."""

import logging
from pathlib import Path

import pytest

from agent.config.option_sources import InvalidSettings
from agent.config.secret_key import NAME, SecretKey, read_secret_key
from agent.runtime.ids import SystemIds
from agent.security.credential_seal import CredentialSeal, OpenCredentials, SealedElsewhere
from coordinator.commands.security import KEY_BYTES_MAX, ScramRow
from protocol.auth.scram_credentials import ScramCredential, ScramMechanism
from protocol.auth.scram_keys import credential_of
from protocol.limits import OUTAGE_REMINDER_SECONDS

IDS = SystemIds()
KEY, OTHER_KEY = SecretKey(bytes(range(32))), SecretKey(bytes(32))
ALICE, BOB = ("alice", ScramMechanism.SCRAM_SHA_256), ("bob", ScramMechanism.SCRAM_SHA_256)
SEAL = CredentialSeal(KEY)


def credential(mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_256) -> ScramCredential:
    return credential_of(b"salted", salt=b"salt", iterations=4096, mechanism=mechanism)


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_sealed_credential_has_none_of_its_keys_and_opens_again(mechanism: ScramMechanism) -> None:
    user, plain = ("alice", mechanism), credential(mechanism)
    sealed = SEAL.seal(user, plain, IDS)
    assert (sealed.salt, sealed.iterations) == (plain.salt, plain.iterations)
    for key, hidden in ((plain.stored_key, sealed.stored_key), (plain.server_key, sealed.server_key)):
        assert key not in hidden
        assert len(key) < len(hidden) <= KEY_BYTES_MAX
    assert SEAL.open(user, sealed) == plain
    assert ScramRow.of(user, sealed).credential() == sealed
    assert SEAL.seal(user, plain, IDS) != sealed


def test_without_a_key_credentials_pass_as_they_are() -> None:
    assert CredentialSeal().seal(ALICE, credential(), IDS) == credential()
    assert CredentialSeal().open(ALICE, credential()) == credential()


def test_what_was_stored_before_there_was_a_key_stays_usable() -> None:
    assert SEAL.open(ALICE, credential()) == credential()


@pytest.mark.parametrize(
    ("seal", "user", "reason"),
    [
        (CredentialSeal(), ALICE, "has no penstock.secret.key.file"),
        (CredentialSeal(OTHER_KEY), ALICE, "by another penstock.secret.key.file"),
        (SEAL, BOB, "by another penstock.secret.key.file"),
    ],
)
def test_a_credential_opens_by_its_own_key_and_for_its_own_user(
    seal: CredentialSeal, user: tuple[str, ScramMechanism], reason: str
) -> None:
    with pytest.raises(SealedElsewhere, match=reason):
        seal.open(user, SEAL.seal(ALICE, credential(), IDS))


def test_a_key_that_was_cut_does_not_open() -> None:
    sealed = SEAL.seal(ALICE, credential(), IDS)
    with pytest.raises(SealedElsewhere):
        SEAL.open(ALICE, ScramCredential(salt=b"s", stored_key=b"", server_key=sealed.server_key, iterations=4096))


def test_the_state_is_opened_as_it_is_looked_up(caplog: pytest.LogCaptureFixture) -> None:
    stored = {ALICE: SEAL.seal(ALICE, credential(), IDS), BOB: CredentialSeal(OTHER_KEY).seal(BOB, credential(), IDS)}
    opened = OpenCredentials(lambda: stored, SEAL, monotonic_s=lambda: 0.0)
    assert opened.get(ALICE) == credential()
    with caplog.at_level(logging.ERROR):
        assert opened.get(BOB) is None
    assert "by another penstock.secret.key.file" in caplog.text
    assert (set(opened), len(opened), BOB in opened) == ({ALICE, BOB}, 2, True)
    assert list(opened.values()) == list(stored.values())


def test_log_ins_that_no_key_opens_are_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    stored = {BOB: CredentialSeal(OTHER_KEY).seal(BOB, credential(), IDS)}
    times = [0.0, 1.0, OUTAGE_REMINDER_SECONDS - 1, OUTAGE_REMINDER_SECONDS]
    opened = OpenCredentials(lambda: stored, SEAL, monotonic_s=iter(times).__next__)
    for _ in times:
        assert opened.get(BOB) is None
    lines = [(vars(line)["user"], vars(line)["failures"], vars(line)["remedy"]) for line in caplog.records]
    assert [(user, failures) for user, failures, _ in lines] == [("bob", 1), ("bob", 3)]
    assert "start all agents with the same penstock.secret.key.file" in lines[0][2]


def test_the_key_is_a_file_of_32_bytes(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(KEY.value)
    assert read_secret_key({NAME: str(path)}) == KEY
    assert read_secret_key({}) is None
    assert "\\x01" not in repr(KEY)
    path.write_bytes(bytes(31))
    with pytest.raises(InvalidSettings, match="has 31 bytes instead of 32"):
        read_secret_key({NAME: str(path)})
    with pytest.raises(InvalidSettings, match="cannot be read"):
        read_secret_key({NAME: str(tmp_path / "gone")})
