"""Certificates of a listener: read, checked and read again when their files change."""

import logging
import shutil
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509 import load_pem_x509_certificate

from agent.config.option_sources import InvalidSettings
from agent.config.tls_settings import read_tls
from agent.security.tls.tls_files import ListenerTls
from protocol.auth.tls_session import TlsFailed, TlsSession
from tests.support.certificates import PemFiles, TestAuthority
from tests.support.tls_clients import MemoryClient, shake_hands

NOW = datetime(2030, 1, 1, tzinfo=UTC)
NOW_S = NOW.timestamp()


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return TestAuthority(folder=tmp_path)


def tls_of(pairs: dict[str, str], now_s: float = NOW_S, **files: Path) -> ListenerTls:
    options = {name.replace("_", "-"): str(path) for name, path in files.items()}
    return ListenerTls(read_tls("SSL", pairs, dict(options)), now_s)


def served_by(
    tls: ListenerTls, authority: TestAuthority, host: str = "localhost", client: PemFiles | None = None
) -> bytes:
    """The certificate that a client sees. Raises `ssl.SSLError` or `TlsFailed`."""
    context = ssl.create_default_context(cafile=authority.ca_path)
    if client is not None:
        context.load_cert_chain(client.both)
    connection, session = MemoryClient(context, host), TlsSession(tls.context)
    shake_hands(connection, session)
    certificate = connection.ssl_object.getpeercert(binary_form=True)
    assert certificate is not None
    return certificate


def der(files: PemFiles) -> bytes:
    first, end, _ = files.cert.read_text(encoding="ascii").partition("-----END CERTIFICATE-----")
    return ssl.PEM_cert_to_DER_cert(first + end)


def test_a_certificate_and_its_key_serve(authority: TestAuthority) -> None:
    files = authority.issue("a")
    tls = tls_of({}, tls_cert=files.cert, tls_key=files.key)
    assert served_by(tls, authority) == der(files)
    assert tls.expires_s > NOW_S


def test_one_pem_file_has_both(authority: TestAuthority) -> None:
    files = authority.issue("a")
    assert served_by(tls_of({"ssl.keystore.location": str(files.both)}), authority) == der(files)


def test_a_keystore_and_its_key_may_be_two_files(authority: TestAuthority) -> None:
    files = authority.issue("a")
    pairs = {"ssl.keystore.location": str(files.cert), "ssl.keystore.key.file": str(files.key)}
    assert served_by(tls_of(pairs), authority) == der(files)


def test_texts_of_the_configuration_serve(authority: TestAuthority) -> None:
    files = authority.issue("a")
    pairs = {
        "ssl.keystore.certificate.chain": files.cert.read_text(encoding="ascii"),
        "ssl.keystore.key.file": str(files.key),
    }
    assert served_by(tls_of(pairs), authority) == der(files)


def test_an_encrypted_key_needs_its_password(authority: TestAuthority, tmp_path: Path) -> None:
    files = authority.issue("a")
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    files.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"hush"),
        )
    )
    (tmp_path / "password").write_text("hush\n", encoding="utf-8")
    pairs = {"ssl.key.password.file": str(tmp_path / "password")}
    assert served_by(tls_of(pairs, tls_cert=files.cert, tls_key=files.key), authority) == der(files)
    with pytest.raises(InvalidSettings, match=r"encrypted by another password: set ssl.key.password.file"):
        tls_of({}, tls_cert=files.cert, tls_key=files.key)


def pkcs12_of(files: PemFiles, path: Path, password: bytes) -> None:
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    certificate = load_pem_x509_certificate(files.cert.read_bytes())
    path.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"x",
            key,  # type: ignore[arg-type]
            certificate,
            None,
            serialization.BestAvailableEncryption(password),
        )
    )


def test_a_pkcs12_keystore_serves(authority: TestAuthority, tmp_path: Path) -> None:
    files, store = authority.issue("a"), tmp_path / "store.p12"
    pkcs12_of(files, store, b"changeit")
    pairs = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": "changeit",
    }
    assert served_by(tls_of(pairs), authority) == der(files)
    with pytest.raises(InvalidSettings, match="no PKCS12 keystore, or its password"):
        tls_of({**pairs, "ssl.keystore.password": "other"})


