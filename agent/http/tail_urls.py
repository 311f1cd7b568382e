"""URLs for readers of one topic, each for one range of bytes of an intake object.

Rule: there are none before the store has shown that it holds to such a URL, which `agent.bucket.signed_range_check`
tries once at the start. Until then, and where it does not, readers get the bytes through the agent.
"""

import logging
import os
import ssl
from collections.abc import Mapping

from agent.bucket.signed_range_check import signed_range_faults
from agent.config.addresses import S3Url, read_store_url
from agent.config.settings import Settings
from agent.runtime.clock import Clock
from protocol.limits import HTTP_TAIL_URL_SECONDS
from storage.object_store import ObjectStore
from storage.s3.range_signer import RangeSigner
from storage.s3.settings import S3Settings
from storage.s3.signed_ranges import range_header

log = logging.getLogger(__name__)


def tail_urls(settings: Settings, clock: Clock, environment: Mapping[str, str] = os.environ) -> "TailUrls | None":
    """The URLs of an agent with these settings, before the check.

    None where the store is not S3, and without an authorizer, as every reader may read the whole bucket then.
    """
    if not settings.authorizer.is_enabled or not isinstance(read_store_url(settings.store_url), S3Url):
        return None
    s3 = S3Settings.from_environment(settings.store_url, environment)
    signer = RangeSigner(s3, readers_endpoint=settings.catalog_access.s3_endpoint)
    return TailUrls(signer, clock, None if s3.ca_bundle is None else str(s3.ca_bundle))


class TailUrls:
    """The URLs of one agent."""

    def __init__(self, signer: RangeSigner, clock: Clock, ca_file: str | None = None) -> None:
        """`ca_file`: PEM certificates that are trusted beside the system's."""
        self._signer = signer
        self._ca_file = ca_file
        self._clock = clock
        self.is_usable = False

    async def check(self, store: ObjectStore, agent_name: str) -> None:
        """Try the store. Raises `StoreUnavailable` where it has to be tried again."""
        trust = ssl.create_default_context()
        if self._ca_file is not None:
            trust.load_verify_locations(cafile=self._ca_file)
        faults = await signed_range_faults(
            self._signer, store, now_ms=self._clock.now_ms(), agent_name=agent_name, trust=trust
        )
        self.is_usable = not faults
        if faults:
            log.warning(
                "the store does not hold to URLs that are signed for one range: readers of one topic get the tail "
                "through the agent",
                extra={"reason": "; ".join(faults)},
            )
        else:
            log.info("readers of one topic get the tail by URLs that are signed for one range of bytes")

    async def sign(self, key: str, byte_first: int, byte_count: int) -> str:
        """The URL of a GET with the header `Range` for these bytes. Raises `StoreError`."""
        return await self._signer.sign(
            key, range_header(byte_first, byte_count), now_ms=self._clock.now_ms(), seconds=HTTP_TAIL_URL_SECONDS
        )
