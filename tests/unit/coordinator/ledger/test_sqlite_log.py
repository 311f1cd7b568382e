"""The write-ahead log of the SQLite ledger: a changed bit of it is noticed, what a loss of power leaves is not blamed.

Logs are copied from under an open ledger: that is what `kill -9` leaves.
"""

import os
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from agent.cli.failure import CommandFailed
from agent.cli.offline import copied_ledger, read_ledger
from coordinator.ledger.port import LedgerCorrupt, LedgerEntry, SessionHeld
from coordinator.ledger.sqlite import SqliteLedger
from coordinator.ledger.sqlite_log import find_damage, log_of
from protocol.limits import LEDGER_WAL_PAGES_MAX
from protocol.types import SessionId

FILE = "ledger.sqlite"
HEADER, FRAME_HEADER, PAGE, SECTOR = 32, 24, 4096, 512
FRAME = FRAME_HEADER + PAGE
SPLIT_FRAMES = (41, 62)
"""Frames, from 0, whose headers lie in two sectors: behind the size, and behind the salts."""
STRIDE = 2003
"""Of flipped bits: comes to every place within words, frames and bytes."""


class Life:
    """A ledger in a folder of its own, and what is left of it when its process is killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.count = 0

    async def open(self, *, is_durable: bool = True) -> None:
        self._ledger = await SqliteLedger.open(self.folder / FILE, new_cluster_id="c", is_durable=is_durable)
        self._session: SessionId = await self._ledger.open_session("a")
        self._number = 0

    async def append(self, payloads: Sequence[bytes]) -> None:
        for payload in payloads:
            await self._ledger.append(self._session, [LedgerEntry(number=self._number, payload=payload)])
            self._number += 1
            self.count += 1

    async def killed(self, folder: Path) -> bytes:
        """The folder as the kill leaves it is `folder`; its log."""
        copy_files(self.folder, folder)
        await self._ledger.close()
        return log_of(folder / FILE).read_bytes()


def copy_files(folder: Path, copy: Path) -> None:
    copy.mkdir()
    for name in (FILE, f"{FILE}-wal"):
        shutil.copy(folder / name, copy)


async def records_of(folder: Path, log: bytes | None = None, *, is_durable: bool = True) -> int:
    """How many records a ledger that is started on a copy of `folder` has. Raises `LedgerCorrupt`."""
    copy = folder.with_name("started")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    if log is not None:
        log_of(copy / FILE).write_bytes(log)
    ledger = await SqliteLedger.open(copy / FILE, new_cluster_id="another", is_durable=is_durable)
    try:
        start = await ledger.load()
        assert len(start.records) == start.head.appends_count
        return len(start.records)
    finally:
        await ledger.close()


def flipped(log: bytes, bit: int) -> bytes:
    changed = bytearray(log)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def frame_of(byte: int) -> int:
    return (byte - HEADER) // FRAME


def zeroed(log: bytes, first: int, size: int) -> bytes:
    return log[:first] + bytes(size) + log[first + size :]


def commits(log: bytes) -> list[int]:
    """Where each commit of the log's own generation ends."""
    ends = []
    for first in range(HEADER, len(log) - FRAME + 1, FRAME):
        if log[first + 8 : first + 16] != log[16:24]:
            break
        if any(log[first + 4 : first + 8]):
            ends.append(first + FRAME)
    return ends


@pytest.fixture
async def left(tmp_path: Path) -> tuple[Path, bytes, int]:
    """A folder whose broker was killed, its log, and how many appends were acknowledged."""
    life = Life(tmp_path / "life")
    await life.open()
    random_ = random.Random(1)
    await life.append([random_.randbytes(random_.randrange(900)) for _ in range(8)])
    await life.append([random_.randbytes(9_000)] * 2)
    return tmp_path / "left", await life.killed(tmp_path / "left"), life.count


