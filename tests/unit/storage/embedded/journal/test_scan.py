"""The contents of a file of a journal, and the judgement on what cannot be read: damage, or torn by a crash."""

from collections.abc import Callable

import pytest
from crc32c import crc32c

from storage.embedded.journal.format import FILE_HEADER_BYTES, FileHeader, RecordKind
from storage.embedded.journal.scan import (
    NO_WRITE,
    SEARCH_BYTES,
    FileScan,
    JudgedFile,
    LocatedRecord,
    judge,
    scan_file,
    successor_of,
)
from tests.support.journal.journal_bytes import (
    NONCE,
    NUMBER,
    a_state,
    a_write,
    an_end,
    an_entry,
    an_object,
    flipped,
    header,
    records_of,
)

OLD_NONCE = bytes(range(200, 216))
ONE = a_write(0, an_object("a"), an_entry(b"1"))
TWO = a_write(1, an_entry(b"2"))
THREE = a_write(2, an_object("c"), an_entry(b"3"))


def read_of(content: bytes) -> Callable[[int, int], bytes]:
    return lambda byte_count, position: content[position : position + byte_count]


def scanned(content: bytes, number: int = NUMBER) -> FileScan:
    scan = scan_file(read_of(content), number)
    assert scan is not None
    return scan


def judged(
    content: bytes, *, durable_write: int | None = None, write_end: int | None = None, number: int = NUMBER
) -> JudgedFile:
    """The judgement on a file alone, or on one of a journal that says more."""
    scan = scanned(content, number)

    def is_whole(each: LocatedRecord) -> bool:
        first = each.position + each.record.payload_first
        return crc32c(content[first : first + each.record.payload_bytes]) == each.record.payload_crc

    durable = scan.durable_write if durable_write is None else durable_write
    return judge(scan, durable_write=durable, write_end=write_end, is_whole=is_whole)


def writes(found: JudgedFile) -> list[int]:
    return sorted({each.record.write for each in found.records})


class TestWhole:
    def test_everything_counts_up_to_the_end(self) -> None:
        content = header() + ONE + TWO + an_end(2)
        found = judged(content + b"JREC what was here before")
        assert [each.record.kind for each in found.records] == [RecordKind.OBJECT, RecordKind.ENTRY, RecordKind.ENTRY]
        assert (found.end, found.write_end) == (len(header() + ONE + TWO), 2)
        assert (found.is_torn, list(found.damages), found.damaged_write) == (False, [], NO_WRITE)

    def test_the_last_write_counts_where_its_payloads_are_whole(self) -> None:
        found = judged(header() + ONE + TWO)
        assert (writes(found), found.is_torn) == ([0, 1], False)

    def test_behind_it_may_be_zeros_or_an_earlier_use_of_the_file(self) -> None:
        old = a_write(7, an_object("old"), an_entry(b"old"), nonce=OLD_NONCE)
        for behind in (bytes(5_000), old, old[8:]):
            found = judged(header() + ONE + behind)
            assert (writes(found), found.is_torn, list(found.damages)) == ([0], False, [])

    def test_a_file_of_nothing_but_its_header_is_empty(self) -> None:
        found = judged(header(4))
        assert (list(found.records), found.end, found.write_end, found.is_torn) == ([], FILE_HEADER_BYTES, 4, False)

    def test_an_end_says_which_file_comes_next(self) -> None:
        assert successor_of(scanned(header() + ONE + an_end(1, successor=9))) == 9
        assert successor_of(scanned(header() + ONE + an_end(1))) is None
        assert successor_of(scanned(header() + ONE)) is None


