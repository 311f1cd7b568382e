"""The key of delegation tokens is Kafka's where it is set, else it follows from the agents' secret key."""

from pathlib import Path

import pytest

from agent.config.option_sources import InvalidSettings
from agent.config.secret_key import SecretKey
from agent.config.token_settings import KEY, TokenSettings, read_token_settings
from coordinator.configs.security_configs import is_secret

SECRET_KEY = SecretKey(bytes(32))


def test_without_a_key_there_are_no_tokens() -> None:
    settings = read_token_settings({}, None)
    assert settings == TokenSettings()
    assert (settings.key, settings.lifetime_ms, settings.renewal_ms) == (None, 604_800_000, 86_400_000)
    assert read_token_settings({KEY: ""}, SECRET_KEY).key is None


def test_kafkas_key_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("geheim ü\n", encoding="utf-8")
    assert read_token_settings({KEY: "geheim ü"}, SECRET_KEY).key == "geheim ü".encode()
    assert read_token_settings({f"{KEY}.file": str(path)}, SECRET_KEY).key == "geheim ü".encode()
    assert is_secret(KEY)


def test_the_secret_key_serves_under_a_purpose_of_its_own() -> None:
    key = read_token_settings({}, SECRET_KEY).key
    assert key is not None
    assert len(key) == 64
    assert key != read_token_settings({}, SecretKey(b"x" * 32)).key
    assert SECRET_KEY.value not in key


def test_the_times_are_kafkas_configs() -> None:
    settings = read_token_settings(
        {
            "delegation.token.max.lifetime.ms": "5000",
            "delegation.token.expiry.time.ms": "400",
            "delegation.token.expiry.check.interval.ms": "250",
        },
        None,
    )
    assert (settings.lifetime_ms, settings.renewal_ms, settings.check_interval_s) == (5_000, 400, 0.25)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ({KEY: "a", f"{KEY}.file": "b"}, "are both set"),
        ({f"{KEY}.file": "/nonexistent/key"}, "cannot be read"),
        ({f"{KEY}.file": "/dev/null"}, "is empty"),
    ],
)
def test_a_key_that_cannot_be_read_is_an_error(pairs: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSettings, match=message):
        read_token_settings(pairs, None)
