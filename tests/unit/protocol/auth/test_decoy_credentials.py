"""Decoys look like credentials, and stay as they are."""

import pytest

from protocol.auth.decoy_credentials import CredentialShape, decoy, decoy_mechanism, shapes_of
from protocol.auth.scram_credentials import ScramCredential, ScramMechanism

SHA_256 = ScramMechanism.SCRAM_SHA_256
SECRET = b"secret of the cluster"


def credential(salt: bytes, iterations: int = 4096) -> ScramCredential:
    return ScramCredential(salt=salt, stored_key=b"s", server_key=b"k", iterations=iterations)


def test_the_shapes_are_those_of_credentials() -> None:
    credentials = [credential(b"0az9"), credential(b"zzzz"), credential(b"\0\1", 8192)]
    assert shapes_of(credentials) == [
        CredentialShape(salt_bytes=2, is_text=False, iterations=8192),
        CredentialShape(salt_bytes=4, is_text=True, iterations=4096),
    ]


def test_without_credentials_decoys_look_like_those_of_kafkas_tools() -> None:
    made = decoy(SECRET, "bob", SHA_256, shapes_of([]))
    assert len(made.salt) == 25
    assert made.salt.isalnum()
    assert made.salt == made.salt.lower()
    assert made.iterations == 4096


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_decoy_has_the_shape_that_it_is_given(mechanism: ScramMechanism) -> None:
    shape = CredentialShape(salt_bytes=64, is_text=False, iterations=8192)
    made = decoy(SECRET, "bob", mechanism, [shape])
    assert shapes_of([made]) == [shape]
    assert len(made.stored_key) == len(made.server_key) == {"sha256": 32, "sha512": 64}[mechanism.hash_name]
    assert made.stored_key != made.server_key


def test_a_name_has_one_decoy() -> None:
    assert decoy(SECRET, "bob", SHA_256, shapes_of([])) == decoy(SECRET, "bob", SHA_256, shapes_of([]))


def test_names_secrets_and_mechanisms_have_different_ones() -> None:
    shapes = shapes_of([])
    salts = {
        decoy(SECRET, "bob", SHA_256, shapes).salt,
        decoy(SECRET, "eve", SHA_256, shapes).salt,
        decoy(b"another", "bob", SHA_256, shapes).salt,
        decoy(SECRET, "bob", ScramMechanism.SCRAM_SHA_512, shapes).salt,
    }
    assert len(salts) == 4


def test_all_shapes_are_used_and_most_names_keep_theirs() -> None:
    shapes = [CredentialShape(iterations=4096), CredentialShape(iterations=8192)]
    more = [*shapes, CredentialShape(iterations=16384)]
    names = [f"user-{number}" for number in range(60)]
    before = [decoy(SECRET, name, SHA_256, shapes) for name in names]
    after = [decoy(SECRET, name, SHA_256, more) for name in names]
    assert {made.iterations for made in before} == {4096, 8192}
    changed = [new for old, new in zip(before, after, strict=True) if new != old]
    assert all(new.iterations == 16384 for new in changed)


def test_a_decoy_without_a_mechanism_has_one_of_those_that_are_used() -> None:
    names = [f"user-{number}" for number in range(20)]
    assert {decoy_mechanism(SECRET, name, [SHA_256]) for name in names} == {SHA_256}
    both = [decoy_mechanism(SECRET, name, ScramMechanism) for name in names]
    assert set(both) == set(ScramMechanism)
    assert both == [decoy_mechanism(SECRET, name, ScramMechanism) for name in names]
