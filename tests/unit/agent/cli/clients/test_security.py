"""The commands' TLS: properties of Kafka's tools, and `--ca`."""

import ssl
from pathlib import Path

import pytest

from agent.cli.clients import http_client
from agent.cli.clients.http_client import AgentServer, kafka_address
from agent.cli.clients.security import ClientLogin, ClientSecurity, client_security, read_properties
from agent.cli.failure import CommandFailed
from agent.cli.server_flags import with_scheme
from agent.config.addresses import HostPort
from tests.support.certificates import TestAuthority


def write(folder: Path, text: str) -> str:
    path = folder / "client.properties"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_properties_are_read_as_java_reads_them(tmp_path: Path) -> None:
    text = (
        "# a comment\n! another\n\nsecurity.protocol=SSL\n  ssl.truststore.location : /ca.pem\n"
        "spaces value with spaces\nlong=a,\\\n    b\nescaped\\=key=\\u0041\\tb\\\\\nempty=\nalone\n"
    )
    assert read_properties(write(tmp_path, text)) == {
        "security.protocol": "SSL",
        "ssl.truststore.location": "/ca.pem",
        "spaces": "value with spaces",
        "long": "a,b",
        "escaped=key": "A\tb\\",
        "empty": "",
        "alone": "",
    }


def test_files_that_cannot_be_used_are_usage_errors(tmp_path: Path) -> None:
    for security in (
        ClientSecurity(ca=tmp_path / "none"),
        ClientSecurity(configs={"ssl.truststore.location": write(tmp_path, "x")}),
        ClientSecurity(configs={"ssl.keystore.location": str(tmp_path / "none")}),
    ):
        with pytest.raises(CommandFailed, match="--ca or --command-config"):
            security.context()
    with pytest.raises(CommandFailed, match="cannot be read"):
        client_security(str(tmp_path / "none"), None)
    with pytest.raises(CommandFailed, match=r"security.protocol=TLS is none of PLAINTEXT, SSL"):
        _ = ClientSecurity(configs={"security.protocol": "TLS"}).protocol


def test_a_context_trusts_what_the_options_say(tmp_path: Path) -> None:
    authority = TestAuthority(folder=tmp_path)
    client = authority.issue("client", "a@example.org")
    configs = {
        "ssl.truststore.location": str(authority.ca_path),
        "ssl.keystore.location": str(client.both),
        "ssl.endpoint.identification.algorithm": "",
    }
    context = ClientSecurity(configs=configs).context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert not context.check_hostname
    assert len(context.get_ca_certs()) == 1
    assert ClientSecurity(ca=authority.ca_path).context().check_hostname
    assert ClientSecurity(is_unverified=True).context().verify_mode is ssl.CERT_NONE


def test_a_given_bootstrap_encrypts_where_the_options_say_so() -> None:
    def is_encrypted(security: ClientSecurity) -> bool:
        return kafka_address(AgentServer(address="", security=security), "127.0.0.1:9").security is not None

    assert not is_encrypted(ClientSecurity())
    assert is_encrypted(ClientSecurity(ca=Path("/ca.pem")))
    assert is_encrypted(ClientSecurity(configs={"security.protocol": "ssl"}))
    assert not is_encrypted(ClientSecurity(configs={"security.protocol": "PLAINTEXT"}, ca=Path("/ca.pem")))


@pytest.mark.parametrize(
    ("address", "configs", "ca", "expected"),
    [
        ("a:1", {}, None, "a:1"),
        ("a:1", {"security.protocol": "SASL_PLAINTEXT"}, None, "a:1"),
        ("a:1", {"security.protocol": "SASL_SSL"}, None, "https://a:1"),
        ("a:1", {}, Path("/ca.pem"), "https://a:1"),
        ("http://a:1", {"security.protocol": "SASL_SSL"}, None, "http://a:1"),
        ("https://a:1", {}, None, "https://a:1"),
    ],
)
def test_an_address_without_a_scheme_is_encrypted_where_the_options_say_so(
    address: str, configs: dict[str, str], ca: Path | None, expected: str
) -> None:
    assert with_scheme(address, ClientSecurity(configs=configs, ca=ca)) == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"kafka": ["SASL_SSL://a:1"]}, HostPort(host="a", port=1)),
        ({"kafka": ["OUT://a:1"], "protocols": {"OUT": "SASL_SSL"}}, HostPort(host="a", port=1)),
        ({"kafka": ["SASL_SSL://a:1"], "protocols": {}}, "no listener of the agent speaks SASL_SSL"),
        ({"kafka": ["OUT://a:1"]}, "give --bootstrap"),
    ],
)
def test_a_user_who_does_not_see_the_protocols_finds_a_listener_that_is_named_by_its_protocol(
    status: dict[str, object], expected: HostPort | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client, "get", lambda *_: status)
    jaas = f'{MODULE} username="alice" password="wonderland";'
    configs = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas}
    server = AgentServer(address="a:9644", security=ClientSecurity(configs=configs))
    if isinstance(expected, HostPort):
        assert kafka_address(server, None).address == expected
        return
    with pytest.raises(CommandFailed, match=expected):
        kafka_address(server, None)


