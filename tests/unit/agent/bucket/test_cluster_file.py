"""The object by which a bucket names its ledger."""

import re
from collections.abc import Sequence

import msgspec
import pytest

from agent.bucket.bucket_watch import BucketWatch
from agent.bucket.cluster_file import CLUSTER_KEY, ClusterFile, read_cluster_file
from agent.bucket.cluster_identity import AnotherBucket, check_bucket
from coordinator.ledger.memory import MemoryLedger
from coordinator.ledger.port import LedgerCorrupt, LedgerIdentity
from protocol.types import Position
from storage.memory_store import MemoryStore
from tests.support.agent.ledger_parts import ManualClock


def places_of(word: str, data: bytes) -> range:
    first = data.index(word.encode())
    return range(first, first + len(word))


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