def test_a_jks_keystore_is_rejected_with_the_line_that_converts_it(tmp_path: Path) -> None:
    store = tmp_path / "server.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    for kind in ("PEM", "PKCS12"):
        with pytest.raises(InvalidSettings, match=r"keytool -importkeystore -srckeystore .*server.jks -destkeystore"):
            tls_of({"ssl.keystore.type": kind, "ssl.keystore.location": str(store)})


def test_files_that_cannot_be_used_are_rejected_at_the_start(authority: TestAuthority, tmp_path: Path) -> None:
    a, b = authority.issue("a"), authority.issue("b")
    expired = authority.issue("expired", expires=NOW - timedelta(days=1))
    with pytest.raises(InvalidSettings, match="private key is not that of the certificate"):
        tls_of({}, tls_cert=a.cert, tls_key=b.key)
    with pytest.raises(InvalidSettings, match="expired on 2029-12-31: renew it"):
        tls_of({}, tls_cert=expired.cert, tls_key=expired.key)
    with pytest.raises(InvalidSettings, match="check this machine's clock"):
        tls_of({}, now_s=0.0, tls_cert=a.cert, tls_key=a.key)
    with pytest.raises(InvalidSettings, match="cannot be read: No such file"):
        tls_of({}, tls_cert=tmp_path / "none", tls_key=a.key)
    with pytest.raises(InvalidSettings, match="has no certificate in PEM"):
        tls_of({}, tls_cert=a.key, tls_key=a.key)
    with pytest.raises(InvalidSettings, match="none of TLS_NO_SUCH is known"):
        tls_of({"ssl.cipher.suites": "TLS_NO_SUCH"}, tls_cert=a.cert, tls_key=a.key)
    with pytest.raises(InvalidSettings, match=r"ssl.principal.mapping.rules of listener SSL: 'nonsense'"):
        tls_of({"ssl.principal.mapping.rules": "nonsense"}, tls_cert=a.cert, tls_key=a.key)
    a.cert.write_bytes(a.cert.read_bytes() + b.cert.read_bytes())
    with pytest.raises(InvalidSettings, match="did not issue the one before it"):
        tls_of({}, tls_cert=a.cert, tls_key=a.key)


def test_a_chain_has_the_issuer_behind_the_certificate(tmp_path: Path) -> None:
    root = TestAuthority(folder=tmp_path)
    intermediate = TestAuthority(folder=tmp_path, ca=root.ca.create_child_ca(key_type=trustme.KeyType.ECDSA))
    files = intermediate.issue("leaf")
    assert served_by(tls_of({}, tls_cert=files.cert, tls_key=files.key), root) == der(files)


def test_versions_and_suites_are_those_of_the_settings(authority: TestAuthority) -> None:
    files = authority.issue("a")
    pairs = {
        "ssl.enabled.protocols": "TLSv1.2",
        "ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,TLS_AES_128_GCM_SHA256",
    }
    context = tls_of(pairs, tls_cert=files.cert, tls_key=files.key).context
    names = [cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] != "TLSv1.3"]
    assert names == ["ECDHE-ECDSA-CHACHA20-POLY1305"]
    assert context.maximum_version.name == "TLSv1_2"


def test_a_host_name_chooses_its_certificate(authority: TestAuthority) -> None:
    a, b, c = authority.issue("a"), authority.issue("b", "b0.example"), authority.issue("c", "*.c.example")
    prefix = "listener.name.ssl.penstock.sni"
    pairs = {
        f"{prefix}.b0.example.cert": str(b.cert),
        f"{prefix}.b0.example.key": str(b.key),
        f"{prefix}.*.c.example.cert": str(c.cert),
        f"{prefix}.*.c.example.key": str(c.key),
    }
    tls = tls_of(pairs, tls_cert=a.cert, tls_key=a.key)
    assert served_by(tls, authority) == der(a)
    assert served_by(tls, authority, "b0.example") == der(b)
    assert served_by(tls, authority, "x.c.example") == der(c)