def test_no_text_shows_a_password() -> None:
    assert "hush" not in repr(ClientSecurity(configs={"ssl.key.password": "hush"}))
    assert "hush" not in repr(ClientLogin(mechanism="PLAIN", user="alice", password="hush"))


MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.mark.parametrize(
    ("jaas", "user", "password"),
    [
        (f'{MODULE} username="alice" password="wonder land;";', "alice", "wonder land;"),
        (f"{MODULE}\n  username='alice'\n  password=wonderland ;", "alice", "wonderland"),
        (f'{MODULE} tokenauth=true username = "a\\"b" password="\\\\";', 'a"b', "\\"),
    ],
)
def test_the_user_is_that_of_sasl_jaas_config(jaas: str, user: str, password: str) -> None:
    configs = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas}
    assert ClientSecurity(configs=configs).login() == ClientLogin(
        mechanism="SCRAM-SHA-512", user=user, password=password
    )


def test_a_token_stands_in_the_file_of_a_url(tmp_path: Path) -> None:
    path = tmp_path / "my token"
    path.write_text("a.b.c\n")
    url = f"file://{tmp_path}/my%20token"
    configs = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": url,
    }
    security = ClientSecurity(configs=configs)
    assert security.login() == ClientLogin(mechanism="OAUTHBEARER", user="", password="a.b.c")
    server = AgentServer(address="https://broker.example:9644", security=security)
    assert server.headers() == {"Authorization": "Bearer a.b.c"}
    for text, message in (("", "has no token"), ("a b", "more than one"), ("\xff", "cannot be read")):
        path.write_text(text, encoding="latin-1")
        with pytest.raises(CommandFailed, match=message):
            security.login()
    path.unlink()
    with pytest.raises(CommandFailed, match="cannot be read"):
        security.login()


@pytest.mark.parametrize("url", ["", "https://issuer.example/token", "file:"])
def test_no_issuer_is_asked_for_a_token(url: str) -> None:
    configs = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    with pytest.raises(CommandFailed, match="is no file"):
        ClientSecurity(configs=configs | {"sasl.oauthbearer.token.endpoint.url": url}).login()


def test_a_protocol_without_sasl_has_no_user() -> None:
    assert ClientSecurity().login() is None
    assert ClientSecurity(configs={"security.protocol": "SSL", "sasl.jaas.config": "x"}).login() is None


@pytest.mark.parametrize(
    ("configs", "missing"),
    [
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism=GSSAPI is none of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.jaas.config has no user"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": 'X required username="a";'}, "sasl.jaas.config has no user"),
    ],
)
def test_what_is_missing_for_a_log_in_is_named(configs: dict[str, str], missing: str) -> None:
    with pytest.raises(CommandFailed, match=missing):
        ClientSecurity(configs={"security.protocol": "SASL_SSL", **configs}).login()


@pytest.mark.parametrize(
    ("address", "is_sent"),
    [("127.0.0.1:9644", True), ("https://broker.example:9644", True), ("broker.example:9644", False)],
)
def test_a_password_goes_to_no_other_machine_without_encryption(address: str, is_sent: bool) -> None:
    jaas = f'{MODULE} username="alice" password="wonderland";'
    configs = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    headers = AgentServer(address=address, security=ClientSecurity(configs=configs)).headers()
    assert headers == ({"Authorization": "Basic YWxpY2U6d29uZGVybGFuZA=="} if is_sent else {})
