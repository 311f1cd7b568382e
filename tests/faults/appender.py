"""A process that appends to a SQLite ledger and says on stdout what was acknowledged.

    python -m tests.faults.appender PATH [durable | fast] [COUNT]

The lines are `open POSITION APPENDS`, then `NUMBER POSITION` for each append that returned. The payload of number n is
`payload(n)`. It goes on until it is killed, or waits for that after COUNT of them.
"""

import asyncio
import sys
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from coordinator.ledger.port import LedgerEntry
from coordinator.ledger.sqlite import SqliteLedger


def payload(number: int) -> bytes:
    """Some kilobytes now and then, so that the write-ahead log is moved into the file often."""
    return b"%d." % number * (1 if number % 4 else 1_500)


async def append(path: Path, numbers: Iterable[int], *, is_durable: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    ledger = await SqliteLedger.open(path, new_cluster_id="c", is_durable=is_durable)
    head = await ledger.head()
    session = await ledger.open_session("appender")
    print(f"open {head.position} {head.appends_count}", flush=True)
    for number in numbers:
        position = await ledger.append(session, [LedgerEntry(number=number, payload=payload(number))])
        print(f"{number} {position}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    words = sys.argv[2:]
    counts = [int(word) for word in words if word.isdigit()]
    asyncio.run(append(Path(sys.argv[1]), range(counts[0]) if counts else count(), is_durable="fast" not in words))