class TestTorn:
    """Only the last write can be torn, and of it nothing counts."""

    @pytest.mark.parametrize("cut", range(8, len(THREE), 8))
    def test_a_write_of_which_the_end_is_missing(self, cut: int) -> None:
        found = judged(header() + ONE + TWO + THREE[:cut] + bytes(500))
        assert (writes(found), found.write_end, list(found.damages)) == ([0, 1], 2, [])
        assert found.end == len(header() + ONE + TWO)
        assert found.is_torn is (cut >= 24), "of a header without its nonce nothing is known"

    @pytest.mark.parametrize("first", range(0, len(THREE), 8))
    def test_a_write_of_which_a_part_is_missing(self, first: int) -> None:
        found = judged(header() + ONE + TWO + THREE[:first] + bytes(8) + THREE[first + 8 :])
        assert (writes(found), found.is_torn, list(found.damages)) == ([0, 1], True, [])

    def test_an_entry_does_not_count_without_the_object_before_it(self) -> None:
        stored, entry = records_of(2, an_object("c"), an_entry(b"3"))
        found = judged(header() + ONE + TWO + bytes(len(stored)) + entry)
        assert (writes(found), found.is_torn) == ([0, 1], True)

    def test_an_object_does_not_count_without_the_entry_behind_it(self) -> None:
        stored, entry = records_of(2, an_object("c"), an_entry(b"3"))
        found = judged(header() + ONE + TWO + stored + bytes(len(entry)))
        assert (writes(found), found.is_torn) == ([0, 1], True)

    def test_of_the_only_write_the_header_may_be_missing(self) -> None:
        found = judged(bytes(64) + ONE)
        assert (list(found.records), found.is_torn, list(found.damages)) == ([], True, [])

    def test_without_syncs_the_journal_ends_at_the_first_write_that_is_not_whole(self) -> None:
        unsynced = [a_write(n, an_entry(b"%d" % n), is_synced_before=False) for n in range(4)]
        lost = bytes(len(unsynced[1]))
        found = judged(header() + unsynced[0] + lost + unsynced[2] + unsynced[3])
        assert (writes(found), found.is_torn, list(found.damages)) == ([0], True, [])
        found = judged(header() + unsynced[0] + lost + unsynced[2] + an_end(3, is_synced_before=False))
        assert (writes(found), found.is_torn) == ([0], True)

    def test_without_syncs_a_file_that_lacks_its_last_writes_ends_the_journal(self) -> None:
        one = a_write(0, an_entry(b"1"), is_synced_before=False)
        assert judged(header() + one, write_end=2).is_torn
        assert not judged(header() + one, write_end=1).is_torn


