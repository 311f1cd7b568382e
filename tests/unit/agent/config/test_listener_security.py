"""The protection of listeners: protocols by name and by the map, and settings that would protect nothing."""

import pytest

from agent.config.addresses import HostPort, ListenerAddress
from agent.config.listener_security import (
    ListenerSecurity,
    SecurityProtocol,
    check_configs_are_used,
    check_is_protected,
    check_relay,
    read_http_tls,
    read_listener_security,
)
from agent.config.option_sources import InvalidSettings, Value
from agent.config.tls_settings import ClientAuth

FILES: dict[str, Value] = {"tls-cert": "/c.pem", "tls-key": "/k.pem"}


def listener(name: str) -> ListenerAddress:
    return ListenerAddress(name=name, host="127.0.0.1", port=1)


def protocol(name: str, protocol_map: str | None = None) -> SecurityProtocol:
    pairs = {} if protocol_map is None else {"listener.security.protocol.map": protocol_map}
    return read_listener_security([listener(name)], pairs, FILES)[name].protocol


def test_a_listener_without_a_map_has_the_protocol_of_its_name_or_none() -> None:
    assert protocol("SSL") is SecurityProtocol.SSL
    assert protocol("PLAINTEXT") is SecurityProtocol.PLAINTEXT
    assert protocol("INTERNAL") is SecurityProtocol.PLAINTEXT


def test_the_map_gives_protocols_to_names() -> None:
    assert protocol("OUT", "IN:PLAINTEXT, out:ssl") is SecurityProtocol.SSL
    assert protocol("SSL", "SSL:PLAINTEXT") is SecurityProtocol.PLAINTEXT
    assert protocol("SSL", "OUT:PLAINTEXT") is SecurityProtocol.SSL


@pytest.mark.parametrize(
    ("name", "protocol_map", "message"),
    [
        ("OUT", "IN:SSL", "listener OUT has no row"),
        ("OUT", "OUT:TLS", "'OUT:TLS' is not NAME:PROTOCOL"),
        ("OUT", "OUT", "is not NAME:PROTOCOL"),
        ("OUT", "OUT:SSL,out:SSL", "out is there twice"),
    ],
)
def test_a_map_that_does_not_fit_is_rejected(name: str, protocol_map: str, message: str) -> None:
    with pytest.raises(InvalidSettings, match=message):
        protocol(name, protocol_map)


def test_an_encrypted_listener_needs_a_certificate() -> None:
    with pytest.raises(InvalidSettings, match="listener SSL encrypts and has no certificate"):
        read_listener_security([listener("SSL")], {}, {})


def test_the_http_port_asks_for_certificates_and_answers_without() -> None:
    values: dict[str, Value] = {**FILES, "tls-client-ca": "/ca.pem"}
    tls = read_http_tls({}, values, is_https=True)
    assert tls is not None
    assert tls.client_auth is ClientAuth.REQUESTED
    own = read_http_tls({"listener.name.https.ssl.client.auth": "required"}, values, is_https=True)
    assert own is not None
    assert own.client_auth is ClientAuth.REQUIRED
    assert read_http_tls({}, values, is_https=False) is None


@pytest.mark.parametrize(
    ("pairs", "values", "message"),
    [
        ({}, FILES, "--tls-cert: nothing encrypts"),
        ({"ssl.client.auth": "none"}, {}, "ssl.client.auth: nothing encrypts"),
        ({"listener.name.otu.ssl.client.auth": "none"}, {}, "no listener has the name otu; the names are out"),
    ],
)
def test_a_setting_that_protects_nothing_is_rejected(
    pairs: dict[str, str], values: dict[str, Value], message: str
) -> None:
    security = read_listener_security([listener("OUT")], {}, {})
    with pytest.raises(InvalidSettings, match=message):
        check_configs_are_used(security, None, pairs, values)


def test_settings_of_an_encrypted_listener_are_used() -> None:
    pairs = {"listener.name.ssl.ssl.client.auth": "none"}
    check_configs_are_used(read_listener_security([listener("SSL")], pairs, FILES), None, pairs, FILES)


def test_an_address_beyond_loopback_is_encrypted_or_the_message_says_how() -> None:
    address = ListenerAddress(name="PLAINTEXT", host="10.1.1.1", port=9092)
    check_is_protected("listen", address, is_encrypted=True)
    check_is_protected("listen", listener("PLAINTEXT"), is_encrypted=False)
    with pytest.raises(InvalidSettings, match=r"--listen SSL://10.1.1.1:9092 --tls-cert FILE --tls-key FILE"):
        check_is_protected("listen", address, is_encrypted=False)
    with pytest.raises(InvalidSettings, match=r"--http https://10.1.1.1:9644"):
        check_is_protected("http", HostPort(host="10.1.1.1", port=9644), is_encrypted=False)


CERTIFICATES = {"ssl.keystore.location": "/k.pem", "ssl.truststore.location": "/ca.pem"}
REQUIRED = {**CERTIFICATES, "listener.name.relay.ssl.client.auth": "required"}


class TestRelay:
    @pytest.mark.parametrize(
        ("protocols", "pairs", "is_authorizer_enabled", "message"),
        [
            ("RELAY:PLAINTEXT", {}, False, "add a listener for clients"),
            ("IN:PLAINTEXT,RELAY:SASL_PLAINTEXT", {"sasl.enabled.mechanisms": "PLAIN"}, False, "by certificates"),
            ("IN:SASL_PLAINTEXT,RELAY:PLAINTEXT", {"sasl.enabled.mechanisms": "PLAIN"}, True, "RELAY:SSL"),
            ("IN:SASL_PLAINTEXT,RELAY:PLAINTEXT", {"sasl.enabled.mechanisms": "PLAIN"}, False, "RELAY:SSL"),
            ("IN:PLAINTEXT,RELAY:PLAINTEXT", {}, True, "RELAY:SSL"),
            ("IN:PLAINTEXT,RELAY:SSL", CERTIFICATES, False, "client.auth=required"),
            (
                "IN:PLAINTEXT,RELAY:SSL",
                {**CERTIFICATES, "listener.name.relay.ssl.client.auth": "requested"},
                False,
                "client.auth=required",
            ),
        ],
    )
    def test_agents_that_could_be_anybody_are_not_believed(
        self, protocols: str, pairs: dict[str, str], is_authorizer_enabled: bool, message: str
    ) -> None:
        with pytest.raises(InvalidSettings, match=message):
            check_relay(security_of(protocols, pairs), is_authorizer_enabled=is_authorizer_enabled)

    @pytest.mark.parametrize(
        ("protocols", "pairs", "is_authorizer_enabled"),
        [
            ("IN:PLAINTEXT", {}, True),
            ("IN:PLAINTEXT,RELAY:PLAINTEXT", {}, False),
            ("IN:SASL_PLAINTEXT,RELAY:SSL", {**REQUIRED, "sasl.enabled.mechanisms": "PLAIN"}, True),
        ],
    )
    def test_other_agents_start(self, protocols: str, pairs: dict[str, str], is_authorizer_enabled: bool) -> None:
        check_relay(security_of(protocols, pairs), is_authorizer_enabled=is_authorizer_enabled)


def security_of(protocols: str, pairs: dict[str, str]) -> dict[str, ListenerSecurity]:
    names = [row.partition(":")[0] for row in protocols.split(",")]
    pairs = {"listener.security.protocol.map": protocols, **pairs}
    return read_listener_security([listener(name) for name in names], pairs, {})