class TestDamage:
    @pytest.mark.slow
    async def test_every_flipped_bit_is_noticed(self, left: tuple[Path, bytes, int]) -> None:
        _, log, _ = left
        assert find_damage(log, is_each_commit_synced=True) is None
        bits = set(range(0, len(log) * 8, STRIDE)) | set(range(HEADER * 8))
        frames = (len(log) - HEADER) // FRAME
        for frame in (0, frames // 2, frames - 1):
            first = HEADER + frame * FRAME
            bits |= set(range(first * 8, (first + FRAME_HEADER) * 8))
        for bit in sorted(bits):
            damage = find_damage(flipped(log, bit), is_each_commit_synced=bit % 2 == 0)
            assert damage is not None, bit
            assert damage.frame == max(0, (bit // 8 - HEADER) // FRAME + 1), bit

    async def test_a_flipped_bit_is_noticed_where_two_sectors_hold_a_header(self, tmp_path: Path) -> None:
        """But for the last commit, where the page number or size may be what a loss of power left."""
        life, random_ = Life(tmp_path / "life"), random.Random(2)
        await life.open()
        ends: dict[int, bytes] = {}
        while len(ends) < 3:
            await life.append([random_.randbytes(random_.randrange(900))])
            log = log_of(life.folder / FILE).read_bytes()
            if frame_of(len(log)) > SPLIT_FRAMES[-1]:
                ends[len(ends)] = log
        await life.killed(tmp_path / "end")
        for frame in SPLIT_FRAMES:
            first = HEADER + frame * FRAME
            for bit in [*range(first * 8, (first + FRAME_HEADER) * 8), *range(first * 8, (first + FRAME) * 8, 997)]:
                damage = find_damage(flipped(ends[2], bit), is_each_commit_synced=True)
                assert damage is not None, (frame, bit)
                assert damage.frame == frame + 1
        first = (
            HEADER + SPLIT_FRAMES[-1] * FRAME
        )  # its salts are older than its checksum, or one bit of them has changed
        for bit in range((first + 8) * 8, (first + 16) * 8):
            damage = find_damage(flipped(ends[0], bit), is_each_commit_synced=True)
            assert damage is not None
            assert damage.reason == "its salt has changed"

    async def test_a_start_has_every_record_or_is_refused(self, left: tuple[Path, bytes, int]) -> None:
        folder, log, count = left
        for bit in range(5, len(log) * 8, len(log) * 8 // 40):
            with pytest.raises(LedgerCorrupt, match=r"ledger\.sqlite-wal is damaged \(.*Move ledger\.sqlite and"):
                await records_of(folder, flipped(log, bit))
        assert await records_of(folder, log) == count

    async def test_a_refused_start_changes_neither_file(self, left: tuple[Path, bytes, int]) -> None:
        folder, log, _ = left
        log_of(folder / FILE).write_bytes(flipped(log, len(log) * 4))
        before = (folder / FILE).read_bytes(), log_of(folder / FILE).read_bytes()
        for new_cluster_id in ("another", None):
            with pytest.raises(LedgerCorrupt, match=r"frame \d+ of \d+, at byte \d+: one bit of it has changed"):
                await SqliteLedger.open(folder / FILE, new_cluster_id=new_cluster_id)
        assert before == ((folder / FILE).read_bytes(), log_of(folder / FILE).read_bytes())

    async def test_a_lost_sector_before_the_last_two_commits_is_noticed(self, left: tuple[Path, bytes, int]) -> None:
        """Of the last two it may be the sector that tells where one ends."""
        folder, log, _ = left
        for first in range(HEADER, commits(log)[-3] - SECTOR, SECTOR):
            changed = zeroed(log, first, SECTOR)
            if changed != log:
                assert find_damage(changed, is_each_commit_synced=True) is not None, first
        with pytest.raises(LedgerCorrupt, match=r"its checksum is wrong, and a later commit is whole \(frame \d+\)"):
            await records_of(folder, zeroed(log, HEADER + FRAME_HEADER, SECTOR))

    async def test_a_lost_sector_of_a_page_is_noticed_if_any_commit_follows(
        self, left: tuple[Path, bytes, int]
    ) -> None:
        _, log, _ = left
        before, end = commits(log)[-3:-1]
        first, size = before + FRAME + FRAME_HEADER, SECTOR  # of the second page of the commit before the last
        assert before + 2 * FRAME < end
        assert find_damage(zeroed(log, first, size), is_each_commit_synced=True) is not None
        assert find_damage(zeroed(log, first, size), is_each_commit_synced=False) is None

    @pytest.mark.parametrize("is_empty", [True, False])
    async def test_a_log_without_its_file_is_not_removed(self, left: tuple[Path, bytes, int], is_empty: bool) -> None:
        folder, log, _ = left
        (folder / FILE).unlink()
        if is_empty:
            (folder / FILE).touch()
        with pytest.raises(
            LedgerCorrupt, match=r"ledger\.sqlite-wal is there, but not its ledger\.sqlite.*put it back"
        ):
            await SqliteLedger.open(folder / FILE, new_cluster_id="another")
        assert log_of(folder / FILE).read_bytes() == log

    async def test_a_damaged_log_without_its_file_is_to_be_moved_with_it(self, left: tuple[Path, bytes, int]) -> None:
        folder, log, _ = left
        log_of(folder / FILE).write_bytes(flipped(log, len(log) * 4))
        (folder / FILE).unlink()
        with pytest.raises(LedgerCorrupt, match=r"Move ledger\.sqlite and ledger\.sqlite-wal away, together"):
            await SqliteLedger.open(folder / FILE, new_cluster_id="another")

    @pytest.mark.parametrize("size", [0, 1, HEADER - 1, HEADER])
    async def test_a_log_without_frames_has_nothing_to_lose(self, tmp_path: Path, size: int) -> None:
        assert find_damage(b"\xff" * size, is_each_commit_synced=True) is None
        log_of(tmp_path / FILE).write_bytes(b"\xff" * size)
        await (await SqliteLedger.open(tmp_path / FILE, new_cluster_id="c")).close()


class TestLossOfPower:
    """What is not synced yet is on the disk in any part, sector by sector: of the last commit, and of it alone."""

    async def test_a_log_that_ends_anywhere_starts(self, left: tuple[Path, bytes, int]) -> None:
        folder, log, count = left
        for end in range(HEADER, len(log) + 1, 397):
            assert find_damage(log[:end], is_each_commit_synced=True) is None, end
        for end in range(commits(log)[-2], len(log), 2500):
            assert await records_of(folder, log[:end]) == count - 1

    async def test_a_torn_last_commit_starts(self, left: tuple[Path, bytes, int]) -> None:
        folder, log, count = left
        first, end = commits(log)[-2:]
        assert end == len(log)
        assert end - first > 2 * FRAME
        for seed in range(150):
            torn = torn_log(log, log[:first], first, random.Random(seed))
            assert find_damage(torn, is_each_commit_synced=True) is None, seed
            if seed % 20 == 0:
                assert await records_of(folder, torn) in (count, count - 1)

    async def test_what_a_torn_commit_left_behind_a_later_one_is_no_damage(
        self, left: tuple[Path, bytes, int], tmp_path: Path
    ) -> None:
        """The later commit was written over the first frames of it, with the same salts; and is torn itself then."""
        folder, log, _ = left
        first, end = commits(log)[-2:]
        torn = log[: first + PAGE] + b"torn" + log[first + PAGE + 4 :]
        log_of(folder / FILE).write_bytes(torn)
        life = Life(folder)
        await life.open()  # its session is a commit of one frame
        before = log_of(folder / FILE).read_bytes()
        assert len(before) == end
        assert commits(before)[-2:] == [first + FRAME, end]
        assert find_damage(before, is_each_commit_synced=True) is None
        for _ in range(2):
            await life.append([b"small"])
            after = log_of(folder / FILE).read_bytes()
            assert find_damage(after, is_each_commit_synced=True) is None
            place = next(at for at in range(len(after)) if after[at : at + 1] != before[at : at + 1])
            for seed in range(60):
                mixed = torn_log(after, before, (place - HEADER) // FRAME * FRAME + HEADER, random.Random(seed))
                assert find_damage(mixed, is_each_commit_synced=True) is None, seed
            before = after
        await life.killed(tmp_path / "end")

    @pytest.mark.slow
    async def test_a_torn_commit_over_an_earlier_log_starts_wherever_it_begins(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A frame is 24 bytes longer than eight sectors: 64 of them bring a border to each place of a header."""
        monkeypatch.setattr("coordinator.ledger.sqlite_schema.LEDGER_WAL_PAGES_MAX", SPLIT_FRAMES[-1] + 70)
        life, random_ = Life(tmp_path / "life"), random.Random(3)
        await life.open()
        before, missing = log_of(life.folder / FILE).read_bytes(), set(range(64))
        for _ in range(1_000):
            await life.append([random_.randbytes(random_.choice([5, 300, 900, 900, 5_000]))])
            after = log_of(life.folder / FILE).read_bytes()
            first, end = ([HEADER, *commits(after)])[-2:]
            is_restarted = after[8:12] != before[8:12]  # the frames of this commit have other headers than before it
            if is_restarted or len(before) < len(after) or frame_of(first) % 64 not in missing:
                before = after
                continue
            missing.remove(frame_of(first) % 64)
            for number, lost in enumerate(losses(first, end, random_)):
                torn = bytearray(after[: end + 2 * FRAME])
                for begin, stop in lost:
                    torn[begin:stop] = before[begin:stop]
                damage = find_damage(bytes(torn), is_each_commit_synced=True)
                assert damage is None, (damage, number, lost)
            before = after
            if not missing:
                break
        assert not missing
        await life.killed(tmp_path / "end")

    async def test_frames_of_an_earlier_log_are_no_damage(self, tmp_path: Path) -> None:
        life = Life(tmp_path / "life")
        await life.open()
        await life.append([b"x" * 6_000] * (LEDGER_WAL_PAGES_MAX // 2))
        log = await life.killed(tmp_path / "end")
        end = commits(log)[-1]
        assert end + 100 * FRAME < len(log), "it has not begun from its start again"
        assert find_damage(log, is_each_commit_synced=True) is None
        assert await records_of(tmp_path / "end") == life.count
        for bit in range(0, end * 8, STRIDE * 40):
            assert find_damage(flipped(log, bit), is_each_commit_synced=True) is not None, bit
        for bit in range(end * 8, len(log) * 8, STRIDE * 311):
            assert find_damage(flipped(log, bit), is_each_commit_synced=True) is None, bit

    async def test_a_start_syncs_what_a_killed_process_may_not_have_synced(
        self, left: tuple[Path, bytes, int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Or the next commit would be the second one that a loss of power can tear."""
        folder, _, _ = left
        synced: list[str] = []
        fsync = os.fsync

        def noted(descriptor: int) -> None:
            synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
            fsync(descriptor)

        monkeypatch.setattr("coordinator.ledger.sqlite_schema.os.fsync", noted)
        await (await SqliteLedger.open(folder / FILE, new_cluster_id="another")).close()
        assert synced == [f"{FILE}-wal"]

    async def test_a_log_that_is_in_use_is_not_looked_at(self, tmp_path: Path) -> None:
        life = Life(tmp_path / "life")
        await life.open()
        with pytest.raises(SessionHeld):
            await SqliteLedger.open(life.folder / FILE, new_cluster_id="another")
        await life.killed(tmp_path / "end")


class TestUnsyncedCommits:
    """With `fsync = false` a loss of power may tear commits that others follow."""

    @pytest.fixture
    async def torn(self, tmp_path: Path) -> Path:
        """A folder whose ledger a loss of power left so: whole commits lie behind a torn one."""
        life, random_ = Life(tmp_path / "life"), random.Random(4)
        await life.open(is_durable=False)
        await life.append([random_.randbytes(random_.randrange(3_000)) for _ in range(12)])
        log = await life.killed(tmp_path / "torn")
        place = commits(log)[5] + FRAME + FRAME_HEADER  # in the second page of a commit
        log_of(tmp_path / "torn" / FILE).write_bytes(zeroed(log, place, 2 * SECTOR))
        return tmp_path / "torn"

    async def test_a_start_as_before_lets_later_ones_rely_on_syncs(self, torn: Path, tmp_path: Path) -> None:
        with pytest.raises(LedgerCorrupt, match="a later commit is whole"):
            await records_of(torn)
        count = await records_of(torn, is_durable=False)
        assert 0 < count < 12
        life = Life(torn)
        await life.open(is_durable=False)
        await life.append([b"small"])
        await life.killed(tmp_path / "left")
        assert await records_of(tmp_path / "left") == count + 1

    async def test_what_only_looks_reads_it_and_says_so(self, torn: Path, capsys: pytest.CaptureFixture[str]) -> None:
        before = log_of(torn / FILE).read_bytes()
        count = await records_of(torn, is_durable=False)
        assert len(await read_ledger(torn)) == count
        assert "The entries before it are shown" in capsys.readouterr().err
        async with copied_ledger(torn / FILE, is_durable=False) as ledger:
            assert len(await ledger.untrimmed_entries()) == count
        assert capsys.readouterr().err == ""
        with pytest.raises(LedgerCorrupt, match="a later commit is whole"):
            async with copied_ledger(torn / FILE, is_durable=True):
                pass
        log_of(torn / FILE).write_bytes(flipped(before, (HEADER + 3 * FRAME + PAGE) * 8))
        with pytest.raises(CommandFailed, match="is damaged"):
            await read_ledger(torn)


def losses(first: int, end: int, random_: random.Random) -> Iterator[list[tuple[int, int]]]:
    """Blocks of 512 bytes and of 4 KiB, of those that hold the bytes from `first` to `end`, that a loss of power lost:
    the first one, and some at random; each one, all up to each and all from each on, where one ends within a header.
    """
    is_split = any(frame % 64 in SPLIT_FRAMES for frame in range(frame_of(first), frame_of(end)))
    for size in (SECTOR, PAGE):
        numbers = range(first // size, (end - 1) // size + 1)
        blocks = [(max(first, number * size), min(end, (number + 1) * size)) for number in numbers]
        for at in range(len(blocks) if is_split else 1):
            yield from ([blocks[at]], blocks[: at + 1], blocks[at:])
        for _ in range(10 if is_split else 3):
            share = random_.random()
            yield [block for block in blocks if random_.random() < share]
            yield [blocks[0], *(block for block in blocks[1:] if random_.random() < share)]


def torn_log(after: bytes, before: bytes, first: int, random_: random.Random) -> bytes:
    """`after`, of which some sectors from byte `first` on are as in `before`; zeros, where that has ended."""
    old = before + bytes(max(0, len(after) - len(before)))
    torn = bytearray(after)
    for sector in range(first // SECTOR, (len(after) + SECTOR - 1) // SECTOR):
        begin, end = max(first, sector * SECTOR), min(len(after), (sector + 1) * SECTOR)
        if random_.random() < 0.3:
            torn[begin:end] = old[begin:end]
    return bytes(torn)
