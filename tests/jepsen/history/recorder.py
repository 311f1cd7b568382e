"""Writes down what clients call and are told, as it happens: the history of a run.

Rule: a line is written before a call is made and after its answer came, so an operation lies wholly between its two
lines. Lines are in the order of their times, of all clients together. A process that crashed gets no second line of
calls: who goes on in its place has another number.
"""

import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import msgspec

from tests.jepsen.history.history import Op
from tests.jepsen.workload.generator import Call

_decode = msgspec.json.decode


class Recorder:
    """Use it in a `with` block. Threads may share it.

    tells_offsets: whether what clients say of where the records of their transactions stand means anything. Where these
    wait for the commit the answer is -1, from which clients count on for the batch's other records.
    """

    def __init__(self, path: Path, *, tells_offsets: bool = True) -> None:
        self._tells_offsets = tells_offsets
        self._file = path.open("w", encoding="utf-8")
        self._lock = threading.Lock()
        self._began_ns = time.monotonic_ns()
        self._indexes = self._processes = 0
        self.counts: Counter[tuple[str, str]] = Counter()
        """How often each function ended in each type."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close()

    def new_process(self) -> int:
        with self._lock:
            self._processes += 1
            return self._processes - 1

    def invoke(self, process: int, client: str, call: Call, *, is_final: bool) -> Op:
        op = Op(
            index=0,
            time_ns=0,
            process=process,
            type="invoke",
            f=call.f,
            micros=call.micros,
            keys=call.keys,
            client=client,
            final=is_final,
        )
        return self._write(op)

    def complete(self, invoked: Op, answer: dict[str, Any]) -> Op:
        """`answer`: as a client's program gives it.

        Raises HistoryError: it is not what the history's format says.
        """
        if not self._tells_offsets and invoked.f == "txn":
            for micro in answer.get("value") or ():
                if micro[0] == "send":
                    micro[2] = [None, micro[2][1]]
        fields = {**_decode(invoked.to_json()), **answer}
        return self._write(Op.from_json(msgspec.json.encode(fields)))

    def unknown(self, invoked: Op, reason: str) -> Op:
        """The client ended before it answered."""
        return self._write(replace(invoked, type="info", error=reason))

    def _write(self, op: Op) -> Op:
        with self._lock:
            written = replace(op, index=self._indexes, time_ns=time.monotonic_ns() - self._began_ns)
            self._indexes += 1
            self._file.write(written.to_json() + "\n")
            self._file.flush()
            if op.type != "invoke":
                self.counts[op.f, op.type] += 1
            return written
