"""What a check finds: one anomaly, with what is needed to tell of it and to draw it.

Rule: a check only finds; whether a kind is an error is the business of the checker, for that depends on the run.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal[
    "inconsistent-offsets",
    "duplicate",
    "duplicate-nonzero",
    "phantom",
    "G1a",
    "precommitted-read",
    "lost-write",
    "torn-transaction",
    "unseen",
    "int-poll-skip",
    "int-nonmonotonic-poll",
    "poll-skip",
    "nonmonotonic-poll",
    "int-send-skip",
    "int-nonmonotonic-send",
    "nonmonotonic-send",
    "G0",
    "G0-process",
    "G0-realtime",
    "G1c",
    "G1c-process",
    "G1c-realtime",
    "G1c-ww",
    "G1c-ww-process",
    "G1c-ww-realtime",
]

MEANINGS: dict[Kind, str] = {
    "inconsistent-offsets": "one offset of a key was seen with different values",
    "duplicate": "one value stands at several offsets of its key",
    "duplicate-nonzero": "one value stands at several offsets of its key, of which more than one is not 0",
    "phantom": "a value was read that nobody sent to this key",
    "G1a": "aborted read: a value was read whose transaction failed",
    "precommitted-read": "a transaction read what it sent itself, before its own commit",
    "lost-write": "a later value of the key was read, this one never, though its transaction took place",
    "torn-transaction": "a part of a transaction can be read, another part is lost",
    "unseen": "a value was acknowledged and had not been read by anyone when the history ended",
    "int-poll-skip": "one transaction read two values of a key and left out what stands between them",
    "int-nonmonotonic-poll": "one transaction read a value of a key, then an earlier one or the same again",
    "poll-skip": "a process went on reading a key and left out what stands between",
    "nonmonotonic-poll": "a process went on reading a key at an earlier value or the same again",
    "int-send-skip": "between two values that a transaction sent to a key stand those of others",
    "int-nonmonotonic-send": "two values that a transaction sent to a key stand in the other order",
    "nonmonotonic-send": "values that a process sent to a key in two transactions stand in the other order",
    "G0": "write cycle: transactions overwrote each other in turn",
    "G0-process": "write cycle, closed by the order in which a process did things",
    "G0-realtime": "write cycle, closed by one having ended before another began",
    "G1c": "circular information flow: transactions read each other's values in turn",
    "G1c-process": "circular information flow, closed by the order in which a process did things",
    "G1c-realtime": "circular information flow, closed by one having ended before another began",
    "G1c-ww": "circular information flow through the order of writes",
    "G1c-ww-process": "circular information flow through the order of writes and that of a process",
    "G1c-ww-realtime": "circular information flow through the order of writes and that of time",
}


@dataclass(frozen=True, slots=True)
class Step:
    """An edge of a cycle: the first call (by its number in `History.calls`) comes before the next step's.

    `relation`: ww, wr, process or realtime. `text` says why.
    """

    call: int
    relation: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """One thing that should not be so.

    `text`: what is wrong. `key`, `values` and `offsets`: the records concerned. `calls`: the calls concerned, by their
    numbers in `History.calls`. `delta`: how far the second value stands behind the first in the log. `steps`: of a
    cycle; the last leads to the first.
    """

    kind: Kind
    text: str
    key: str = ""
    values: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()
    calls: tuple[int, ...] = ()
    delta: int = 0
    steps: tuple[Step, ...] = ()
