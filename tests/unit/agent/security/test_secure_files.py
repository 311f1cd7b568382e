"""The files of `penstock run --secure`."""

import shutil
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from agent.config.option_sources import InvalidSettings
from agent.config.secure_options import SecureFiles
from agent.runtime.ids import SystemIds
from agent.security.secure_files import create_secure_files
from tests.support.agent.ledger_parts import ManualClock

DAY_S = 86_400


def create(files: SecureFiles, *hosts: str, days: float = 0) -> str:
    clock = ManualClock()
    clock.seconds = days * DAY_S
    return create_secure_files(files, hosts, clock=clock, ids=SystemIds())


def names(files: SecureFiles) -> set[str]:
    certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name.value) for name in found}


def test_the_certificate_is_the_authoritys_and_has_the_hosts(tmp_path: Path) -> None:
    files = SecureFiles(data_dir=tmp_path / "data")
    create(files, "kafka.example", "10.0.0.7", "0.0.0.0", "", "{name}.example")
    assert {"localhost", "127.0.0.1", "::1", "kafka.example", "10.0.0.7"} <= names(files)
    assert not {"0.0.0.0", "", "{name}.example"} & names(files)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(files.authority.read_bytes()))


def test_secrets_are_for_the_user_alone(tmp_path: Path) -> None:
    files = SecureFiles(data_dir=tmp_path)
    password = create(files)
    for path in (files.password, files.properties, files.key, files.authority_key):
        assert path.stat().st_mode & 0o777 == 0o600
    assert len(password) >= 40
    properties = files.properties.read_text()
    assert f'username="admin" password="{password}";' in properties
    assert f"ssl.truststore.location={files.authority}" in properties


def test_another_start_keeps_all(tmp_path: Path) -> None:
    files = SecureFiles(data_dir=tmp_path)
    password = create(files)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert create(files, days=100) == password
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_certificate_that_ends_soon_is_made_again_with_the_same_authority(tmp_path: Path) -> None:
    files = SecureFiles(data_dir=tmp_path)
    create(files)
    authority, certificate = files.authority.read_bytes(), files.certificate.read_bytes()
    create(files, days=380)
    assert files.authority.read_bytes() == authority
    assert files.certificate.read_bytes() != certificate


def test_so_is_one_that_lacks_a_host(tmp_path: Path) -> None:
    files = SecureFiles(data_dir=tmp_path)
    create(files)
    create(files, "new.example")
    assert "new.example" in names(files)


def test_a_data_folder_that_is_created_is_for_the_user_alone(tmp_path: Path) -> None:
    files = SecureFiles(data_dir=tmp_path / "new" / "data")
    create(files)
    assert files.data_dir.stat().st_mode & 0o777 == 0o700
    files.data_dir.chmod(0o750)
    create(files)
    assert files.data_dir.stat().st_mode & 0o777 == 0o750  # what an operator chose stays


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xff\xfe", b'a"b', b"a\\b", b"one\ntwo", "g\u00e4ste".encode()])
def test_a_password_that_cannot_be_used_is_an_error(tmp_path: Path, content: bytes) -> None:
    files = SecureFiles(data_dir=tmp_path)
    create(files)
    files.password.write_bytes(content)
    with pytest.raises(InvalidSettings, match=r"admin.password is empty, or has characters"):
        create(files)
    assert files.password.read_bytes() == content


@pytest.mark.parametrize("name", ["authority", "authority_key", "certificate"])
def test_a_damaged_file_is_an_error_with_its_name(tmp_path: Path, name: str) -> None:
    files = SecureFiles(data_dir=tmp_path)
    create(files)
    path: Path = getattr(files, name)
    path.write_text("")
    with pytest.raises(InvalidSettings, match=rf"{path.name} is no .* in PEM: restore"):
        create(files, "another.example")
    assert path.read_bytes() == b""


def test_a_key_of_another_authority_signs_nothing(tmp_path: Path) -> None:
    files = SecureFiles(data_dir=tmp_path)
    create(files)
    before = files.certificate.read_bytes()
    shutil.copy(files.key, files.authority_key)
    with pytest.raises(InvalidSettings, match=r"ca.key is not the key of .*ca.pem"):
        create(files, "another.example")
    assert files.certificate.read_bytes() == before


@pytest.mark.parametrize("stopped_after", range(1, 5))
def test_a_kill_between_two_files_is_made_good_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped_after: int
) -> None:
    files = SecureFiles(data_dir=tmp_path)
    create(files)
    files.authority_key.unlink()
    replace, count = Path.replace, 0

    def replace_and_die(path: Path, target: Path) -> Path:
        nonlocal count
        count += 1
        if count == stopped_after:
            raise KeyboardInterrupt
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replace_and_die)
        with pytest.raises(KeyboardInterrupt):
            create(files, "another.example")
    create(files)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)  # raises where they do not fit
    certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(files.authority.read_bytes()))
