"""The keys of an issuer: kept while it is away, read early for an unknown key, and limited in how often."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from agent.config.oauth_settings import KeySource
from agent.config.option_sources import InvalidSettings
from agent.runtime.metrics import Metrics
from agent.runtime.notices import NoticeKind
from agent.security.oauth.issuer_keys import IssuerKeys
from agent.security.oauth.web_tokens import InvalidToken, read_web_token
from tests.support.agent.ledger_parts import ManualClock
from tests.support.agent.server_peers import until
from tests.support.auth.token_issuer import TokenIssuer, TokenKeys, sign, token_issuer
from tests.support.certificates import TestAuthority

CLAIMS = {"sub": "alice"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> TestAuthority:
    return TestAuthority(folder=tmp_path_factory.mktemp("issuer"))


@pytest.fixture
def issuer(authority: TestAuthority) -> Iterator[TokenIssuer]:
    with token_issuer(authority) as issuer:
        yield issuer


class PausedClock(ManualClock):
    """A clock whose time-outs end when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self._running: list[tuple[float | None, asyncio.Timeout]] = []

    @asynccontextmanager
    async def timeout(self, seconds: float | None) -> AsyncIterator[object]:
        async with asyncio.timeout(None) as timeout:
            entry = (seconds, timeout)
            self._running.append(entry)
            try:
                yield timeout
            finally:
                self._running.remove(entry)

    async def expire(self, seconds: float) -> None:
        """Ends a time-out of that length, once one runs."""
        await until(lambda: any(length == seconds for length, _ in self._running))
        timeout = next(timeout for length, timeout in self._running if length == seconds)
        timeout.reschedule(asyncio.get_running_loop().time())


class Kept:
    """The keys under test, and what they are told by."""

    def __init__(self, source: KeySource) -> None:
        self.clock = PausedClock()
        self.metrics = Metrics()
        self.url = source.url
        self.keys = IssuerKeys(source, clock=self.clock, metrics=self.metrics)

    async def accepts(self, token: str) -> bool:
        try:
            await self.keys.key_of(read_web_token(token))
        except InvalidToken:
            return False
        return True

    async def read(self, version: int) -> None:
        """Returns once keys of this version, or later ones, are there."""
        await until(lambda: self.keys.version >= version)

    async def fails(self, count: float) -> None:
        """Returns once so many readings have failed."""
        await until(lambda: self.failures() == count)

    def failures(self) -> float:
        found = self.metrics.registry.get_sample_value("penstock_issuer_keys_failures_total", {"url": self.url})
        return found or 0.0

    def age_s(self) -> float | None:
        return self.metrics.registry.get_sample_value("penstock_issuer_keys_age_seconds", {"url": self.url})


@asynccontextmanager
async def running(source: KeySource) -> AsyncIterator[Kept]:
    kept = Kept(source)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(kept.keys.run())
        yield kept
        task.cancel()


def of_server(issuer: TokenIssuer, authority: TestAuthority) -> KeySource:
    return KeySource(url=issuer.jwks_url, authorities=authority.ca_path)


async def test_keys_are_read_at_the_start_and_the_first_token_waits_for_them(
    issuer: TokenIssuer, authority: TestAuthority
) -> None:
    async with running(of_server(issuer, authority)) as kept:
        (notice,) = kept.keys.notices()
        assert notice.kind is NoticeKind.ISSUER_KEYS_MISSING
        assert issuer.jwks_url in notice.detail
        assert await kept.accepts(issuer.token())
        assert (kept.keys.version, kept.keys.notices(), kept.failures()) == (1, [], 0)
        kept.clock.seconds += 7
        assert kept.age_s() == 7
    (headers,) = issuer.key_requests
    assert headers["accept"] == "application/json"
    assert "authorization" not in headers


