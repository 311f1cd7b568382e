"""Broker configs of security: names with a listener's prefix, files of secrets, and hidden values."""

import pytest

from coordinator.configs.broker_configs import BROKER_CONFIGS
from coordinator.configs.config_entries import broker_entry
from coordinator.configs.config_types import ConfigSource, ConfigType
from coordinator.configs.security_configs import (
    HIDDEN,
    LISTENER_CONFIGS,
    is_secret,
    listener_config,
    security_spec,
    without_secrets,
)


def test_every_config_of_a_listener_is_a_broker_config() -> None:
    assert all(name in BROKER_CONFIGS for name in LISTENER_CONFIGS)


@pytest.mark.parametrize(
    ("name", "is_known"),
    [
        ("ssl.client.auth", True),
        ("listener.security.protocol.map", True),
        ("listener.name.internal.ssl.client.auth", True),
        ("listener.name.internal.listener.security.protocol.map", False),
        ("listener.name.Internal.ssl.client.auth", False),
        ("listener.name.internal.penstock.sni.a.example.cert", True),
        ("listener.name.internal.penstock.sni.*.example.key", True),
        ("listener.name.internal.penstock.sni.a.example.pem", False),
        ("penstock.sni.a.example.cert", False),
        ("listener.name.internal.max.connections", True),
        ("listener.name.internal.max.connection.creation.rate", True),
        ("listener.name.internal.scram-sha-256.connections.max.reauth.ms", True),
        ("scram-sha-256.connections.max.reauth.ms", False),
        ("listener.name.internal.oauthbearer.connections.max.reauth.ms", True),
        ("sasl.oauthbearer.jwks.endpoint.url", True),
        ("listener.name.internal.sasl.oauthbearer.jwks.endpoint.url", True),
        ("listener.name.internal.oauthbearer.sasl.oauthbearer.jwks.endpoint.url", True),
        ("listener.name.internal.oauthbearer.penstock.oauthbearer.groups.claim", True),
        ("listener.name.internal.oauthbearer.ssl.client.auth", False),
        ("oauthbearer.sasl.oauthbearer.jwks.endpoint.url", False),
        ("ssl.key.password.file", True),
        ("listener.name.internal.ssl.keystore.key.file", True),
        ("ssl.client.auth.file", False),
        ("ssl.protocol", False),
    ],
)
def test_a_name_is_known_or_not(name: str, *, is_known: bool) -> None:
    assert (security_spec(name) is not None) is is_known


def test_the_config_of_a_listener_has_its_full_name_and_no_default() -> None:
    spec = security_spec("listener.name.a_1.ssl.client.auth")
    assert spec is not None
    assert (spec.name, spec.default, spec.choices) == (
        "listener.name.a_1.ssl.client.auth",
        None,
        ("none", "requested", "required"),
    )
    assert listener_config("listener.name.a_1.ssl.client.auth") == ("a_1", "ssl.client.auth")


def test_secrets_are_hidden_and_their_files_are_not() -> None:
    assert without_secrets(
        {
            "ssl.key.password": "x",
            "listener.name.a.ssl.keystore.key": "y",
            "ssl.keystore.password.file": "/f",
            "ssl.client.auth": "none",
        }
    ) == {
        "ssl.key.password": HIDDEN,
        "listener.name.a.ssl.keystore.key": HIDDEN,
        "ssl.keystore.password.file": "/f",
        "ssl.client.auth": "none",
    }
    assert not is_secret("no.such.config")


def test_any_text_is_a_password() -> None:
    spec = BROKER_CONFIGS["ssl.key.password"]
    assert spec.type is ConfigType.PASSWORD
    spec.validate("")
    spec.validate("a,a")


def test_the_entry_of_a_listeners_config_names_its_source() -> None:
    name = "listener.name.a.ssl.client.auth"
    entry = broker_entry([(ConfigSource.STATIC_BROKER, {name: "required"})], name)
    assert (entry.value, entry.source) == ("required", ConfigSource.STATIC_BROKER)
