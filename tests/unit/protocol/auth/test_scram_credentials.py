"""Names of mechanisms, and credentials that no log shows."""

from protocol.auth.scram_credentials import ScramCredential, ScramMechanism


def test_mechanisms_have_the_names_of_sasl_and_hashlib() -> None:
    assert [(each.sasl_name, each.hash_name) for each in ScramMechanism] == [
        ("SCRAM-SHA-256", "sha256"),
        ("SCRAM-SHA-512", "sha512"),
    ]


def test_a_credential_shows_nothing_but_its_iterations() -> None:
    credential = ScramCredential(salt=b"salt", stored_key=b"stored", server_key=b"server", iterations=4096)
    assert repr(credential) == "ScramCredential(iterations=4096)"