async def test_an_unknown_key_is_asked_for_early_once_a_minute_for_all(
    issuer: TokenIssuer, authority: TestAuthority
) -> None:
    async with running(of_server(issuer, authority)) as kept:
        await kept.read(1)
        issuer.rotate()
        tokens = [issuer.token(), issuer.token("bob"), *(sign(CLAIMS, issuer.keys[-1], kid=f"x{n}") for n in range(9))]
        assert [await kept.accepts(token) for token in tokens[:3]] == [True, True, False]
        kept.clock.seconds += 59
        issuer.rotate()
        assert not any([await kept.accepts(token) for token in [issuer.token(), *tokens[3:]]])
        assert len(issuer.key_requests) == 2
        kept.clock.seconds += 1
        assert all(await asyncio.gather(*(kept.accepts(issuer.token()) for _ in range(20))))
        assert len(issuer.key_requests) == 3


async def test_keys_stay_while_the_issuer_is_away_and_it_is_asked_after_growing_pauses(
    issuer: TokenIssuer, authority: TestAuthority
) -> None:
    async with running(replace(of_server(issuer, authority), backoff_ms=50, backoff_ms_max=100)) as kept:
        await kept.read(1)
        issuer.is_away = True
        for failures, pause_s in enumerate((3_600, 0.05, 0.1, 0.1), start=1):
            await kept.clock.expire(pause_s)
            await kept.fails(failures)
            assert await kept.accepts(issuer.token())
        issuer.is_away = False
        issuer.rotate(kept=1)
        await kept.clock.expire(0.1)
        await kept.read(2)
        assert await kept.accepts(issuer.token())
        assert kept.failures() == 4


async def test_an_agent_starts_while_the_issuer_is_away(issuer: TokenIssuer, authority: TestAuthority) -> None:
    issuer.is_away = True
    async with running(of_server(issuer, authority)) as kept:
        assert not await kept.accepts(issuer.token())
        assert kept.failures() == 1
        issuer.is_away = False
        await kept.clock.expire(0.1)
        await kept.read(1)
        assert await kept.accepts(issuer.token())


async def test_a_token_waits_for_keys_for_a_while_only(issuer: TokenIssuer, authority: TestAuthority) -> None:
    kept = Kept(of_server(issuer, authority))  # nothing runs, so no reading ends
    waiting = asyncio.ensure_future(kept.accepts(issuer.token()))
    await kept.clock.expire(5)
    assert not await waiting


async def test_the_keys_of_kubernetes_may_need_a_token(
    issuer: TokenIssuer, authority: TestAuthority, tmp_path: Path
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("own.token\n")
    async with running(KeySource(url=issuer.jwks_url, authorities=authority.ca_path, token_file=token_file)) as kept:
        await kept.read(1)
        assert issuer.key_requests[0]["authorization"] == "Bearer own.token"
        token_file.write_text("a\r\nHost: b")
        await kept.clock.expire(3_600)
        await kept.fails(1)


async def test_a_file_of_keys_is_read_at_the_start_and_after_a_change(tmp_path: Path) -> None:
    keys, path = TokenKeys(), tmp_path / "keys"
    path.write_text(keys.key_set())
    async with running(KeySource(url=f"file://{path}")) as kept:
        assert await kept.accepts(keys.token())
        for text, pause_s in (("", 10), ("\udcff", 0.1)):
            path.write_bytes(text.encode(errors="surrogateescape"))
            before = kept.failures()
            await kept.clock.expire(pause_s)
            await kept.fails(before + 1)
            assert await kept.accepts(keys.token())
        keys.rotate()
        path.write_text(keys.key_set())
        assert await kept.accepts(keys.token())
        assert kept.keys.version == 2


@pytest.mark.parametrize("text", [None, "", "{}", '{"keys": []}', "x" * (1 << 21)])
def test_an_agent_does_not_start_with_a_file_that_is_no_key_set(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "keys"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidSettings, match="the keys of the issuer of tokens"):
        Kept(KeySource(url=f"file://{path}"))


def test_an_agent_does_not_start_without_the_file_of_authorities(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="no file of authorities"):
        Kept(KeySource(url="https://issuer.example", authorities=tmp_path / "ca.pem"))
