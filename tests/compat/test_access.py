"""The files and words of a protected listener, as clients and brokers need them."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from tests.compat.access import KEY_PASSWORD, PLAINTEXT, SASL_SSL, SSL, Access, make_access


def made(protocol: str, folder: Path) -> Access:
    access = make_access(protocol, folder / "access")
    assert access is not None
    return access


def test_a_listener_without_protection_needs_nothing(tmp_path: Path) -> None:
    assert make_access(PLAINTEXT, tmp_path / "access") is None
    assert list(tmp_path.iterdir()) == []


def test_every_file_that_a_client_is_told_of_is_there(tmp_path: Path) -> None:
    access = made(SSL, tmp_path)
    told = {**access.librdkafka(), **access.java(), **access.trivup(), **access.penstock_options()}
    files = [value for value in told.values() if value.startswith(str(tmp_path))]
    assert len(files) > 10
    assert all(Path(file).stat().st_size for file in files)


def test_all_forms_of_the_clients_key_are_one_key(tmp_path: Path) -> None:
    access, password = made(SSL, tmp_path), KEY_PASSWORD.encode()
    encrypted = serialization.load_pem_private_key(Path(access.trivup()["SSL_priv_pem"]).read_bytes(), password)
    key, cert, authorities = pkcs12.load_key_and_certificates(Path(access.trivup()["SSL_pkcs"]).read_bytes(), password)
    plain = serialization.load_pem_private_key(access.client.key.read_bytes(), None)
    assert key is not None
    assert cert is not None
    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    public = {each.public_key().public_bytes(*form) for each in (encrypted, key, plain)}
    assert public == {cert.public_key().public_bytes(*form)}
    assert len(authorities) == 1


@pytest.mark.parametrize(
    ("mechanism", "module"), [("PLAIN", "PlainLoginModule"), ("SCRAM-SHA-256", "ScramLoginModule")]
)
def test_another_user_has_a_file_of_its_own(tmp_path: Path, mechanism: str, module: str) -> None:
    access = made(SASL_SSL, tmp_path)
    bob = access.as_user("bob", "builder", mechanism)
    assert bob.librdkafka()["sasl.username"] == "bob"
    assert bob.write_java() != access.write_java()
    assert f'{module} required username="bob" password="builder";' in bob.write_java().read_text()
