"""Makes small histories: what the tests of the checks judge.

Rule: calls are written down as they end, one after the other; `begun` and `ended` let them overlap.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self

from tests.jepsen.graph.evidence import Evidence
from tests.jepsen.graph.version_order import VersionOrder, version_orders
from tests.jepsen.history.history import Function, History, Micro, MicroPoll, MicroSend, Op, Pair, Type

KEY = "a-0"
STEP_NS = 1_000_000_000


def sent(value: int, offset: int | None = None, key: str = KEY) -> MicroSend:
    return MicroSend(key, value, offset)


def read(*pairs: Pair, key: str = KEY) -> MicroPoll:
    return MicroPoll({key: pairs})


def polled(records: Mapping[str, Sequence[Pair]]) -> MicroPoll:
    return MicroPoll({key: tuple(pairs) for key, pairs in records.items()})


class Made:
    """A history that grows; each line is a second after the one before."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self._open: dict[int, Op] = {}

    def begun(
        self, process: int, *micros: Micro, f: Function | None = None, keys: Sequence[str] = (), final: bool = False
    ) -> Self:
        """A call begins: of the micro-operations that its end will tell of."""
        asked = tuple([replace(each, offset=None) if isinstance(each, MicroSend) else MicroPoll() for each in micros])
        function = f or function_of(micros)
        op = Op(
            index=len(self.ops),
            time_ns=len(self.ops) * STEP_NS,
            process=process,
            type="invoke",
            f=function,
            micros=asked,
            keys=tuple(keys),
            client="made",
            final=final,
        )
        self._open[process] = op
        self.ops.append(op)
        return self

    def ended(
        self, process: int, *micros: Micro, kind: Type = "ok", rebalanced: Sequence[str] = (), error: str | None = None
    ) -> Self:
        """The call of a process ends."""
        index = len(self.ops)
        self.ops.append(
            replace(
                self._open.pop(process),
                index=index,
                time_ns=index * STEP_NS,
                type=kind,
                micros=micros,
                rebalance_log=tuple(rebalanced),
                error=error,
            )
        )
        return self

    def did(self, process: int, *micros: Micro, kind: Type = "ok", rebalanced: Sequence[str] = ()) -> Self:
        """A whole call."""
        return self.begun(process, *micros).ended(process, *micros, kind=kind, rebalanced=rebalanced)

    def assigned(
        self, process: int, *keys: str, f: Function = "assign", kind: Type = "ok", final: bool = False
    ) -> Self:
        return self.begun(process, f=f, keys=keys, final=final).ended(process, kind=kind)

    def history(self) -> History:
        return History.of(self.ops)

    def known(self) -> tuple[Evidence, Mapping[str, VersionOrder]]:
        """What the checks are given."""
        evidence = Evidence.of(self.history())
        return evidence, version_orders(evidence)


def function_of(micros: Sequence[Micro]) -> Function:
    kinds = {type(micro) for micro in micros}
    if kinds == {MicroSend}:
        return "send"
    return "poll" if kinds == {MicroPoll} else "txn"
