"""A journal that is written with syncs and without, in turns.

Rule: restarts and kills lose nothing, in either mode. A loss of power loses nothing that a process with syncs has
found, or written. What it loses is no damage, then or later.
"""

import random
import tempfile
from dataclasses import dataclass
from enum import Enum
from itertools import count
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from storage.embedded.journal.scan import NO_WRITE
from tests.support.journal.opened_journals import FILE_BYTES, JournalUser
from tests.support.packs.simulated_disk import PackDisk


class ProcessEnd(Enum):
    """How a process ends."""

    CLOSED = "closed"
    KILLED = "killed"
    POWER_LOST = "power lost"


@dataclass(frozen=True)
class Process:
    """What a process appends, in bytes, and keeps of all entries."""

    is_durable: bool
    sizes: list[int]
    kept: int
    ending: ProcessEnd
    seed: int


processes = st.builds(
    Process,
    is_durable=st.booleans(),
    sizes=st.lists(st.sampled_from([1, 300, 700, FILE_BYTES]), max_size=6),
    kept=st.integers(1, 8),
    ending=st.sampled_from(ProcessEnd),
    seed=st.integers(0, 10_000),
)


@given(plan=st.lists(processes, min_size=1, max_size=8), is_power_safe=st.booleans())
def test_what_is_lost_was_written_without_syncs_before_a_loss_of_power(
    plan: list[Process], is_power_safe: bool
) -> None:
    """Files are given back where the power is safe: without syncs, a loss of power may lose the state that said so."""
    entries: list[bytes] = []
    durable_count, released_write, is_power_lost = 0, -1, False
    serial, nonce_first, disk = count(), count(1, 1_000), PackDisk()
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "0" / "journal"
        folder.mkdir(parents=True)
        for process in plan:
            disk.sync_directory(str(folder.parent))
            user = JournalUser(
                folder,
                disk,
                nonce_first=next(nonce_first),
                is_durable=process.is_durable,
                released_write=released_write,
                state=b"state",
            )
            assert (user.details(), user.content.damaged_write) == ([], NO_WRITE)
            locations = [one for one in user.content.entries if one.write > released_write]
            found = list(user.journal.records.payloads(locations))
            assert found[:durable_count] == entries[:durable_count]
            assert is_power_lost or found == entries
            entries, writes = found, [one.write for one in locations]
            durable_count = len(found) if process.is_durable else durable_count
            for size in process.sizes:
                entries.append(b"%d" % next(serial) + bytes(size))
                writes.append(user.append(entry=entries[-1]).write)
            durable_count = len(entries) if process.is_durable else durable_count
            dropped = max(len(entries) - process.kept, 0) if is_power_safe else 0
            if dropped:
                released_write = writes[dropped - 1]
                user.journal.release(released_write)
                user.append(state=b"state")
                user.journal.take_back_unneeded()
                entries, durable_count = entries[dropped:], max(durable_count - dropped, 0)
            is_power_lost = process.ending is ProcessEnd.POWER_LOST and not is_power_safe
            if process.ending is ProcessEnd.CLOSED:
                user.journal.close()
            elif is_power_lost:
                folder = disk.restore(
                    folder, Path(root) / str(next(serial) + 1) / "journal", random.Random(process.seed)
                )
            disk.kill()
            if is_power_lost:
                disk = PackDisk()
                disk.adopt(folder)
