"""A reader that goes back: it reads stretches of the log again and again, through any agent, and compares.

    python -m tests.torture.rereader ADDRESSES TOPIC PARTITIONS STOP_FILE SEED

What was read once at an offset is there for ever: a stretch has no gap, and its values are those of every other time.
Lines on stdout: `R ms count` after each stretch, `B ms text` for what must not be, `X ms error` for any error.
"""

import random
import sys
import threading
import time
from pathlib import Path

from tests.torture.direct_reader import DirectReader, direct_reader
from tests.torture.history import Value

STRETCH_RECORDS_MAX = 2_000
PAUSE_SECONDS = 0.3
ERROR_SECONDS_MAX = 5.0


def say(kind: str, *fields: object) -> None:
    print(kind, time.time_ns() // 1_000_000, *fields, flush=True)


def read_again(reader: DirectReader, partition: int, chance: random.Random, known: dict[tuple[int, int], Value]) -> int:
    """One stretch; returns how many records it had."""
    end = reader.log_end(partition)
    first = chance.randrange(end) if end else 0
    wanted = first
    for read in reader.read_between(partition, first, min(end, first + STRETCH_RECORDS_MAX)):
        if read.offset != wanted:
            say("B", f"partition {partition}: offset {read.offset} came where {wanted} was next")
        before = known.setdefault((partition, read.offset), read.value)
        if before != read.value:
            say("B", f"partition {partition} offset {read.offset}: {read.value}, and {before} before")
        wanted = read.offset + 1
    return wanted - first


def main(addresses: list[str], topic: str, partitions: int, stop_file: Path, seed: int) -> None:
    chance, known, never = random.Random(seed), dict[tuple[int, int], Value](), threading.Event()
    while not stop_file.exists():
        try:
            with direct_reader(chance.choice(addresses), topic, partitions, seconds_max=ERROR_SECONDS_MAX) as reader:
                say("R", read_again(reader, chance.randrange(partitions), chance, known))
        except (OSError, AssertionError) as error:
            say("B" if "out of range" in str(error) else "X", str(error) or type(error).__name__)
        never.wait(PAUSE_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1].split(","), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5]))
