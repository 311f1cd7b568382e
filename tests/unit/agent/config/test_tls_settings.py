"""TLS of one listener from Kafka's configs and from the shorthand options."""

from pathlib import Path

import pytest

from agent.config.option_sources import InvalidSettings, Value
from agent.config.tls_settings import ClientAuth, KeyPair, PrincipalSource, TlsSettings, read_tls

FILES: dict[str, Value] = {"tls-cert": "/c.pem", "tls-key": "/k.pem"}
PAIR = KeyPair(chain_path=Path("/c.pem"), key_path=Path("/k.pem"))


def tls(pairs: dict[str, str] | None = None, **options: str) -> TlsSettings:
    values: dict[str, Value] = {name.replace("_", "-"): value for name, value in options.items()}
    return read_tls("OUT", pairs or {}, values)


def test_the_shorthand_names_certificate_and_key() -> None:
    assert tls(tls_cert="/c.pem", tls_key="/k.pem") == TlsSettings(listener="OUT", key_pair=PAIR)


def test_authorities_of_clients_alone_require_certificates() -> None:
    settings = tls(tls_cert="/c.pem", tls_key="/k.pem", tls_client_ca="/ca.pem")
    assert (settings.truststore, settings.client_auth) == (Path("/ca.pem"), ClientAuth.REQUIRED)
    requested = tls({"ssl.client.auth": "requested"}, tls_cert="/c.pem", tls_key="/k.pem", tls_client_ca="/ca.pem")
    assert requested.client_auth is ClientAuth.REQUESTED


def test_a_pem_keystore_has_key_and_certificates_in_one_file() -> None:
    assert tls({"ssl.keystore.location": "/both.pem"}).key_pair == KeyPair(chain_path=Path("/both.pem"))


def test_a_pem_keystore_and_its_key_may_be_two_files() -> None:
    pair = tls({"ssl.keystore.location": "/tls.crt", "ssl.keystore.key.file": "/tls.key"}).key_pair
    assert pair == KeyPair(chain_path=Path("/tls.crt"), key_path=Path("/tls.key"))


def test_a_listeners_own_certificate_and_authorities_come_before_the_options() -> None:
    own = "listener.name.out.ssl"
    pairs = {f"{own}.keystore.location": "/own.pem", f"{own}.truststore.location": "/own-ca.pem"}
    settings = tls(pairs, tls_cert="/c.pem", tls_key="/k.pem", tls_client_ca="/ca.pem")
    assert settings.key_pair == KeyPair(chain_path=Path("/own.pem"))
    assert (settings.truststore, settings.client_auth) == (Path("/own-ca.pem"), ClientAuth.REQUIRED)
    other = {name.replace(".out.", ".other."): value for name, value in pairs.items()}
    assert tls(other, tls_cert="/c.pem", tls_key="/k.pem").key_pair == PAIR


def test_key_and_certificates_may_be_texts() -> None:
    pair = tls({"ssl.keystore.certificate.chain": "CHAIN", "ssl.keystore.key": "KEY"}).key_pair
    assert pair is not None
    assert (pair.chain_text, pair.key and pair.key.read()) == ("CHAIN", "KEY")


def test_a_pkcs12_keystore_has_a_password(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n", encoding="utf-8")
    settings = tls(
        {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": "/store.p12",
            "ssl.keystore.password.file": str(tmp_path / "password"),
        }
    )
    assert settings.keystore == Path("/store.p12")
    assert settings.keystore_password is not None
    assert settings.keystore_password.read() == "secret"


def test_the_listeners_own_configs_come_before_the_general_ones() -> None:
    pairs = {
        "ssl.client.auth": "none",
        "listener.name.out.ssl.client.auth": "required",
        "ssl.truststore.location": "/general.pem",
        "ssl.truststore.certificates": "",
        "ssl.key.password": "general",
        "listener.name.out.ssl.key.password.file": "/own",
        "listener.name.in.ssl.enabled.protocols": "TLSv1.3",
        "listener.name.out.ssl.enabled.protocols": "TLSv1.3",
        "ssl.cipher.suites": "A, B",
        "ssl.allow.dn.changes": "TRUE",
        "penstock.ssl.principal.source": "SAN_URI",
        "ssl.crl.location": "/crl.pem",
    }
    settings = tls(pairs, tls_cert="/c.pem", tls_key="/k.pem")
    assert settings.client_auth is ClientAuth.REQUIRED
    assert settings.protocols == ("TLSv1.3",)
    assert settings.cipher_suites == ("A", "B")
    assert settings.key_password is not None
    assert settings.key_password.path == Path("/own")
    assert (settings.may_change_subject, settings.may_change_names) == (True, False)
    assert settings.principal_source is PrincipalSource.SAN_URI
    assert settings.revocation_lists == Path("/crl.pem")


def test_further_certificates_are_chosen_by_host_name() -> None:
    prefix = "listener.name.out.penstock.sni.B0.example"
    settings = tls({f"{prefix}.cert": "/b.pem", f"{prefix}.key": "/b.key"}, tls_cert="/c.pem", tls_key="/k.pem")
    assert settings.sni == (("b0.example", KeyPair(chain_path=Path("/b.pem"), key_path=Path("/b.key"))),)


@pytest.mark.parametrize(
    ("pairs", "options", "message"),
    [
        ({}, {}, "has no certificate"),
        ({}, {"tls_cert": "/c"}, "--tls-cert needs --tls-key"),
        ({}, {"tls_key": "/k"}, "--tls-key needs --tls-cert"),
        ({"ssl.keystore.location": "/s"}, {"tls_cert": "/c", "tls_key": "/k"}, "--tls-cert and ssl.keystore.location"),
        ({"ssl.truststore.location": "/t"}, {"tls_cert": "/c", "tls_key": "/k", "tls_client_ca": "/a"}, "both set"),
        ({"ssl.keystore.certificate.chain": "C"}, {}, "ssl.keystore.certificate.chain of listener OUT needs ssl"),
        ({"ssl.keystore.key": "K"}, {}, "ssl.keystore.key of listener OUT needs ssl.keystore.certificate.chain"),
        ({"ssl.keystore.location": "/s", "ssl.keystore.key": "K"}, {}, "remove ssl.keystore.key"),
        ({"ssl.key.password": "a", "ssl.key.password.file": "b"}, {"tls_cert": "/c", "tls_key": "/k"}, "both set"),
        ({"ssl.client.auth": "required"}, {"tls_cert": "/c", "tls_key": "/k"}, "needs the authorities"),
        (
            {"listener.name.out.penstock.sni.b.cert": "/b"},
            {"tls_cert": "/c", "tls_key": "/k"},
            "penstock.sni.b.key is missing",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_rejected(
    pairs: dict[str, str], options: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidSettings, match=message):
        tls(pairs, **options)


def test_no_text_of_the_settings_shows_a_secret() -> None:
    settings = tls({"ssl.keystore.certificate.chain": "CHAIN", "ssl.keystore.key": "SECRET", "ssl.key.password": "PW"})
    assert "SECRET" not in repr(settings)
    assert "PW" not in repr(settings)
