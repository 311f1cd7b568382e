"""What `penstock doctor` asks of a bucket: reachable, writable, clocks agree.

Rule: one object is written under a key of its own, read and deleted; nothing else is touched.
"""

import os
from collections.abc import AsyncIterator

from agent.addresses import S3Url, read_store_url
from agent.clock import SystemClock
from agent.commands.machine_checks import Finding, Verdict
from agent.ids import SystemIds
from agent.settings import Settings
from protocol.limits import CLOCK_SKEW_MS_MAX, DOCTOR_STORE_SECONDS_MAX
from storage.object_store import ObjectStore, StoreError, StoreMisconfigured
from storage.retrying import RetryPolicy

PROBE = b"penstock doctor"


async def check_bucket(settings: Settings) -> AsyncIterator[Finding]:
    """Checks of what is not on this machine; nothing for `penstock run`."""
    if isinstance(read_store_url(settings.store_url), S3Url):
        refused = _variables(os.environ.get("AWS_ENDPOINT_URL", ""))
        for finding in refused:
            yield finding
        if not refused:
            async for finding in _store(settings):
                yield finding


def _variables(endpoint: str) -> list[Finding]:
    if endpoint.startswith("http://") and os.environ.get("AWS_ALLOW_HTTP", "").lower() not in ("true", "1"):
        remedy = "set AWS_ALLOW_HTTP=true if the network is yours alone"
        text = f"AWS_ENDPOINT_URL={endpoint} is not encrypted"
        return [Finding(name="bucket", verdict=Verdict.FAILED, text=text, remedy=remedy)]
    return []


async def _store(settings: Settings) -> AsyncIterator[Finding]:
    from agent.components import open_store
    from agent.metrics import Metrics

    ids, clock = SystemIds(), SystemClock()
    try:
        policy = RetryPolicy(deadline_s=DOCTOR_STORE_SECONDS_MAX)
        async with open_store(settings, clock, ids, Metrics(), policy=policy) as store:
            key = f"doctor/{ids.new_uuid().hex()}"
            began_s = clock.monotonic_s()
            await store.put(key, [PROBE])
            is_same = await store.get(key) == PROBE
            await store.delete([key])
            milliseconds = (clock.monotonic_s() - began_s) * 1000
            yield Finding(
                name="bucket",
                verdict=Verdict.FINE if is_same else Verdict.FAILED,
                text=f"{settings.store_url}: write, read and delete took {milliseconds:.0f} ms",
                remedy="" if is_same else "what was read is not what was written: do not use this store",
            )
            yield await _clock(store, clock)
    except StoreMisconfigured as error:
        remedy = "check the bucket's name, AWS_ENDPOINT_URL, AWS_REGION, and the keys' rights to put, get, list, delete"
        yield Finding(name="bucket", verdict=Verdict.FAILED, text=str(error), remedy=remedy)
    except StoreError as error:
        remedy = "is the address right, and may this machine reach it?"
        yield Finding(name="bucket", verdict=Verdict.FAILED, text=str(error), remedy=remedy)


async def _clock(store: ObjectStore, clock: SystemClock) -> Finding:
    server_ms = await store.server_time_ms()
    if server_ms is None:
        return Finding(name="clock", verdict=Verdict.FINE, text="the store has no clock of its own")
    skew_ms = clock.now_ms() - server_ms
    text = f"{skew_ms} ms ahead of the store's (which counts whole seconds)"
    if abs(skew_ms) > CLOCK_SKEW_MS_MAX:
        return Finding(name="clock", verdict=Verdict.FAILED, text=text, remedy="synchronise it (NTP): see rule S2")
    return Finding(name="clock", verdict=Verdict.FINE, text=text)
