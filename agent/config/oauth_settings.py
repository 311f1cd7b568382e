"""Whose bearer tokens are accepted, on one listener or over HTTP: the settings of OAUTHBEARER. No file is read here.

In: Kafka's configs. A listener's own one with the mechanism's prefix comes first, then the listener's own one, then the
general one. Out: `OauthSettings`, or None where the issuer's keys have no place.
Source: org.apache.kafka.common.security.oauthbearer.OAuthBearerConfig (Kafka 4.3), KIP-768.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from agent.config.option_sources import InvalidSettings

OAUTHBEARER: Final = "OAUTHBEARER"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySource:
    """Where the keys of an issuer are, and how often they are read. Settings that are equal share their keys."""

    url: str
    """An https or a file URL."""
    authorities: Path | None = None
    """The authorities of the issuer's server, in PEM; None for those that the machine trusts."""
    token_file: Path | None = None
    """A token that is sent with each request for the keys."""
    refresh_ms: int = 3_600_000
    backoff_ms: int = 100
    backoff_ms_max: int = 10_000

    @property
    def path(self) -> Path | None:
        """The file of the keys; None where they come from a server."""
        parts = urlsplit(self.url)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class OauthSettings:
    """The tokens that are accepted."""

    keys: KeySource
    issuer: str
    audiences: tuple[str, ...]
    """A token is for one of them at least."""
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    groups_claim: str = ""
    """The claim of the user's groups; "" where tokens have none."""
    clock_skew_s: int = 30


def read_oauth(listener: str, pairs: Mapping[str, str]) -> OauthSettings | None:
    """The tokens that a listener accepts. None where nothing says where the issuer's keys are.

    Raises `InvalidSettings` where the issuer or the audience is missing.

    Args:
        listener: the name.
        pairs: all broker configs that are set.
    """
    from coordinator.configs import oauth_configs as names  # late: importing the room takes time

    url = _text(listener, pairs, names.JWKS_URL)
    if not url:
        return None
    issuer = _text(listener, pairs, names.ISSUER)
    audiences = tuple(part.strip() for part in _text(listener, pairs, names.AUDIENCE).split(",") if part.strip())
    for name, value in ((names.ISSUER, issuer), (names.AUDIENCE, audiences)):
        if not value:
            raise InvalidSettings(
                f"{names.JWKS_URL} is set for listener {listener}, and {name} is not: without it tokens that were "
                f"issued for another service would be accepted. Set {name}"
            )

    def number(name: str) -> int:
        return int(_text(listener, pairs, name) or str(names.OAUTH_CONFIGS[name].default))

    def claim(name: str) -> str:
        return _text(listener, pairs, name) or names.OAUTH_CONFIGS[name].default or ""

    return OauthSettings(
        keys=KeySource(
            url=_checked_url(full_name(listener, pairs, names.JWKS_URL), url),
            authorities=_path(listener, pairs, names.JWKS_AUTHORITIES),
            token_file=_path(listener, pairs, names.JWKS_TOKEN_FILE),
            refresh_ms=number(names.REFRESH),
            backoff_ms=number(names.BACKOFF),
            backoff_ms_max=number(names.LONGEST_BACKOFF),
        ),
        issuer=issuer,
        audiences=audiences,
        subject_claim=claim(names.SUBJECT_CLAIM),
        scope_claim=claim(names.SCOPE_CLAIM),
        groups_claim=claim(names.GROUPS_CLAIM),
        clock_skew_s=number(names.CLOCK_SKEW),
    )


def read_http_oauth(listener: str, pairs: Mapping[str, str]) -> OauthSettings | None:
    """The tokens that the HTTP port accepts: None where the configs for it are not complete.

    `check_oauth_is_used` finds those that are not complete for any listener either.
    """
    from coordinator.configs import oauth_configs as names  # late: importing the room takes time

    is_complete = all(_text(listener, pairs, name) for name in (names.JWKS_URL, names.ISSUER, names.AUDIENCE))
    return read_oauth(listener, pairs) if is_complete else None


def check_oauth_is_used(pairs: Mapping[str, str], *, is_used: bool) -> None:
    """Raise `InvalidSettings` where configs of tokens are set, and no listener and no HTTP port accepts any."""
    if is_used or not pairs:
        return
    from coordinator.configs import oauth_configs as names  # late: importing the room takes time

    unused = next((name for name in pairs if _general_name(name, names.OAUTH_CONFIGS) is not None), None)
    if unused is not None:
        raise InvalidSettings(
            f"{unused}: nothing accepts tokens. Set {names.JWKS_URL}, {names.ISSUER} and {names.AUDIENCE}, and add "
            f"{OAUTHBEARER} to sasl.enabled.mechanisms"
        )


def full_name(listener: str, pairs: Mapping[str, str], name: str) -> str:
    """The name under which a config is set for a listener."""
    own = f"listener.name.{listener.lower()}."
    return next((full for full in (f"{own}oauthbearer.{name}", f"{own}{name}") if full in pairs), name)


def _general_name(name: str, known: Collection[str]) -> str | None:
    return next((each for each in known if name == each or name.endswith(f".{each}")), None)


def _text(listener: str, pairs: Mapping[str, str], name: str) -> str:
    return pairs.get(full_name(listener, pairs, name), "").strip()


def _path(listener: str, pairs: Mapping[str, str], name: str) -> Path | None:
    text = _text(listener, pairs, name)
    return Path(text).expanduser().absolute() if text else None


def _checked_url(name: str, text: str) -> str:
    try:
        parts = urlsplit(text)
        is_valid = _is_server(parts) or _is_file(parts)
    except ValueError:  # a port that is no number, or half an IPv6 address
        is_valid = False
    if not is_valid:
        raise InvalidSettings(
            f"{name}: {text!r} is neither https://HOST/PATH nor file:///PATH. The keys decide which tokens are valid, "
            "so they are not read over a connection that anybody could change"
        )
    return text


def _is_server(parts: SplitResult) -> bool:
    is_plain = parts.username is None and parts.password is None and not parts.fragment
    return parts.scheme == "https" and bool(parts.hostname) and parts.port != 0 and is_plain


def _is_file(parts: SplitResult) -> bool:
    return parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/")
