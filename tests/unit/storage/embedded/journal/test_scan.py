"""The contents of a file of a journal, and the judgement on what cannot be read: damage, or torn by a crash."""

from collections.abc import Callable

import pytest
from crc32c import crc32c

from storage.embedded.journal.format import (
    FILE_HEADER_BYTES,
    FILE_HEADER_POSITIONS,
    NO_SUCCESSOR,
    RECORDS_FIRST,
    RecordKind,
)
from storage.embedded.journal.scan import (
    NO_WRITE,
    SEARCH_BYTES,
    FileScan,
    JudgedFile,
    LocatedRecord,
    file_header,
    judge,
    scan_file,
)
from storage.embedded.readable_bytes import SECTOR_BYTES
from tests.support.journal.journal_bytes import (
    NUMBER,
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


def scanned(content: bytes) -> FileScan:
    scan = scan_file(read_of(content), NUMBER)
    assert scan is not None
    return scan


def judged(content: bytes, *, durable_write: int | None = None, write_end: int | None = None) -> JudgedFile:
    """The judgement on a file alone, or on one of a journal that says more."""
    scan = scanned(content)

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
        assert (list(found.records), found.end, found.write_end, found.is_torn) == ([], RECORDS_FIRST, 4, False)

    def test_an_end_says_which_file_comes_next(self) -> None:
        assert scanned(header() + ONE + an_end(1, successor=9)).successor == 9
        assert scanned(header() + ONE + an_end(1)).successor == NO_SUCCESSOR
        assert scanned(header() + ONE).successor == NO_SUCCESSOR


class TestDurableWrite:
    """Every write before it was synced, as far as one file says."""

    @pytest.mark.parametrize(
        ("content", "durable_write"),
        [
            (b"", 4),
            (a_write(5, an_entry(b"5")), 5),
            (a_write(5, an_entry(b"5")) + an_end(6), 6),
            (an_end(5, successor=9), 6),
        ],
        ids=["its header", "its newest record", "its end", "its end, written once the next file was synced"],
    )
    def test_it_is_what_the_newest_part_says(self, content: bytes, durable_write: int) -> None:
        assert scanned(header(4) + content).durable_write == durable_write

    def test_without_syncs_a_file_says_nothing(self) -> None:
        assert scanned(header(4, is_synced=False) + ONE + an_end(6)).durable_write == 0


class TestEmpty:
    """A file that has its header, and nothing of a record."""

    def test_an_earlier_use_of_it_is_nothing_of_a_record(self) -> None:
        for behind in (b"", bytes(500), a_write(7, an_entry(b"old"), nonce=OLD_NONCE)):
            assert scanned(header() + behind).is_empty

    def test_a_record_a_damaged_one_or_an_end_is(self) -> None:
        for behind in (ONE, an_end(0), bytes(80) + ONE, flipped(ONE, 300)[:80]):
            assert not scanned(header() + behind).is_empty


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

    def test_without_syncs_the_journal_ends_at_the_first_write_that_is_not_whole(self) -> None:
        unsynced = header(is_synced=False)
        four = [a_write(n, an_entry(b"%d" % n)) for n in range(4)]
        lost = bytes(len(four[1]))
        for content in (
            four[0] + lost + four[2] + four[3],
            four[0] + lost + four[2] + an_end(3),
            four[0] + lost + an_end(2),
        ):
            found = judged(unsynced + content)
            assert (writes(found), found.is_torn, list(found.damages)) == ([0], True, [])

    def test_without_syncs_a_file_that_lacks_its_last_writes_ends_the_journal(self) -> None:
        content = header(is_synced=False) + ONE
        assert judged(content, write_end=2).is_torn
        assert not judged(content, write_end=1).is_torn

    def test_without_syncs_an_end_behind_writes_that_another_file_has_says_nothing_of_them(self) -> None:
        content = header(is_synced=False) + ONE + bytes(len(TWO)) + THREE + an_end(3)
        assert judged(content).is_torn
        found = judged(content, write_end=1)
        assert (writes(found), found.is_torn) == ([0], False)


class TestDamaged:
    """What was synced before a later write began, and cannot be read."""

    def test_it_costs_what_it_hit(self) -> None:
        content = header() + ONE + TWO + THREE
        at = len(header()) * 8 + 100
        found = judged(flipped(content, at))
        assert [each.record.name for each in found.records] == ["", "", "c", ""]
        assert list(found.damages) == [
            f"bytes {RECORDS_FIRST} to {RECORDS_FIRST + len(records_of(0, an_object('a'))[0])} hold no readable record"
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

    @pytest.mark.parametrize("position", FILE_HEADER_POSITIONS)
    def test_one_copy_of_the_header_is_enough_and_the_other_is_reported(self, position: int) -> None:
        for lost in (flipped(header(), position * 8 + 100)[position:][:FILE_HEADER_BYTES], bytes(FILE_HEADER_BYTES)):
            content = header()[:position] + lost + (header() + ONE)[position + FILE_HEADER_BYTES :]
            assert file_header(read_of(content), NUMBER) == file_header(read_of(header()), NUMBER)
            found = judged(content)
            assert list(found.damages) == ["a copy of its header is unreadable"]
            assert (writes(found), found.is_torn, found.damaged_write) == ([0], False, NO_WRITE)

    @pytest.mark.parametrize("row", [0, 1])
    def test_of_two_headers_that_differ_the_one_of_the_files_name_counts(self, row: int) -> None:
        """The other copy is newer where a crash has kept the file from its next name; else the disk has lost one."""
        new, old = header(), header(number=NUMBER - 1, nonce=OLD_NONCE)
        copies = (old, new) if row else (new, old)
        content = copies[0][:SECTOR_BYTES] + copies[1][SECTOR_BYTES:] + ONE
        found = scan_file(read_of(content), NUMBER)
        assert found is not None
        assert (len(found.records), found.header_damage) == (2, "a copy of its header is that of an earlier file")
        found = scan_file(read_of(content), NUMBER - 1)
        assert found is not None
        assert (found.is_empty, found.header.number, found.header_damage) == (True, NUMBER - 1, "")
        renamed = scan_file(read_of(content), NUMBER + 7)
        assert renamed is not None
        assert (renamed.header.number, bool(renamed.header_damage)) == (NUMBER, True)

    @pytest.mark.parametrize("tail", [flipped(TWO, 300), bytes(len(TWO)), b""], ids=["a bit", "zeros", "cut"])
    def test_the_tail_of_a_file_that_another_one_follows(self, tail: bytes) -> None:
        found = judged(header() + ONE + tail, durable_write=2, write_end=2)
        assert (writes(found), found.is_torn) == ([0], False)
        assert list(found.damages) == [f"from byte {len(header() + ONE)} on it holds no readable record"]
        assert found.damaged_write == 2

    def test_the_tail_of_the_newest_file_where_another_part_says_that_it_was_synced(self) -> None:
        found = judged(header() + ONE, durable_write=2)
        assert (len(found.damages), found.damaged_write, found.is_torn) == (1, 2, False)


class TestFailedWrites:
    """A write whose sync failed is written again, in the next file, which names its number."""

    def test_from_the_next_files_first_write_on_nothing_counts(self) -> None:
        found = judged(header() + ONE + TWO, durable_write=2, write_end=1)
        assert (writes(found), found.is_torn, list(found.damages), found.write_end) == ([0], False, [], 1)

    def test_what_is_unreadable_there_is_no_damage(self) -> None:
        found = judged(header() + ONE + flipped(TWO, 300), durable_write=2, write_end=1)
        assert (writes(found), found.is_torn, list(found.damages)) == ([0], False, [])


class TestWithoutAHeader:
    def test_nothing_else_in_a_file_says_what_it_is(self) -> None:
        """A producer may have written what looks like a record."""
        for content in (b"", header()[:63], bytes(64), bytes(10_000), bytes(RECORDS_FIRST) + ONE):
            assert file_header(read_of(content), NUMBER) is None
            assert scan_file(read_of(content), NUMBER) is None
