"""The check whether a store holds to what a signed URL allows: one range of bytes of one object, for some minutes.

In: a signer and the store. Out: what was read although it may not be, and what was not although it may.
Rule: an agent gives such URLs to readers of one topic only after this check, as an intake object has chunks of many
topics. A fault of the network proves nothing, and is an error.
Source: Amazon S3 API Reference, "Authenticating Requests: Using Query Parameters" (signed headers, X-Amz-Expires).
"""

import ssl
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import urlsplit

from agent.bucket.permissions import CHECKS_PREFIX
from agent.runtime.threads import run_in_thread
from protocol.limits import HTTP_TAIL_URL_SECONDS, STORE_CLOCK_SKEW_SECONDS_MAX, STORE_SIGNED_CHECK_SECONDS_MAX
from storage.object_store import ObjectStore, StoreUnavailable
from storage.s3.range_signer import RangeSigner
from storage.s3.signed_ranges import range_header

CONTENT: Final = b"penstock signs a range of these bytes"
BYTE_FIRST: Final = 9
BYTE_COUNT: Final = 5
_SIGNED: Final = range_header(BYTE_FIRST, BYTE_COUNT)
_OTHER: Final = range_header(0, len(CONTENT))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """A request, with these headers `Range`. `url` is signed for `_SIGNED`."""

    name: str
    url: str
    ranges: tuple[str, ...]
    is_allowed: bool = False


async def signed_range_faults(
    signer: RangeSigner, store: ObjectStore, *, now_ms: int, agent_name: str, trust: ssl.SSLContext | None = None
) -> list[str]:
    """The faults of the store, in words; empty where it may be trusted with signed ranges.

    `agent_name`: keeps the object of this check apart from those of other agents. `trust`: for a store with TLS.
    Raises `StoreUnavailable` where it does not answer.
    """
    key = f"{CHECKS_PREFIX}signed-{agent_name}"
    await store.put(key, [CONTENT])
    try:
        url, late = [
            await signer.sign(key, _SIGNED, now_ms=time_ms, seconds=HTTP_TAIL_URL_SECONDS, is_for_readers=False)
            # A store's clock may be behind by what it accepts of other clients.
            for time_ms in (now_ms, now_ms - (HTTP_TAIL_URL_SECONDS + STORE_CLOCK_SKEW_SECONDS_MAX) * 1000)
        ]
        attempts = (
            _Attempt(name="the signed range", url=url, ranges=(_SIGNED,), is_allowed=True),
            _Attempt(name="another range", url=url, ranges=(_OTHER,)),
            _Attempt(name="two ranges", url=url, ranges=(_SIGNED, _OTHER)),
            _Attempt(name="two ranges the other way round", url=url, ranges=(_OTHER, _SIGNED)),
            _Attempt(name="no range", url=url, ranges=()),
            _Attempt(name="the signed range after its time", url=late, ranges=(_SIGNED,)),
        )
        return await run_in_thread(_faults, attempts, trust)
    finally:
        await store.delete([key])


def _faults(attempts: Sequence[_Attempt], trust: ssl.SSLContext | None) -> list[str]:
    faults: list[str] = []
    for attempt in attempts:
        status, body = _ask(attempt, trust)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise StoreUnavailable(f"the check of signed ranges: the store answers {status}")
        if attempt.is_allowed:
            expected = CONTENT[BYTE_FIRST : BYTE_FIRST + BYTE_COUNT]
            if status != HTTPStatus.PARTIAL_CONTENT or body != expected:
                faults.append(f"{attempt.name} cannot be read: status {status}")
        elif status < HTTPStatus.BAD_REQUEST:
            faults.append(f"{attempt.name} can be read: status {status}")
    return faults


def _ask(attempt: _Attempt, trust: ssl.SSLContext | None) -> tuple[int, bytes]:
    """The status and the body of the response."""
    address = urlsplit(attempt.url)
    host, seconds = address.hostname or "", STORE_SIGNED_CHECK_SECONDS_MAX
    if address.scheme == "https":
        connection: HTTPConnection = HTTPSConnection(host, address.port, timeout=seconds, context=trust)
    else:
        connection = HTTPConnection(host, address.port, timeout=seconds)
    try:
        with closing(connection):
            connection.putrequest("GET", f"{address.path}?{address.query}", skip_accept_encoding=True)
            for value in attempt.ranges:
                connection.putheader("Range", value)
            connection.endheaders()
            response = connection.getresponse()
            return response.status, response.read()
    except (OSError, HTTPException) as error:
        raise StoreUnavailable(f"the check of signed ranges: {error}") from error
