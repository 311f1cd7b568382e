"""The keys of one issuer: read at the start, again from time to time, and early where a token names an unknown one.

Rule: keys that were read stay until others are read, so while an issuer is away no good token is rejected. Keys
are read early once a minute at most, whatever tokens strangers send, and tokens wait for a reading that is under way.
Source: org.apache.kafka.common.security.oauthbearer.internals.secured.RefreshingHttpsJwks (Kafka 4.3). Differs from
Kafka: an agent starts while a server of keys is away, asks again until it answers, and reads a changed file again; the
token with the unknown key waits for the keys; the limit of early readings is one for all keys instead of for each.
"""

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from agent.config.oauth_settings import KeySource
from agent.config.option_sources import InvalidSettings
from agent.runtime.clock import Clock
from agent.runtime.metrics import Metrics
from agent.runtime.notices import Notice, NoticeKind
from agent.runtime.outages import Outage, OutageWords
from agent.runtime.threads import run_in_thread
from agent.security.oauth.key_download import IssuerUnavailable, download_keys
from agent.security.oauth.token_signatures import InvalidKeySet, IssuerKey, KeySet, read_key_set
from agent.security.oauth.web_tokens import InvalidToken, WebToken
from protocol.limits import (
    ISSUER_KEYS_BYTES_MAX,
    ISSUER_KEYS_EARLY_SECONDS,
    ISSUER_KEYS_FILE_SECONDS,
    ISSUER_KEYS_WAIT_SECONDS_MAX,
)

OPERATION: Final = "keys of the issuer of tokens"


class IssuerKeys:
    """The keys at one place. `run` has to run while tokens are checked."""

    def __init__(self, source: KeySource, *, clock: Clock, metrics: Metrics) -> None:
        """Reads the keys if they are in a file. Raises `InvalidSettings` where a file cannot be used."""
        self.version = 0
        """Another number after each change of the keys."""
        self._source = source
        self._clock = clock
        self._failures = metrics.issuer_keys_failures.labels(source.url)
        self._outage = Outage(
            OutageWords(
                fails="the keys of the issuer of tokens cannot be read; those that were read before stay in use",
                answers="the keys of the issuer of tokens are read again",
            ),
            monotonic_s=clock.monotonic_s,
        )
        self._text = ""
        self._keys = KeySet()
        self._read_s = -math.inf
        self._early_s = -math.inf
        self._reading: asyncio.Future[None] | None = None
        """Done when the reading ends that is under way or due at once; None while there is none."""
        self._is_wanted = asyncio.Event()
        metrics.issuer_keys_age_seconds.labels(source.url).set_function(lambda: clock.monotonic_s() - self._read_s)
        if source.authorities is not None and not source.authorities.is_file():
            raise InvalidSettings(f"{source.authorities}: no file of authorities for {source.url} is there")
        if source.path is not None:
            try:
                text = _read_file(source.path)
                self._use(text, read_key_set(text))
            except (IssuerUnavailable, InvalidKeySet) as error:
                raise InvalidSettings(f"the keys of the issuer of tokens, {source.url}: {error}") from error

    async def key_of(self, token: WebToken) -> IssuerKey:
        """The key that the token's signature has to be of. Raises `InvalidToken`."""
        key = self._keys.find(token)
        if key is None and self._is_reading_due():
            await self._wait()
            key = self._keys.find(token)
        if key is None:
            raise InvalidToken(
                "the keys of the token's issuer are not read yet"
                if not self._text
                else "the token's key is none of its issuer"
            )
        return key

    def notices(self) -> Sequence[Notice]:
        """A notice where no key was ever read."""
        detail = f"no keys could be read from {self._source.url}: no token is accepted; see the log for the reason"
        return [] if self._text else [Notice(kind=NoticeKind.ISSUER_KEYS_MISSING, detail=detail)]

    async def run(self) -> None:
        """Read the keys again and again, until it is cancelled."""
        interval_s = self._source.refresh_ms / 1000
        if self._source.path is not None:
            interval_s = min(interval_s, ISSUER_KEYS_FILE_SECONDS)
        backoff_s = self._source.backoff_ms / 1000
        if self._text:
            await self._pause(interval_s)
        while True:
            if await self._read():
                backoff_s = self._source.backoff_ms / 1000
                await self._pause(interval_s)
            else:
                await self._pause(backoff_s)
                backoff_s = min(2 * backoff_s, self._source.backoff_ms_max / 1000)

    def _is_reading_due(self) -> bool:
        """Whether keys are being read, or may be read now because a token asks for them."""
        if self._reading is not None:
            return True
        now_s = self._clock.monotonic_s()
        if now_s - self._early_s < ISSUER_KEYS_EARLY_SECONDS:
            return False
        self._early_s = now_s
        self._reading = asyncio.get_running_loop().create_future()
        self._is_wanted.set()
        return True

    async def _wait(self) -> None:
        """Returns when the reading under way has ended, or after a while."""
        assert self._reading is not None
        try:
            async with self._clock.timeout(ISSUER_KEYS_WAIT_SECONDS_MAX):
                await asyncio.shield(self._reading)
        except TimeoutError:
            pass  # the keys are those of before

    async def _pause(self, seconds: float) -> None:
        try:
            async with self._clock.timeout(seconds):
                await self._is_wanted.wait()
        except TimeoutError:
            pass  # no token asks for keys early

    async def _read(self) -> bool:
        """Read the keys once; whether that succeeded."""
        reading = self._reading or asyncio.get_running_loop().create_future()
        self._reading = reading
        self._is_wanted.clear()
        try:
            path = self._source.path
            text = await (download_keys(self._source, self._clock) if path is None else run_in_thread(_read_file, path))
            if text != self._text:
                self._use(text, await run_in_thread(read_key_set, text))
        except (IssuerUnavailable, InvalidKeySet) as error:
            self._failures.inc()
            self._outage.failed(OPERATION, str(error), key=self._source.url)
            return False
        finally:
            self._reading = None
            reading.set_result(None)
        self._read_s = self._clock.monotonic_s()
        self._outage.answered(OPERATION)
        return True

    def _use(self, text: str, keys: KeySet) -> None:
        self._text, self._keys = text, keys
        self.version += 1
        self._read_s = self._clock.monotonic_s()


def _read_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(ISSUER_KEYS_BYTES_MAX + 1)
    except OSError as error:
        raise IssuerUnavailable(f"it cannot be read: {error.strerror}") from error
    if len(content) > ISSUER_KEYS_BYTES_MAX:
        raise IssuerUnavailable(f"it is larger than {ISSUER_KEYS_BYTES_MAX} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise IssuerUnavailable("it is not UTF-8") from error
