"""What a start and a read do about bytes that have changed in packs (safety rule S20)."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from crc32c import crc32c

from protocol.limits import PACKS_SPARE_MAX
from storage.embedded.pack_format import (
    DEAD,
    LIVE,
    PACK_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    STATE_POSITION,
    encode_end,
    encode_pack_header,
    encode_record_header,
    next_record,
    pack_number,
    padding,
    read_pack_header,
    read_record,
)
from storage.embedded.pack_scan import SEARCH_BYTES, Gap, PackScan, scan_pack
from storage.object_store import ObjectDamaged
from tests.support.packs.opened_packs import OLD, Packs, opened
from tests.support.packs.simulated_disk import PackDisk

NONCE = bytes(range(1, 17))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "packs"


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def unmarked(stored: bytes) -> bytes:
    """A record as it was written before writes were marked."""
    return stored[: RECORD_HEADER_BYTES - 1] + b"\0" + stored[RECORD_HEADER_BYTES:]


def deleted(stored: bytes) -> bytes:
    return stored[:STATE_POSITION] + DEAD + stored[STATE_POSITION + 1 :]


def record(key: str, payload: bytes, *, is_group_first: bool = True, nonce: bytes = NONCE) -> bytes:
    header = encode_record_header(key, nonce, len(payload), crc32c(payload), 1, is_group_first=is_group_first)
    return header + payload + padding(len(header) + len(payload))


def scan(content: bytes, number: int = 3) -> PackScan:
    return scan_pack(lambda byte_count, position: content[position : position + byte_count], number)


class TestScan:
    HEAD = encode_pack_header(3, NONCE)

    def test_a_pack_of_nothing_but_its_header_is_empty(self) -> None:
        found = scan(self.HEAD)
        assert (found.nonce, found.records, found.gaps, found.end) == (NONCE, [], [], PACK_HEADER_BYTES)
        assert found.whole_end(lambda _: False) == PACK_HEADER_BYTES

    def test_a_record_far_behind_the_damage_is_found(self) -> None:
        damaged = b"\xff" * (3 * SEARCH_BYTES)
        found = scan(self.HEAD + damaged + record("a", b"1"))
        assert [one.record.key for one in found.records] == ["a"]
        assert found.gaps == [Gap(first=PACK_HEADER_BYTES, end=PACK_HEADER_BYTES + len(damaged))]

    @pytest.mark.parametrize("before", range(SEARCH_BYTES - 96, SEARCH_BYTES + 9, 8))
    def test_wherever_a_search_is_divided(self, before: int) -> None:
        found = scan(self.HEAD + b"\xff" * before + record("a", b"1") + record("b", b"2"))
        assert [one.record.key for one in found.records] == ["a", "b"]

    def test_a_record_of_another_use_of_the_file_is_none(self) -> None:
        found = scan(self.HEAD + record("a", b"1") + record("old", b"2", nonce=bytes(16)))
        assert [one.record.key for one in found.records] == ["a"]
        assert not found.has_tail

    def test_a_record_begins_at_multiples_of_eight_bytes_and_nowhere_else(self) -> None:
        stored = record("a", b"1")
        assert next_record(b"1234" + stored + b"1234" + stored, NONCE) == 4 + len(stored) + 4
        assert next_record(b"1234" + stored, NONCE) is None
        assert scan(b"?" * 40 + b"1234" + stored + b"5678").records == []

    def test_behind_the_end_is_nothing(self) -> None:
        found = scan(self.HEAD + record("a", b"1") + encode_end(NONCE) + record("b", b"2"))
        assert ([one.record.key for one in found.records], found.is_ended) == (["a"], True)

    def test_what_was_never_begun_is_not_damaged(self) -> None:
        other = encode_pack_header(2, NONCE) + deleted(record("old", b"1"))
        for content in (b"", self.HEAD[:39], bytes(40), bytes(10_000), other):
            found = scan(content)
            assert (found.nonce, found.is_header_damaged, found.end) == (None, False, 0)
            assert found.whole_end(lambda _: True) == 0

    def test_a_header_that_is_cut_is_none(self) -> None:
        assert read_pack_header(self.HEAD) == (3, NONCE)
        assert read_pack_header(self.HEAD[:-1]) is None

    def test_zeros_in_front_of_the_only_write_are_what_a_crash_left_of_it(self) -> None:
        first = record("a", b"1") + record("b", b"2", is_group_first=False)
        assert not scan(bytes(40) + first).is_header_damaged
        assert scan(bytes(40) + first + record("c", b"3")).is_header_damaged, "the first write was synced before"
        assert scan(bytes(40) + first + encode_end(NONCE)).is_header_damaged

    def test_a_header_that_is_unreadable_with_nothing_behind_it_is_damaged(self) -> None:
        found = scan(b"?" * 40 + bytes(10_000))
        assert (found.nonce, found.is_header_damaged) == (None, True)

    def test_of_an_unreadable_header_the_first_record_gives_the_nonce(self) -> None:
        content = b"PREC" + bytes(36) + b"PREC" + bytes(60) + record("new", b"1") + record("old", b"1", nonce=bytes(16))
        found = scan(content)
        assert (found.nonce, [one.record.key for one in found.records]) == (NONCE, ["new"])
        assert found.is_header_damaged

    @pytest.mark.parametrize("name", [b"key", b"\xff\xff\xff"], ids=["a key", "no text"])
    def test_what_a_producer_wrote_to_look_like_a_record_gives_none(self, name: bytes) -> None:
        """The number of a pack shows a part of its nonce, which no producer can guess."""
        fields = encode_record_header("key", bytes(16), 0, 0, 0)[:RECORD_HEADER_BYTES]
        checksum = crc32c(name, crc32c(fields[8:STATE_POSITION]))
        forged = fields[:4] + checksum.to_bytes(4, "little") + fields[8:] + name
        content = bytes(40) + b"?" * 80 + forged + padding(len(forged)) + record("a", b"2")
        for number in (pack_number(-1, NONCE), pack_number(5 << 32, NONCE)):
            found = scan(content, number)
            assert (found.nonce, [one.record.key for one in found.records]) == (NONCE, ["a"])
        assert scan(content, 3).nonce == bytes(16), "older packs have any nonce"

    def test_damage_before_the_last_write_is_certain_and_in_it_is_not(self) -> None:
        first, second = record("a", b"1"), record("b", b"2")
        third = record("c", b"3", is_group_first=False)
        broken = b"\xff" * len(third)
        assert len(scan(self.HEAD + broken + first + second + third).damaged_gaps) == 1
        assert len(scan(self.HEAD + first + second + broken + third).damaged_gaps) == 0
        assert len(scan(self.HEAD + first + second + broken + third + encode_end(NONCE)).damaged_gaps) == 1

    def test_where_no_write_is_marked_all_of_it_is(self) -> None:
        one = unmarked(record("a", b"1"))
        found = scan(self.HEAD + b"\xff" * len(one) + one)
        assert len(found.damaged_gaps) == 1
        assert found.whole_end(lambda _: True) == len(self.HEAD) + 2 * len(one)
        assert found.whole_end(lambda _: False) == PACK_HEADER_BYTES

    def test_an_unreadable_first_record_of_the_only_write_may_be_torn(self) -> None:
        one, other = record("a", b"1", is_group_first=False), record("b", b"2", is_group_first=False)
        broken = b"\xff" * len(one)
        found = scan(self.HEAD + broken + one + other)
        assert (len(found.gaps), len(found.damaged_gaps)) == (1, 0)
        assert found.whole_end(lambda each: each.record.key == "a") == len(self.HEAD + broken + one)
        assert len(scan(self.HEAD + broken + one + other + encode_end(NONCE)).damaged_gaps) == 1
        assert len(scan(self.HEAD + broken + one + other + record("c", b"3")).damaged_gaps) == 1
        assert not scan(bytes(40) + broken + one).is_header_damaged

    @pytest.mark.parametrize("bit", range(8))
    def test_no_bit_changes_state_or_group(self, bit: int) -> None:
        for state, is_live in ((LIVE, True), (DEAD, False)):
            for group, is_first, is_marked in ((0xFF, True, True), (0x07, False, True), (0, False, False)):
                stored = bytearray(record("a", b"1"))
                stored[RECORD_HEADER_BYTES - 2 : RECORD_HEADER_BYTES] = bytes([state[0] ^ 1 << bit, group ^ 1 << bit])
                found = read_record(bytes(stored), NONCE)
                assert found is not None
                assert (found.is_live, found.is_group_first, found.is_marked) == (is_live, is_first, is_marked)


class TestStart:
    def test_one_wrong_bit_anywhere_costs_one_object_and_not_in_silence(self, folder: Path) -> None:
        """Three packs: one full, one that was used before, and the newest; a bit of every fifth byte."""
        contents = {}
        with opened(folder) as packs:
            packs.folder.take_back(packs.use_up())
            places = dict(zip("abc", packs.append("a", "b", "c", payload=b"x" * 300), strict=True))
            places |= dict(zip("de", packs.append("d", "e"), strict=True))
            places |= dict(zip("fg", packs.append("f", payload=b"y" * 40) + packs.append("g"), strict=True))
            contents = {key: packs.read(key, place) for key, place in places.items()}
            objects_end = {
                f"{place.pack.number:016x}.pack": place.payload_first + place.payload_bytes for place in places.values()
            }
        for file in sorted(folder.iterdir()):
            whole = file.read_bytes()
            for byte in range(0, min(len(whole), 1_600), 5):
                flip(file, byte * 8 + byte % 8)
                hit = {
                    key
                    for key, place in places.items()
                    if f"{place.pack.number:016x}.pack" == file.name
                    and place.record_first <= byte < place.payload_first + place.payload_bytes
                }
                with opened(folder, nonce_first=500) as packs:
                    lost = {key for key, right in contents.items() if not self.is_right(packs, key, right)}
                    assert lost <= hit, (file.name, byte)
                    assert lost <= packs.found.keys() or (packs.folder.has_gaps and packs.damages), (file.name, byte)
                kept = min(byte, max(objects_end.get(file.name, 0), PACK_HEADER_BYTES))
                assert file.read_bytes()[:kept] == whole[:kept], "an object was cut"
                file.write_bytes(whole)

    @staticmethod
    def is_right(packs: Packs, key: str, right: bytes) -> bool:
        if key not in packs.found:
            return False
        try:
            found = packs.read(key, packs.found[key])
        except ObjectDamaged:
            return False
        assert found == right, "wrong bytes"
        return True

    @pytest.fixture
    def three(self, folder: Path) -> Iterator[tuple[Path, bytes]]:
        with opened(folder) as packs:
            for key in "abc":
                packs.append(key, payload=key.encode() * 100)
        (file,) = folder.iterdir()
        content = file.read_bytes()
        yield file, content
        assert len(file.read_bytes()) >= len(content), "cut"

    def test_a_pack_with_an_unreadable_header_is_read_and_never_used_again(
        self, folder: Path, three: tuple[Path, bytes]
    ) -> None:
        file, content = three
        flip(file, 100)
        damaged = file.read_bytes()
        for start in range(2):
            with opened(folder, nonce_first=50) as packs:
                assert packs.found.keys() == ({"a", "b", "c"} if start == 0 else {"new"})
                assert [(damage.detail, damage.is_certain) for damage in packs.damages] == [
                    ("its header is unreadable", True)
                ]
                packs.folder.mark_dead(list(packs.found.values()))
                for place in packs.found.values():
                    packs.folder.take_back(place.pack)
                for _ in range(PACKS_SPARE_MAX + 2):
                    packs.append("new", payload=OLD)
        left = file.read_bytes()
        assert (len(left), left[:40], left.count(b"\xb3")) == (len(content), damaged[:40], content.count(b"\xb3") + 3)

    def test_what_is_unreadable_all_over_is_kept_as_it_is(self, folder: Path, three: tuple[Path, bytes]) -> None:
        file, content = three
        file.write_bytes(b"\xff" * len(content))
        for _ in range(2):
            with opened(folder, nonce_first=50) as packs:
                assert packs.found == {}
                assert packs.folder.has_gaps
                assert [damage.detail for damage in packs.damages] == ["its header is unreadable"]
                with pytest.raises(ObjectDamaged, match="a is in no pack"):
                    packs.folder.find("a")
        assert file.read_bytes() == b"\xff" * len(content)

    def test_an_object_with_a_wrong_checksum_is_named(self, folder: Path, three: tuple[Path, bytes]) -> None:
        file, content = three
        file.write_bytes(content.replace(b"cccc", b"ccCc", 1))
        with opened(folder, nonce_first=50) as packs:
            assert [(damage.key, damage.is_certain) for damage in packs.damages] == [("c", True)]
            with pytest.raises(ObjectDamaged, match="checksum"):
                packs.read("c", packs.found["c"])
            assert packs.folder.read("c", packs.found["c"], 50, 50) == b"c" * 50, "who reads a part checks it"
            with pytest.raises(ObjectDamaged, match="checksum"):
                packs.folder.find("c")

    def test_the_file_of_a_damaged_object_is_removed_when_it_is_empty_and_not_used_again(
        self, folder: Path, three: tuple[Path, bytes]
    ) -> None:
        file, content = three
        file.write_bytes(content.replace(b"cccc", b"ccCc", 1))
        with opened(folder, nonce_first=50) as packs:
            packs.folder.mark_dead(list(packs.found.values()))
            packs.folder.take_back(packs.found["a"].pack)
            assert packs.files() == []
        file.write_bytes(content)

    def test_the_last_header_is_not_taken_for_torn_in_a_pack_that_is_not_the_newest(self, folder: Path) -> None:
        """As a crash has left it before: it does not say that it ends."""
        with opened(folder) as packs:
            packs.append("a", "b")
            (place,) = packs.append("c")
            content = packs.last_file().read_bytes()
        packs.last_file().write_bytes(content)
        with opened(folder, nonce_first=50) as packs:
            packs.append("d")
        flip(folder / "0000000000000000.pack", (place.record_first + 25) * 8)
        with opened(folder, nonce_first=60) as packs:
            assert packs.found.keys() == {"a", "b", "d"}
            assert packs.folder.has_gaps
            assert [damage.is_certain for damage in packs.damages] == [True]


class TestNoDamage:
    """What a crash or a failed write has left, and nothing more."""

    @pytest.mark.parametrize("first", [b"\0" * PACK_HEADER_BYTES, b""], ids=["without its header", "with it"])
    def test_a_torn_first_write_is_no_damage_and_its_file_is_used_again(self, folder: Path, first: bytes) -> None:
        """Of `a` and `b`, which were on their way together, `b` alone reached the disk."""
        with opened(folder) as packs:
            (_, place) = packs.append("a", "b")
            content = packs.last_file().read_bytes()
        begin = first or content[:PACK_HEADER_BYTES]
        torn = begin + bytes(place.record_first - len(begin)) + content[place.record_first :]
        packs.last_file().write_bytes(torn)
        for start in range(2):
            with opened(folder, nonce_first=7 + start) as packs:
                assert packs.found.keys() - {"c"} == {"b"}
                assert [damage.is_certain for damage in packs.damages] == [False]
                packs.append("c")
        with opened(folder, nonce_first=9) as packs:
            packs.folder.mark_dead([packs.found["b"]])
        with opened(folder, nonce_first=10) as packs:
            assert packs.found.keys() == {"c"}
            packs.append("d")
            assert packs.disk.calls["rename"] == 1, "its file has another name now"
        with opened(folder, nonce_first=11) as packs:
            assert packs.damages == []

    @pytest.mark.parametrize("operation", ["write_at", "sync_data"])
    def test_what_a_failed_append_left_that_could_not_be_cut_is_no_damage(self, folder: Path, operation: str) -> None:
        with opened(folder) as packs:
            packs.append("a")
            packs.disk.fail(operation, errno.EIO)
            packs.disk.fail("truncate", errno.EIO)
            with pytest.raises(OSError, match="Input/output"):
                packs.append("b", payload=b"n" * 700)
            packs.append("c")
            content = packs.last_file().read_bytes()  # of a process that is killed
        packs.last_file().write_bytes(content)
        with opened(folder) as packs:
            assert packs.contents() == {"a": b"payload", "c": b"payload"}
            assert (packs.damages, packs.folder.has_gaps) == ([], False)


class TestRead:
    @pytest.mark.parametrize("byte", [0, 20, 48])
    def test_a_header_that_changed_since_does_no_harm(self, folder: Path, byte: int) -> None:
        with opened(folder) as packs:
            (place,) = packs.append("a")
            flip(packs.last_file(), (place.record_first + byte) * 8)
            assert packs.read("a", place) == b"payload"

    def test_both_headers_do(self, folder: Path) -> None:
        with opened(folder) as packs:
            (place,) = packs.append("a")
            flip(packs.last_file(), place.record_first * 8)
            flip(packs.last_file(), 0)
            with pytest.raises(ObjectDamaged, match="neither its header nor"):
                packs.read("a", place)

    @pytest.mark.parametrize("spoil", [lambda path: flip(path, 95 * 8), lambda path: path.write_bytes(bytes(90))])
    def test_a_payload_that_changed_since_is_damaged(self, folder: Path, spoil: Callable[[Path], object]) -> None:
        with opened(folder) as packs:
            (place,) = packs.append("a")
            assert place.payload_first + 7 > 95
            spoil(packs.last_file())
            with pytest.raises(ObjectDamaged):
                packs.read("a", place)

    def test_a_pack_that_ends_within_the_object_is_damaged(self, folder: Path) -> None:
        disk = PackDisk()
        with opened(folder, disk) as packs:
            (place,) = packs.append("a")
            packs.last_file().write_bytes(packs.last_file().read_bytes()[: place.payload_first + 3])
            with pytest.raises(ObjectDamaged, match="ends within it"):
                packs.read("a", place)
