"""Ledger and bucket of one cluster, or no agent."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec
import pytest

from agent.bucket.cluster_identity import (
    CLUSTER_KEY,
    AnotherBucket,
    BucketWatch,
    ClusterFile,
    check_bucket,
    check_reached,
    claim_bucket,
    read_cluster_file,
)
from coordinator.ledger.memory import MemoryLedger, MemoryLedgerCore
from coordinator.ledger.port import Ledger, LedgerCorrupt, LedgerEntry, LedgerIdentity, LedgerUnavailable
from protocol.limits import BUCKET_CHECK_INTERVAL_S
from protocol.types import ObjectNumber, Position, SessionId
from storage.decorators.failing import FailingStore, FaultKind, InjectedFault, StoreOperation
from storage.memory_store import MemoryStore
from storage.object_store import ObjectMeta, ObjectStore
from storage.refs import intake_key, reached_key, snapshot_key
from tests.support.agent.ledger_parts import ManualClock

MINE = LedgerIdentity(cluster_id="mine", incarnation=1)


def places_of(word: str, data: bytes) -> range:
    first = data.index(word.encode())
    return range(first, first + len(word))


async def test_a_new_ledger_claims_an_empty_bucket_once() -> None:
    store = MemoryStore()
    await check_bucket(store, MINE)
    claim = await store.get(CLUSTER_KEY)
    assert b'"cluster_id":"mine"' in claim
    await check_bucket(store, MINE)
    await check_bucket(store, MINE, appends_count=7)
    assert await store.get(CLUSTER_KEY) == claim


@pytest.mark.parametrize(
    "other", [LedgerIdentity(cluster_id="other", incarnation=1), LedgerIdentity(cluster_id="mine", incarnation=2)]
)
@pytest.mark.parametrize("appends_count", [0, 1])
async def test_a_bucket_of_another_cluster_or_incarnation_is_refused_and_left_alone(
    other: LedgerIdentity, appends_count: int
) -> None:
    store = MemoryStore()
    await check_bucket(store, MINE)
    claim = await store.get(CLUSTER_KEY)
    with pytest.raises(LedgerCorrupt, match="the bucket belongs to cluster mine, incarnation 1, but the ledger to"):
        await check_bucket(store, other, appends_count=appends_count)
    assert await store.get(CLUSTER_KEY) == claim


async def test_a_ledger_in_use_does_not_claim_an_empty_bucket() -> None:
    store = MemoryStore()
    with pytest.raises(LedgerCorrupt, match=r"in use, but its bucket has no cluster\.json"):
        await check_bucket(store, MINE, appends_count=1)
    assert [meta async for meta in store.list("")] == []


@pytest.mark.parametrize("claim", [b'{"cluster_id":', b'{"cluster_id":"m\xe9ne","incarnation":1,"bucket_id":"b"}'])
async def test_a_claim_that_cannot_be_read_is_no_claim(claim: bytes) -> None:
    store = MemoryStore()
    await store.put(CLUSTER_KEY, [claim])
    with pytest.raises(LedgerCorrupt, match=r"damaged .*docs/operations/bucket"):
        await check_bucket(store, MINE)


async def test_where_the_ledger_knows_its_bucket_a_damaged_claim_is_reported_with_what_it_was() -> None:
    store = MemoryStore()
    mine = LedgerIdentity(cluster_id="mine", incarnation=1, bucket_id="b")
    await store.put(CLUSTER_KEY, [b'{"cluster_id":"m\xe9ne"}'])
    with pytest.raises(LedgerCorrupt) as caught:
        await check_bucket(store, mine, appends_count=3)
    of_before = '{"cluster_id":"mine","incarnation":1,"format_version":1,"bucket_id":"b"}'
    content = of_before.replace("}", ',"checksum":"65dcd57e00170250"}')
    assert str(caught.value).endswith(content)
    for put_back in (content, of_before):
        await store.put(CLUSTER_KEY, [put_back.encode()])
        assert (await check_bucket(store, mine, appends_count=3)).identity == mine


async def test_where_the_ledger_knows_its_bucket_a_missing_claim_is_named_with_what_it_was() -> None:
    store = MemoryStore()
    mine = LedgerIdentity(cluster_id="mine", incarnation=1, bucket_id="b")
    with pytest.raises(
        AnotherBucket, match=r"docs/operations/bucket\.md, \"cluster\.json is damaged or missing\""
    ) as caught:
        await check_bucket(store, mine, appends_count=3)
    content = re.search(r"it would be ({.*?})", str(caught.value))
    assert content is not None
    await store.put(CLUSTER_KEY, [content[1].encode()])
    assert (await check_bucket(store, mine, appends_count=3)).identity == mine


async def test_a_name_that_may_be_mistyped_is_told_first_and_only_of_a_ledger_that_is_new() -> None:
    store = MemoryStore()
    await check_bucket(store, MINE)
    other = LedgerIdentity(cluster_id="other", incarnation=1)
    with pytest.raises(LedgerCorrupt, match=r"^is the ledger's name right\?.*mistyped.*belongs to cluster mine"):
        await check_bucket(store, other)
    for identity, appends_count in ((other, 1), (LedgerIdentity(cluster_id="mine", incarnation=2), 0)):
        with pytest.raises(LedgerCorrupt, match=r"^the bucket belongs to cluster mine"):
            await check_bucket(store, identity, appends_count=appends_count)


class TestClaiming:
    """S9: ledger and bucket name each other, so a ledger has one bucket and a bucket one ledger."""

    @staticmethod
    def agents(count: int) -> list[MemoryLedger]:
        core = MemoryLedgerCore(cluster_id="mine")
        return [MemoryLedger(core) for _ in range(count)]

    async def test_s9_of_two_buckets_that_are_claimed_for_one_new_ledger_the_second_is_refused(self) -> None:
        ledgers, stores = self.agents(2), (MemoryStore(), MemoryStore())
        for ledger, store, name in zip(ledgers, stores, ("one", "two"), strict=True):
            # Both looked before either claimed: so both buckets name the ledger.
            await check_bucket(store, await ledger.identity(), new_bucket_id=name)
        first = await claim_bucket(stores[0], ledgers[0], new_bucket_id="unused")
        assert first == LedgerIdentity(cluster_id="mine", incarnation=1, bucket_id="one")
        with pytest.raises(AnotherBucket, match=r"belongs to the bucket one, and this is the bucket two.*same --store"):
            await claim_bucket(stores[1], ledgers[1], new_bucket_id="unused")
        for ledger in ledgers:
            assert await claim_bucket(stores[0], ledger, new_bucket_id="unused") == first

    async def test_s9_a_ledger_that_has_a_bucket_claims_no_other_even_before_its_first_entry(self) -> None:
        (ledger,) = self.agents(1)
        await claim_bucket(MemoryStore(), ledger, new_bucket_id="one")
        empty = MemoryStore()
        with pytest.raises(AnotherBucket, match=r"belongs to the bucket one, and this one has no cluster\.json"):
            await claim_bucket(empty, ledger, new_bucket_id="two")
        assert [meta async for meta in empty.list("")] == []

    async def test_a_claim_that_was_interrupted_is_gone_on_with(self) -> None:
        store, (ledger, again) = MemoryStore(), self.agents(2)
        ledger.is_reachable = False
        await check_bucket(store, await again.identity(), new_bucket_id="one")
        with pytest.raises(LedgerUnavailable):
            await claim_bucket(store, ledger, new_bucket_id="two")
        assert (await claim_bucket(store, again, new_bucket_id="three")).bucket_id == "one"

    async def test_s9_a_copy_of_the_name_in_another_bucket_does_not_pass_for_it(self) -> None:
        store, other, (ledger,) = MemoryStore(), MemoryStore(), self.agents(1)
        await claim_bucket(store, ledger, new_bucket_id="one")
        copy = ClusterFile.of(LedgerIdentity(cluster_id="mine", incarnation=1, bucket_id="two"))
        await other.put(CLUSTER_KEY, [msgspec.json.encode(copy)])
        with pytest.raises(AnotherBucket, match="belongs to the bucket one, and this is the bucket two"):
            await claim_bucket(other, ledger, new_bucket_id="three")


class TestAnAgentThatRuns:
    """S9: it goes on looking whose its bucket is."""

    IDENTITY = LedgerIdentity(cluster_id="mine", incarnation=1, bucket_id="one")

    async def claimed(self) -> tuple[MemoryStore, BucketWatch]:
        store = MemoryStore()
        await check_bucket(store, LedgerIdentity(cluster_id="mine", incarnation=1), new_bucket_id="one")
        return store, self.watch(store)

    def watch(
        self,
        store: ObjectStore,
        *,
        ledger: Ledger | None = None,
        position: Callable[[], Position] = lambda: Position(0),
        clock: ManualClock | None = None,
    ) -> BucketWatch:
        return BucketWatch(
            store=store,
            ledger=MemoryLedger() if ledger is None else ledger,
            identity=self.IDENTITY,
            position=position,
            clock=ManualClock() if clock is None else clock,
        )

    async def test_s9_an_agent_that_had_not_read_past_the_backup_ends_when_it_goes_on(self) -> None:
        """The ledger that it reads was restored, and holds all that this agent has seen: only the bucket knows."""
        store, _ = await self.claimed()
        await store.put(reached_key(Position(9)), [b"x"])
        positions = iter((3, 3, 3, 4))
        watch = self.watch(store, ledger=await TestReached.ledger_at(4), position=lambda: Position(next(positions)))
        with pytest.raises(LedgerCorrupt, match="older copy"):
            await watch.run()
        assert list(positions) == []  # as long as nothing came, one look at the name was enough
        with pytest.raises(LedgerCorrupt, match="older copy"):
            await watch.is_ours()

    async def test_its_own_bucket(self) -> None:
        _, name = await self.claimed()
        assert await name.is_ours()

    @pytest.mark.parametrize(
        "other",
        [
            b'{"cluster_id":"mine","incarnation":2,"bucket_id":"one"}',
            b'{"cluster_id":"other","incarnation":1,"bucket_id":"one"}',
            b'{"cluster_id":"mine","incarnation":1,"bucket_id":"two"}',
        ],
    )
    async def test_s9_a_bucket_that_was_recovered_under_another_ledger_ends_it(self, other: bytes) -> None:
        store, name = await self.claimed()
        await store.put(CLUSTER_KEY, [other])
        with pytest.raises(AnotherBucket, match=r"recovered under another ledger's name.*docs/operations/recovery"):
            await name.is_ours()
        with pytest.raises(AnotherBucket):
            await name.run()

    @pytest.mark.parametrize("content", [None, b"", b'{"cluster_id":'])
    async def test_s9_where_the_bucket_says_nothing_it_is_told_once_and_nothing_may_be_deleted(
        self, content: bytes | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        store, name = await self.claimed()
        claim = await store.get(CLUSTER_KEY)
        await store.delete([CLUSTER_KEY])
        if content is not None:
            await store.put(CLUSTER_KEY, [content])
        assert [await name.is_ours() for _ in range(3)] == [False, False, False]
        (record,) = caplog.records
        assert "no garbage is deleted" in record.message
        await store.put(CLUSTER_KEY, [record.content.encode()])  # type: ignore[attr-defined]
        assert await name.is_ours()
        assert claim == await store.get(CLUSTER_KEY)

    async def test_a_store_that_is_away_is_asked_again(self) -> None:
        memory, _ = await self.claimed()
        store, clock = FailingStore(memory), ManualClock()
        store.script(InjectedFault(kind=FaultKind.BEFORE, operation=StoreOperation.GET))
        name = self.watch(store, clock=clock)

        async def recovered() -> None:
            while len(clock.slept) < 3:
                await clock.sleep(0)
                clock.slept.remove(0)
            await memory.put(CLUSTER_KEY, [b'{"cluster_id":"mine","incarnation":2}'])

        async def both() -> None:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(recovered())
                tasks.create_task(name.run())

        with pytest.raises(ExceptionGroup) as raised:
            await both()
        assert raised.group_contains(AnotherBucket)
        assert set(clock.slept) == {BUCKET_CHECK_INTERVAL_S}


class TestDamage:
    """S20: what a flipped bit made of the names is no other cluster's name."""

    MINE = LedgerIdentity(cluster_id="Gk2rTZLnQ7WPy-0dXn_5oA", incarnation=1, bucket_id="u8XbJ1cLRtqYdH3eVw6m9Q")
    FILE = msgspec.json.encode(ClusterFile.of(MINE))
    FILE_OF_BEFORE = FILE[: FILE.index(b',"checksum"')] + b"}"

    async def outcomes(self, damaged: bytes) -> tuple[bool, bool]:
        """Whether a start passes, and whether an agent that runs has no doubts. It never ends."""
        store = MemoryStore()
        await store.put(CLUSTER_KEY, [damaged])
        watch = BucketWatch(
            store=store,
            ledger=MemoryLedger(),
            identity=self.MINE,
            position=lambda: Position(0),
            clock=ManualClock(),
        )
        is_ours = await watch.is_ours()
        try:
            found = await check_bucket(store, self.MINE, appends_count=3)
        except AnotherBucket:
            raise
        except LedgerCorrupt as error:
            told = str(error)
        else:
            assert found.identity == self.MINE
            return True, is_ours
        assert re.search(r"damaged .*cluster\.json is damaged or missing.*it would be {", told)
        return False, is_ours

    async def believed(self, data: bytes, *, but_at: Sequence[int] = ()) -> set[int]:
        """Where a flipped bit is not noticed: the file says the same then."""
        places: set[int] = set()
        for bit in range(len(data) * 8):
            if bit // 8 in but_at:
                continue
            damaged = bytearray(data)
            damaged[bit // 8] ^= 1 << bit % 8
            starts, is_ours = await self.outcomes(bytes(damaged))
            assert starts is is_ours, damaged
            if is_ours:
                places.add(bit // 8)
        return places

    async def test_s20_no_flipped_bit_ends_an_agent_or_passes_for_another_cluster(self) -> None:
        assert await self.outcomes(self.FILE) == (True, True)
        assert await self.believed(self.FILE) == {
            *places_of("format_version", self.FILE),
            *places_of("checksum", self.FILE),
        }

    async def test_s20_nor_does_one_in_a_file_of_before_but_for_the_incarnation_s(self) -> None:
        file = self.FILE_OF_BEFORE
        assert await self.outcomes(file) == (True, True)
        incarnation, version = file.index(b":1,") + 1, file.rindex(b":1,") + 1
        assert await self.believed(file, but_at=[incarnation]) == {*places_of("format_version", file), version}
        with pytest.raises(AnotherBucket):
            await self.outcomes(file.replace(b'"incarnation":1', b'"incarnation":3'))

    @pytest.mark.parametrize(
        "other",
        [
            LedgerIdentity(cluster_id=MINE.cluster_id, incarnation=2, bucket_id=MINE.bucket_id),
            LedgerIdentity(cluster_id="Hk2rTZLnQ7WPy-0dXn_5oA", incarnation=1, bucket_id=MINE.bucket_id),
            LedgerIdentity(cluster_id=MINE.cluster_id, incarnation=1, bucket_id="v8XbJ1cLRtqYdH3eVw6m9Q"),
        ],
    )
    async def test_s9_a_whole_file_that_names_another_one_ends_it_however_near_the_name_is(
        self, other: LedgerIdentity
    ) -> None:
        with pytest.raises(AnotherBucket):
            await self.outcomes(msgspec.json.encode(ClusterFile.of(other)))

    @pytest.mark.parametrize("cluster_id", ["Hl2rTZLnQ7WPy-0dXn_5oA", "Gk2rTZLnQ7WPy-0dXn_5o"])
    async def test_s9_so_does_one_of_before_that_differs_by_more(self, cluster_id: str) -> None:
        with pytest.raises(AnotherBucket):
            await self.outcomes(self.FILE_OF_BEFORE.replace(self.MINE.cluster_id.encode(), cluster_id.encode()))

    async def test_programs_of_before_read_a_file_with_a_checksum(self) -> None:
        class OfBefore(msgspec.Struct, frozen=True, kw_only=True):
            cluster_id: str
            incarnation: int
            format_version: int = 1
            bucket_id: str = ""

        assert msgspec.json.encode(msgspec.json.decode(self.FILE, type=OfBefore)) == self.FILE_OF_BEFORE

    async def test_white_space_and_order_do_not_matter(self) -> None:
        store = MemoryStore()
        fields = reversed(msgspec.json.decode(self.FILE).items())
        await store.put(CLUSTER_KEY, [msgspec.json.format(msgspec.json.encode(dict(fields)))])
        assert await read_cluster_file(store) == ClusterFile.of(self.MINE)


class TestReached:
    """S9: a ledger that was further once is an older copy, and its agents would delete what it does not know."""

    @staticmethod
    async def ledger_at(position: int) -> MemoryLedger:
        ledger = MemoryLedger()
        session = await ledger.open_session("a")
        for number in range(position - session):
            await ledger.append(session, [LedgerEntry(number=number, payload=b"x")])
        assert (await ledger.head()).position == position
        return ledger

    @pytest.mark.parametrize(
        "key",
        [
            snapshot_key(Position(11)),
            reached_key(Position(11)),
            intake_key(SessionId(11), ObjectNumber(0)),
            intake_key(SessionId(1 << 50), ObjectNumber(3)),
        ],
    )
    async def test_s9_a_bucket_that_is_ahead_of_the_ledger_stops_the_start_and_keeps_everything(self, key: str) -> None:
        store = MemoryStore()
        await store.put(key, [b"x"])
        with pytest.raises(LedgerCorrupt, match=rf"(?s){key}.*ends at 10.*penstock recover"):
            await check_reached(store, await self.ledger_at(10))
        assert [meta.key async for meta in store.list("")] == [key]

    async def test_what_the_ledger_has_reached_is_no_contradiction(self) -> None:
        store = MemoryStore()
        for key in (
            snapshot_key(Position(10)),
            snapshot_key(Position(3)),
            reached_key(Position(10)),
            intake_key(SessionId(1), ObjectNumber(1 << 40)),
            intake_key(SessionId(9), ObjectNumber(0)),
            "intake/somebody's",
        ):
            await store.put(key, [b"x"])
        await check_reached(store, await self.ledger_at(10))

    async def test_what_comes_while_the_bucket_is_listed_is_no_contradiction(self) -> None:
        ledger = await self.ledger_at(10)

        class Busy(MemoryStore):
            async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectMeta]:
                session = await ledger.open_session(f"another for {prefix}")
                await ledger.append(session, [LedgerEntry(number=0, payload=b"x")])
                await self.put(intake_key(session, ObjectNumber(0)), [b"x"])
                await self.put(snapshot_key((await ledger.head()).position), [b"x"])
                async for meta in super().list(prefix, after=after):
                    yield meta

        await check_reached(Busy(), ledger)