def test_a_client_needs_a_certificate_of_the_authorities(authority: TestAuthority, tmp_path: Path) -> None:
    files = authority.issue("a")
    tls = tls_of({}, tls_cert=files.cert, tls_key=files.key, tls_client_ca=authority.ca_path)
    assert served_by(tls, authority, client=authority.issue("client", "alice@example.org")) == der(files)
    with pytest.raises(TlsFailed, match="the client has no certificate"):
        served_by(tls, authority)
    for client_auth in ("requested", "none"):
        pairs = {"ssl.client.auth": client_auth}
        lenient = tls_of(pairs, tls_cert=files.cert, tls_key=files.key, tls_client_ca=authority.ca_path)
        assert served_by(lenient, authority) == der(files)
    (tmp_path / "other").mkdir()
    stranger = TestAuthority(folder=tmp_path / "other").issue("client", "alice@example.org")
    with pytest.raises(TlsFailed, match="the client's certificate is not valid: unable to get local issuer"):
        served_by(tls, authority, client=stranger)


def test_a_revoked_certificate_is_rejected_and_others_are_not(authority: TestAuthority, tmp_path: Path) -> None:
    files = authority.issue("a")
    good, bad = authority.issue("good", "good@example.org"), authority.issue("bad", "bad@example.org")
    lists = tmp_path / "crl.pem"
    lists.write_bytes(authority.revocation_list(bad))
    now_s = datetime.now(UTC).timestamp()
    tls = tls_of(
        {"ssl.crl.location": str(lists)}, now_s, tls_cert=files.cert, tls_key=files.key, tls_client_ca=authority.ca_path
    )
    assert served_by(tls, authority, client=good) == der(files)
    with pytest.raises(TlsFailed, match="the client's certificate is not valid: certificate revoked"):
        served_by(tls, authority, client=bad)
    lists.write_bytes(authority.revocation_list(good))
    assert tls.reload(now_s)
    assert served_by(tls, authority, client=bad) == der(files)
    with pytest.raises(TlsFailed, match="certificate revoked"):
        served_by(tls, authority, client=good)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_revoked_client_cannot_resume_its_session(
    authority: TestAuthority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    files, client = authority.issue("a"), authority.issue("client", "c@example.org")
    lists, now_s = tmp_path / "crl.pem", datetime.now(UTC).timestamp()
    lists.write_bytes(authority.revocation_list())
    tls = tls_of(
        {"ssl.crl.location": str(lists)}, now_s, tls_cert=files.cert, tls_key=files.key, tls_client_ca=authority.ca_path
    )
    context = ssl.create_default_context(cafile=authority.ca_path)
    context.load_cert_chain(client.both)
    context.maximum_version = version

    def connected(session: ssl.SSLSession | None) -> ssl.SSLObject:
        connection, served = MemoryClient(context), TlsSession(tls.context)
        if session is not None:
            connection.ssl_object.session = session
        shake_hands(connection, served)
        served.write(b"x")
        assert connection.receive(served.data_to_send()) == b"x"  # behind the tickets of TLS 1.3
        return connection.ssl_object

    session = connected(None).session
    assert connected(session).session_reused
    lists.write_bytes(authority.revocation_list(client))
    assert tls.reload(now_s)
    with pytest.raises(TlsFailed, match="certificate revoked"):
        connected(session)


@pytest.mark.parametrize(
    ("days_left", "message"),
    [(None, "has no revocation list in PEM"), (-1, "ended on .* every client would be rejected"), (1, "")],
)
def test_a_revocation_list_that_would_reject_every_client_is_an_error(
    authority: TestAuthority, tmp_path: Path, days_left: int | None, message: str
) -> None:
    files, lists, now = authority.issue("a"), tmp_path / "crl.pem", datetime.now(UTC).replace(microsecond=0)
    ends = now + timedelta(days=days_left or 0)
    lists.write_bytes(files.cert.read_bytes() if days_left is None else authority.revocation_list(ends=ends))
    pairs = {"ssl.crl.location": str(lists), "ssl.client.auth": "requested"}
    named = {"tls_cert": files.cert, "tls_key": files.key, "tls_client_ca": authority.ca_path}
    if message:
        with pytest.raises(InvalidSettings, match=message):
            tls_of(pairs, now.timestamp(), **named)
    else:
        assert tls_of(pairs, now.timestamp(), **named).lists_end_s == ends.timestamp()


def test_a_truststore_may_be_a_text_or_pkcs12(authority: TestAuthority, tmp_path: Path) -> None:
    files, client = authority.issue("a"), authority.issue("client", "alice@example.org")
    text = authority.ca_path.read_text(encoding="ascii")
    store = tmp_path / "trust.p12"
    store.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"ca",
            None,
            None,
            [load_pem_x509_certificate(text.encode())],
            serialization.BestAvailableEncryption(b"changeit"),
        )
    )
    by_text = {"ssl.truststore.certificates": text, "ssl.client.auth": "required"}
    by_store = {
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(store),
        "ssl.truststore.password": "changeit",
        "ssl.client.auth": "required",
    }
    for pairs in (by_text, by_store):
        tls = tls_of(pairs, tls_cert=files.cert, tls_key=files.key)
        assert served_by(tls, authority, client=client) == der(files)
        with pytest.raises(TlsFailed, match="no certificate"):
            served_by(tls, authority)
    with pytest.raises(InvalidSettings, match="no PKCS12 truststore"):
        tls_of({**by_store, "ssl.truststore.password": "x"}, tls_cert=files.cert, tls_key=files.key)
    with pytest.raises(InvalidSettings, match=r"ssl.truststore.certificates has no certificate"):
        tls_of({**by_text, "ssl.truststore.certificates": "x"}, tls_cert=files.cert, tls_key=files.key)


