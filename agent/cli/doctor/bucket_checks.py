"""Checks of a bucket by `penstock doctor`: put, get, list, delete, conditional puts, and the store's clock.

They are those of an agent's start (`agent.bucket.permissions`), with the same messages. A message with its remedy after
a semicolon is shown in two lines.
"""

from collections.abc import AsyncIterator
from dataclasses import replace

from agent.bucket.conditional_puts import check_conditional_puts
from agent.bucket.permissions import denied_operations
from agent.cli.doctor.machine_checks import CheckStatus, DoctorFinding
from agent.config.addresses import S3Url, read_store_url
from agent.config.settings import Settings
from agent.runtime.clock import SystemClock
from agent.runtime.ids import SystemIds
from protocol.limits import CLOCK_SKEW_MS_MAX, DOCTOR_STORE_SECONDS_MAX
from storage.decorators.retrying import RetryPolicy
from storage.object_store import ObjectStore, StoreDenied, StoreError, StoreUnavailable


async def check_bucket(settings: Settings) -> AsyncIterator[DoctorFinding]:
    """The findings for a bucket in S3; none for an embedded store."""
    url = read_store_url(settings.store_url)
    if not isinstance(url, S3Url):
        return
    from agent.bucket.open_store import open_store
    from agent.runtime.metrics import Metrics

    clock = SystemClock()
    policy = RetryPolicy(deadline_s=DOCTOR_STORE_SECONDS_MAX)
    try:
        async with open_store(settings, clock, SystemIds(), Metrics(), policy=policy) as store:
            async for finding in _access(settings, store, clock):
                yield finding
            yield await _clock(store, clock)
        if url.prefix:
            whole_bucket = replace(settings, store_url=f"s3://{url.bucket}")
            async with open_store(whole_bucket, clock, SystemIds(), Metrics(), policy=policy) as store:
                yield await _reach(store, url)
    except StoreError as error:
        yield _failed(error)


async def _access(settings: Settings, store: ObjectStore, clock: SystemClock) -> AsyncIterator[DoctorFinding]:
    began_s = clock.monotonic_s()
    denied = await denied_operations(store)
    milliseconds = (clock.monotonic_s() - began_s) * 1000
    for error in denied:
        yield _failed(error)
    if denied:
        return
    text = f"{settings.store_url}: put, get, list and delete took {milliseconds:.0f} ms"
    yield DoctorFinding(name="bucket", verdict=CheckStatus.FINE, text=text)
    await check_conditional_puts(store, name=SystemIds().new_cluster_id())
    yield DoctorFinding(
        name="bucket", verdict=CheckStatus.FINE, text="a conditional put of an existing key is rejected"
    )


async def _reach(store: ObjectStore, url: S3Url) -> DoctorFinding:
    """Whether the keys list more than the prefix; `store` is the whole bucket."""
    try:
        async for _ in store.list(""):
            break
    except StoreDenied:
        text = f"the keys list nothing of {url.bucket} beside {url.prefix}/"
        return DoctorFinding(name="bucket", verdict=CheckStatus.FINE, text=text)
    return DoctorFinding(
        name="bucket",
        verdict=CheckStatus.DOUBTFUL,
        text=f"the keys list all of {url.bucket}, and an agent needs {url.prefix}/ alone",
        remedy='give agents the policy of docs/operations/access-to-storage.md, "Policies of the bucket"',
    )


def _failed(error: StoreError) -> DoctorFinding:
    text, _, remedy = str(error).partition("; ")
    if isinstance(error, StoreUnavailable):
        remedy = f"{remedy or 'check the address, and whether this machine can reach it'} (an agent waits for it)"
    return DoctorFinding(name="bucket", verdict=CheckStatus.FAILED, text=text, remedy=remedy)


async def _clock(store: ObjectStore, clock: SystemClock) -> DoctorFinding:
    server_ms = await store.server_time_ms()
    if server_ms is None:
        return DoctorFinding(name="clock", verdict=CheckStatus.FINE, text="the store has no clock of its own")
    skew_ms = clock.now_ms() - server_ms
    text = f"{skew_ms} ms ahead of the store's clock, which has whole seconds"
    if abs(skew_ms) > CLOCK_SKEW_MS_MAX:
        return DoctorFinding(
            name="clock",
            verdict=CheckStatus.FAILED,
            text=text,
            remedy="synchronise this machine's clock (NTP): until then an agent deletes and expires nothing",
        )
    return DoctorFinding(name="clock", verdict=CheckStatus.FINE, text=text)
