"""The keys of a credential."""

from base64 import b64decode

import pytest

from protocol.auth.scram_credentials import ScramMechanism
from protocol.auth.scram_keys import credential_of, is_password_of, salt_password

SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_credential_is_made_from_its_password_alone(mechanism: ScramMechanism) -> None:
    salted = salt_password("pencil", salt=SALT, iterations=4096, mechanism=mechanism)
    credential = credential_of(salted, salt=SALT, iterations=4096, mechanism=mechanism)
    assert is_password_of(credential, "pencil", mechanism)
    assert not is_password_of(credential, "pencils", mechanism)


def test_the_salted_password_is_that_of_pbkdf2() -> None:
    # RFC 7677, section 3: user "user", password "pencil".
    salted = salt_password("pencil", salt=SALT, iterations=4096, mechanism=ScramMechanism.SCRAM_SHA_256)
    assert salted.hex() == "c4a49510323ab4f952cac1fa99441939e78ea74d6be81ddf7096e87513dc615d"


def test_a_credential_has_neither_the_password_nor_the_salted_one() -> None:
    mechanism = ScramMechanism.SCRAM_SHA_512
    salted = salt_password("pencil", salt=SALT, iterations=4096, mechanism=mechanism)
    credential = credential_of(salted, salt=SALT, iterations=4096, mechanism=mechanism)
    assert salted not in (credential.stored_key, credential.server_key)
    assert len(credential.stored_key) == len(credential.server_key) == 64