class Reload:
    """A listener whose files are written again."""

    def __init__(
        self,
        authority: TestAuthority,
        folder: Path,
        pairs: dict[str, str] | None = None,
        common_name: str | None = None,
    ) -> None:
        self.authority, self.folder = authority, folder
        self.cert, self.key = folder / "tls.crt", folder / "tls.key"
        self.write(authority.issue("first", common_name=common_name))
        self.tls = tls_of(pairs or {}, tls_cert=self.cert, tls_key=self.key)

    def write(self, files: PemFiles) -> None:
        shutil.copy(files.cert, self.cert)
        shutil.copy(files.key, self.key)

    def serves(self, files: PemFiles) -> bool:
        return served_by(self.tls, self.authority) == der(files)


def test_a_new_certificate_is_served_once_its_files_are_there(authority: TestAuthority, tmp_path: Path) -> None:
    reload = Reload(authority, tmp_path)
    second = authority.issue("second")
    before = reload.tls.context
    assert reload.tls.reload(NOW_S)
    assert reload.tls.context is before
    shutil.copy(second.cert, reload.cert)  # the key is not written yet
    assert reload.tls.reload(NOW_S)
    assert reload.tls.context is before
    shutil.copy(second.key, reload.key)
    assert reload.tls.reload(NOW_S)
    assert reload.serves(second)


def test_files_that_do_not_fit_for_a_minute_are_reported_once(
    authority: TestAuthority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reload = Reload(authority, tmp_path)
    shutil.copy(authority.issue("second").cert, reload.cert)
    with caplog.at_level(logging.ERROR):
        assert reload.tls.reload(NOW_S)
        assert reload.tls.reload(NOW_S + 59)
        assert not caplog.records
        assert not reload.tls.reload(NOW_S + 60)
        assert not reload.tls.reload(NOW_S + 70)
    (record,) = caplog.records
    assert "the private key is not that of the certificate" in record.reason  # type: ignore[attr-defined]
    reload.write(authority.issue("third"))
    assert reload.tls.reload(NOW_S + 80)


@pytest.mark.parametrize(
    ("pairs", "name", "is_taken"),
    [
        ({}, "other", False),
        ({"ssl.allow.dn.changes": "true"}, "other", True),
        ({}, "first", True),
    ],
)
def test_another_subject_is_taken_where_it_may_change(
    authority: TestAuthority, tmp_path: Path, pairs: dict[str, str], name: str, *, is_taken: bool
) -> None:
    reload = Reload(authority, tmp_path, pairs, common_name="first")
    second = authority.issue("second", common_name=name)
    reload.write(second)
    reload.tls.reload(NOW_S)
    assert reload.serves(second) is is_taken


def test_a_certificate_that_lacks_a_name_is_taken_where_names_may_change(
    authority: TestAuthority, tmp_path: Path
) -> None:
    for number, (pairs, is_taken) in enumerate([({}, False), ({"ssl.allow.san.changes": "true"}, True)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        reload = Reload(authority, folder, pairs)
        second = authority.issue("second", "localhost")
        reload.write(second)
        reload.tls.reload(NOW_S)
        assert reload.serves(second) is is_taken
