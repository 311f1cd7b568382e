"""The SASL of a listener, by Kafka's names."""

from collections.abc import Mapping

import pytest

from agent.config.option_sources import InvalidSettings
from agent.config.sasl_settings import SaslSettings, read_sasl


def test_without_settings_both_mechanisms_of_scram_are_enabled() -> None:
    settings = read_sasl("SASL_SSL", {})
    assert settings.mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")
    assert settings.reauth_ms == {"SCRAM-SHA-256": 0, "SCRAM-SHA-512": 0}
    assert settings.frame_bytes_max == 524_288
    assert settings.failure_delay_ms == 100
    assert not settings.sends_secrets


def test_a_listeners_own_settings_come_first_and_a_mechanisms_before_them() -> None:
    pairs = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.outside.sasl.enabled.mechanisms": "PLAIN, SCRAM-SHA-512",
        "connections.max.reauth.ms": "1",
        "listener.name.outside.connections.max.reauth.ms": "2",
        "listener.name.outside.plain.connections.max.reauth.ms": "3",
        "listener.name.outside.sasl.server.max.receive.size": "1000",
        "connection.failed.authentication.delay.ms": "0",
    }
    assert read_sasl("OUTSIDE", pairs) == SaslSettings(
        mechanisms=("PLAIN", "SCRAM-SHA-512"),
        reauth_ms={"PLAIN": 3, "SCRAM-SHA-512": 2},
        frame_bytes_max=1000,
        failure_delay_ms=0,
    )
    assert read_sasl("INSIDE", pairs).reauth_ms == {"PLAIN": 1}
    assert read_sasl("INSIDE", pairs).sends_secrets


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ({"sasl.enabled.mechanisms": ""}, "is empty; name one or more of SCRAM-SHA-256"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI is not there: it needs a Kerberos library"),
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-1"}, "'SCRAM-SHA-1' is no mechanism"),
        ({"connections.max.reauth.ms": "soon"}, "'soon' is not a number"),
        ({"sasl.server.max.receive.size": "100000000"}, "is not a number from 0 to 4194304"),
    ],
)
def test_a_wrong_setting_is_named(pairs: Mapping[str, str], message: str) -> None:
    with pytest.raises(InvalidSettings, match=message):
        read_sasl("SASL_SSL", pairs)
