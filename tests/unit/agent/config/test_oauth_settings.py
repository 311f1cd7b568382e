"""Whose tokens a listener accepts, by Kafka's names."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from agent.config.oauth_settings import KeySource, OauthSettings, check_oauth_is_used, read_http_oauth, read_oauth
from agent.config.option_sources import InvalidSettings
from agent.config.sasl_settings import read_sasl
from agent.config.settings import CliCommand, load_settings

URL, ISSUER, AUDIENCE = (
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.expected.audience",
)
COMPLETE = {URL: "https://issuer.example/jwks", ISSUER: "https://issuer.example", AUDIENCE: "penstock"}


def test_the_defaults_are_kafkas() -> None:
    assert read_oauth("OUTSIDE", COMPLETE) == OauthSettings(
        keys=KeySource(url="https://issuer.example/jwks", refresh_ms=3_600_000, backoff_ms=100, backoff_ms_max=10_000),
        issuer="https://issuer.example",
        audiences=("penstock",),
        subject_claim="sub",
        scope_claim="scope",
        groups_claim="",
        clock_skew_s=30,
    )


def test_every_setting_is_read() -> None:
    pairs = {
        URL: "file:///etc/my%20keys.json",
        ISSUER: "a",
        AUDIENCE: "b, c",
        "sasl.oauthbearer.clock.skew.seconds": "0",
        "sasl.oauthbearer.sub.claim.name": "email",
        "sasl.oauthbearer.scope.claim.name": "scp",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms": "1000",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "10",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "20",
        "penstock.oauthbearer.groups.claim": "groups",
        "penstock.oauthbearer.jwks.ssl.truststore.location": "/ca.pem",
        "penstock.oauthbearer.jwks.token.file": "/token",
    }
    oauth = read_oauth("OUTSIDE", pairs)
    assert oauth == OauthSettings(
        keys=KeySource(
            url="file:///etc/my%20keys.json",
            authorities=Path("/ca.pem"),
            token_file=Path("/token"),
            refresh_ms=1000,
            backoff_ms=10,
            backoff_ms_max=20,
        ),
        issuer="a",
        audiences=("b", "c"),
        subject_claim="email",
        scope_claim="scp",
        groups_claim="groups",
        clock_skew_s=0,
    )
    assert oauth.keys.path == Path("/etc/my keys.json")


def test_a_listeners_own_setting_with_the_mechanisms_prefix_comes_first() -> None:
    pairs = COMPLETE | {
        "listener.name.outside." + AUDIENCE: "own",
        "listener.name.outside.oauthbearer." + AUDIENCE: "of the mechanism",
        "listener.name.inside." + AUDIENCE: "own",
    }
    found = [read_oauth(name, pairs) for name in ("OUTSIDE", "INSIDE", "OTHER")]
    assert [oauth.audiences for oauth in found if oauth] == [("of the mechanism",), ("own",), ("penstock",)]


@pytest.mark.parametrize("missing", [ISSUER, AUDIENCE])
def test_without_issuer_or_audience_nothing_starts(missing: str) -> None:
    pairs = {name: value for name, value in COMPLETE.items() if name != missing}
    with pytest.raises(InvalidSettings, match=f"{missing} is not"):
        read_oauth("OUTSIDE", pairs)


def test_a_listener_with_the_mechanism_needs_keys() -> None:
    with pytest.raises(InvalidSettings, match=r"set sasl\.oauthbearer\.jwks\.endpoint\.url"):
        read_sasl("OUTSIDE", {"sasl.enabled.mechanisms": "OAUTHBEARER"})
    settings = read_sasl("OUTSIDE", {"sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN", **COMPLETE})
    assert settings.oauth == read_oauth("OUTSIDE", COMPLETE)
    assert settings.sends_secrets
    assert read_sasl("OUTSIDE", COMPLETE).oauth is None


@pytest.mark.parametrize(
    "url",
    [
        "http://issuer.example/jwks",
        "issuer.example",
        "https:///jwks",
        "https://user:password@issuer.example/jwks",
        "https://issuer.example/jwks#keys",
        "https://issuer.example:port/jwks",
        "https://[::1/jwks",
        "https://issuer.example:0/jwks",
        "file://host/keys",
        "file:keys",
    ],
)
def test_keys_come_over_tls_or_from_a_file(url: str) -> None:
    with pytest.raises(InvalidSettings, match="neither https"):
        read_oauth("OUTSIDE", COMPLETE | {URL: url})


@pytest.mark.parametrize("url", ["https://issuer.example:8443/jwks?version=1", "https://[::1]/", "file:///keys"])
def test_such_a_url_is_one(url: str) -> None:
    oauth = read_oauth("OUTSIDE", COMPLETE | {URL: url})
    assert oauth is not None
    assert oauth.keys.url == url


def test_http_accepts_tokens_where_its_settings_are_complete() -> None:
    assert read_http_oauth("HTTPS", COMPLETE) == read_oauth("HTTPS", COMPLETE)
    only_outside = {f"listener.name.outside.oauthbearer.{name}": value for name, value in COMPLETE.items()}
    assert read_http_oauth("HTTPS", only_outside) is None


@pytest.mark.parametrize("pairs", [{AUDIENCE: "a"}, {"listener.name.x.oauthbearer." + URL: "https://a/b"}])
def test_a_setting_that_nothing_uses_is_rejected(pairs: Mapping[str, str]) -> None:
    with pytest.raises(InvalidSettings, match="nothing accepts tokens"):
        check_oauth_is_used(pairs, is_used=False)
    check_oauth_is_used(pairs, is_used=True)
    check_oauth_is_used({"ssl.client.auth": "none"}, is_used=False)


def load(tmp_path: Path, listen: str, **others: object) -> OauthSettings | None:
    pairs = {**COMPLETE, "sasl.enabled.mechanisms": "OAUTHBEARER", "super.users": "User:a"}
    options = {"listen": (listen,), "data-dir": str(tmp_path), "set": pairs, **others}
    return load_settings(CliCommand.RUN, options, environment={}).http_oauth


def test_tokens_do_not_cross_a_network_in_the_clear(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="it does not encrypt"):
        load(tmp_path, "SASL_PLAINTEXT://10.0.0.1:9092")
    assert load(tmp_path, "SASL_PLAINTEXT://10.0.0.1:9092", insecure=True) is not None
    assert load(tmp_path, "SASL_PLAINTEXT://127.0.0.1:9092") is not None