class TestDamaged:
    """What was synced before a later write began, and cannot be read."""

    def test_it_costs_what_it_hit(self) -> None:
        content = header() + ONE + TWO + THREE
        at = len(header()) * 8 + 100
        found = judged(flipped(content, at))
        assert [each.record.name for each in found.records] == ["", "", "c", ""]
        assert list(found.damages) == [
            f"bytes 64 to {64 + len(records_of(0, an_object('a'))[0])} hold no readable record"
        ]
        assert found.damaged_write == 0, "the entry of the same write lies behind it"
        assert not found.is_torn

    def test_a_lost_write_is_shown_by_the_one_behind(self) -> None:
        content = header() + ONE + bytes(len(TWO)) + THREE
        found = judged(content)
        assert (writes(found), found.damaged_write, len(found.damages)) == ([0, 2], 2, 1)

    def test_far_behind_the_damage_the_next_record_is_found(self) -> None:
        lost = b"\xff" * (3 * SEARCH_BYTES)
        found = judged(header() + ONE + lost + THREE)
        assert writes(found) == [0, 2]

    @pytest.mark.parametrize("before", range(SEARCH_BYTES - 96, SEARCH_BYTES + 9, 8))
    def test_wherever_a_search_is_divided(self, before: int) -> None:
        assert writes(judged(header() + b"\xff" * before + TWO + THREE)) == [1, 2]

    def test_before_the_last_write_it_costs_nothing_of_that(self) -> None:
        stored, entry = records_of(1, an_object("b"), an_entry(b"2"))
        found = judged(header() + ONE + stored + bytes(len(entry)) + THREE)
        assert (writes(found), found.is_torn) == ([0, 1, 2], False)
        assert found.damaged_write == 2

    def test_in_a_file_that_is_ended_nothing_is_torn(self) -> None:
        stored, entry = records_of(1, an_object("b"), an_entry(b"2"))
        for left in (stored + bytes(len(entry)), bytes(len(stored)) + entry, bytes(len(stored + entry))):
            found = judged(header() + ONE + left + an_end(2))
            assert (found.is_torn, len(found.damages), found.damaged_write >= 1) == (False, 1, True)

    def test_a_header_that_is_neither_whole_nor_zeros(self) -> None:
        for content in (ONE, ONE + TWO):
            found = judged(flipped(header(), 100) + content)
            assert list(found.damages) == ["its header is unreadable"]
            assert (writes(found)[0], found.is_torn, found.damaged_write) == (0, False, NO_WRITE)

    def test_zeros_as_a_header_before_a_second_write(self) -> None:
        found = judged(bytes(64) + ONE + TWO)
        assert (list(found.damages), writes(found)) == (["its header is unreadable"], [0, 1])

    def test_the_tail_of_a_file_that_another_one_follows(self) -> None:
        damaged = flipped(TWO, 300)
        found = judged(header() + ONE + damaged, durable_write=2, write_end=2)
        assert (writes(found), found.is_torn) == ([0], False)
        assert list(found.damages) == [f"from byte {len(header() + ONE)} on it holds no readable record"]
        assert found.damaged_write == 2


class TestFailedWrites:
    """A write whose sync failed is written again, in the next file, which names its number."""

    def test_from_the_next_files_first_write_on_nothing_counts(self) -> None:
        found = judged(header() + ONE + TWO, durable_write=2, write_end=1)
        assert (writes(found), found.is_torn, list(found.damages), found.write_end) == ([0], False, [], 1)

    def test_what_is_unreadable_there_is_no_damage(self) -> None:
        found = judged(header() + ONE + flipped(TWO, 300), durable_write=2, write_end=1)
        assert (writes(found), found.is_torn, list(found.damages)) == ([0], False, [])


class TestNeverBegun:
    def test_an_empty_file_or_one_of_zeros(self) -> None:
        for content in (b"", header()[:63], bytes(64), bytes(10_000)):
            assert scan_file(read_of(content), NUMBER) is None

    def test_an_unreadable_header_with_nothing_behind_it(self) -> None:
        assert scan_file(read_of(b"?" * 500), NUMBER) is None

    def test_of_an_unreadable_header_the_first_record_gives_the_nonce(self) -> None:
        old = a_write(4, an_entry(b"old"), nonce=OLD_NONCE)
        scan = scanned(b"?" * 64 + a_write(7, a_state(b"s")) + old)
        assert scan.header == FileHeader(number=NUMBER, nonce=NONCE, write_first=7)
        assert scan.is_header_damaged

    def test_an_old_header_over_the_torn_first_write_of_the_next_use(self) -> None:
        """The file got its next name; of the first write all sectors but the first one reached the disk."""
        next_number = int.from_bytes(NONCE[:4], "big")
        old = header(number=1, nonce=OLD_NONCE) + a_write(0, an_object("x", b"x" * 900), nonce=OLD_NONCE)
        old += a_write(1, an_entry(b"y" * 900), nonce=OLD_NONCE) + a_write(2, an_entry(b"z"), nonce=OLD_NONCE)
        new = header(9) + a_write(9, an_object("n", b"n" * 1_000), an_object("m"), an_entry(b"1"))
        assert len(old) > len(new)
        assert scan_file(read_of(old[:512] + new[512:] + old[len(new) :]), next_number) is None
        damaged = old[:72] + bytes(8) + old[80:]
        assert scanned(damaged, next_number).holes, "of the next use is nothing there"
