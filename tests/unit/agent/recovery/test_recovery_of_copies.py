"""A recovery from a copy of the bucket that lacks an object, as of a region whose last objects had not been copied.

Each object in turn is left out. Then everything comes back all the same, or the report names what does not.
"""

import pytest

from agent.bucket.cluster_file import CLUSTER_KEY
from agent.recovery.number_gaps import NumberGap
from coordinator.ledger.memory import MemoryLedger
from coordinator.ledger.port import LedgerCorrupt
from protocol.types import ObjectNumber, SessionId
from storage.refs import INTAKE_PREFIX, intake_key
from tests.support.agent.recovery_clusters import (
    ACCEPTING,
    TimedStore,
    all_keys,
    lived,
    log_end,
    put_intake,
    recover,
    state_of,
)

RECORDS = 12
SESSION = SessionId(1)
NEWEST = intake_key(SESSION, ObjectNumber(2))


async def keys_of_copies() -> list[str]:
    store = TimedStore()
    await lived(store)
    return sorted(await all_keys(store))


async def test_each_object_that_a_copy_lacks_costs_nothing_or_is_named() -> None:
    keys = await keys_of_copies()
    assert len([key for key in keys if key.startswith(INTAKE_PREFIX)]) == 3
    costs: dict[str, int] = {}
    for lacking in keys:
        store = TimedStore()
        ledger = await lived(store)
        await store.delete([lacking])
        if lacking == CLUSTER_KEY:
            with pytest.raises(LedgerCorrupt, match=r"has no cluster\.json"):
                await recover(ledger, store)
            continue
        report = await recover(ledger, store)
        if not report.is_carried_out:
            assert lacking in report.missing
            report = await recover(ledger, store, ACCEPTING)
        assert report.is_carried_out
        state = await state_of(ledger, store)
        lost = sum(topic.offsets_lost for topic in report.topics)
        costs[lacking] = RECORDS - log_end(state) + lost
        named = {*report.missing, *(gap.text for gap in report.number_gaps)}
        # No later object shows that the newest one is missing.
        assert costs[lacking] == 0 or lacking in {*named, NEWEST}
    assert {key for key, cost in costs.items() if cost} == {
        intake_key(SESSION, ObjectNumber(number)) for number in range(3)
    }


async def test_numbers_are_missing_behind_what_the_snapshot_knows_alone() -> None:
    store = TimedStore()
    ledger = await lived(store)
    newer = SessionId(1 << 20)
    await put_intake(store, newer, 2, (-1, -1))
    await put_intake(store, newer, 3, (-1, -1))
    report = await recover(ledger, store)
    assert report.number_gaps == [NumberGap(session=newer, first=ObjectNumber(0), last=ObjectNumber(1))]
    assert report.number_gaps[0].text == f"{intake_key(newer, ObjectNumber(0))} to {intake_key(newer, ObjectNumber(1))}"


async def test_a_bucket_that_lacks_nothing_has_no_gaps() -> None:
    store = TimedStore()
    ledger: MemoryLedger = await lived(store)
    report = await recover(ledger, store)
    assert (report.number_gaps, report.is_carried_out) == ([], True)
