"""The history of a run: what clients asked for and what they were told, a JSON object on each line, in order of time.

Rule: nothing is judged here. A history that breaks its own format raises `HistoryError`, for a checker that reads what
a generator did not mean would find nothing and be believed.

    {"index": 7, "time_ns": 1200, "process": 3, "type": "ok", "f": "txn", "client": "java-v2", "error": null,
     "rebalance_log": ["a-0"], "value": [["send", "a-1", [17, 4]], ["poll", {"a-0": [[5, 1], [6, 2]]}]]}

`type` is invoke, then ok (it happened), fail (it did not) or info (nobody knows). A process calls one thing at a time;
a call that never ended counts as info. `f` is txn, or send or poll (a transaction that only does that), assign and
subscribe (`value`: keys, topics), or crash (`value`: null; its process calls nothing ever after). A key is
`TOPIC-PARTITION`; a value is sent once to its key. When invoked, micro-operations are `["send", KEY, VALUE]` and
`["poll"]`; when completed, `["send", KEY, [OFFSET or null, VALUE]]` and `["poll", {KEY: [[OFFSET, VALUE], ...]}]`: null
and {} where there is nothing to tell. `rebalance_log`, in completions: keys that were assigned or revoked meanwhile.
`final` is true in the read of everything after the faults: all keys are assigned again and read from their beginning.

Source: Jepsen, jepsen.tests.kafka.
"""

import gc
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal, Self, TypeAlias, get_args

import msgspec

Type: TypeAlias = Literal["invoke", "ok", "fail", "info"]
Function: TypeAlias = Literal["txn", "send", "poll", "assign", "subscribe", "crash"]

TYPES: tuple[Type, ...] = get_args(Type)
FUNCTIONS: tuple[Function, ...] = get_args(Function)
TRANSACTIONS: frozenset[Function] = frozenset({"txn", "send", "poll"})
"""What sends and polls; the others change where a client reads."""

Pair: TypeAlias = tuple[int, int]
"""Offset and value of a record."""


class HistoryError(Exception):
    """A history that is not one: the message names the line, what is wrong and what belongs there."""


@dataclass(frozen=True, slots=True)
class MicroSend:
    """A record sent; `offset` is None until the broker has told it."""

    key: str
    value: int
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class MicroPoll:
    """One poll: the records of each key in the order in which they were returned."""

    records: Mapping[str, tuple[Pair, ...]] = field(default_factory=dict[str, tuple[Pair, ...]])


Micro: TypeAlias = MicroSend | MicroPoll


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One line: a call (`type` invoke) or its end.

    `micros` are what a txn, send or poll consists of, `keys` what an assign or subscribe names; else they are empty.
    """

    index: int
    time_ns: int
    process: int
    type: Type
    f: Function
    micros: tuple[Micro, ...] = ()
    keys: tuple[str, ...] = ()
    rebalance_log: tuple[str, ...] = ()
    error: str | None = None
    client: str = ""
    final: bool = False

    def sends(self) -> list[MicroSend]:
        return [micro for micro in self.micros if isinstance(micro, MicroSend)]

    def to_json(self) -> str:
        """The line, without its end."""
        fields: dict[str, object] = {
            "index": self.index,
            "time_ns": self.time_ns,
            "process": self.process,
            "type": self.type,
            "f": self.f,
            "value": self._value(),
            "error": self.error,
            "client": self.client,
        }
        if self.type != "invoke":
            fields["rebalance_log"] = self.rebalance_log
        if self.final:
            fields["final"] = True
        return json.dumps(fields, separators=(",", ":"))

    def _value(self) -> object:
        if self.f in TRANSACTIONS:
            return [_micro_to_json(micro, is_invoked=self.type == "invoke") for micro in self.micros]
        return None if self.f == "crash" else self.keys

    @classmethod
    def from_json(cls, line: str | bytes) -> Self:
        """The operation of a line.

        Raises HistoryError: a field is missing or has another type than the format says.
        """
        try:
            fields = msgspec.json.decode(line)
        except msgspec.DecodeError as broken:
            raise HistoryError(f"not JSON ({broken}): {line!r}") from broken
        _require(isinstance(fields, dict), "an object", fields)
        kind, function, value = fields.get("type"), fields.get("f"), fields.get("value")
        _require(kind in TYPES, f"type: one of {', '.join(TYPES)}", kind)
        _require(function in FUNCTIONS, f"f: one of {', '.join(FUNCTIONS)}", function)
        _require(function != "crash" or value is None, "value of a crash: null", value)
        error, client, is_final = fields.get("error"), fields.get("client", ""), fields.get("final", False)
        _require(error is None or isinstance(error, str), "error: a string or null", error)
        _require(isinstance(client, str), "client: a string", client)
        _require(isinstance(is_final, bool), "final: true or false", is_final)
        is_transaction = function in TRANSACTIONS
        return cls(
            index=_integer("index", fields.get("index")),
            time_ns=_integer("time_ns", fields.get("time_ns")),
            process=_integer("process", fields.get("process")),
            type=kind,
            f=function,
            micros=_micros(value, is_invoked=kind == "invoke") if is_transaction else (),
            keys=_keys("value", value) if not is_transaction and function != "crash" else (),
            rebalance_log=_keys("rebalance_log", fields.get("rebalance_log") or []),
            error=error,
            client=client,
            final=is_final,
        )


@dataclass(frozen=True, slots=True)
class Call:
    """What a process called and how that ended."""

    invoked: Op
    completed: Op


@dataclass(frozen=True, slots=True)
class History:
    """Operations in order of time, and the calls that they are, in the order in which these ended.

    Calls that never ended are last, completed as info behind the last line.
    """

    ops: tuple[Op, ...]
    calls: tuple[Call, ...]

    @classmethod
    def of(cls, ops: Iterable[Op]) -> Self:
        """The history of these operations.

        Raises HistoryError: they are out of order, a process calls twice at once, ends what it did not call or calls
        after its crash, a completion is of something else than was called, or a value is sent twice to a key.
        """
        ops = tuple(ops)
        _check_order(ops)
        _check_values_unique(ops)
        calls = _calls(ops)
        return cls(ops, calls)

    @classmethod
    def read(cls, path: Path) -> Self:
        """The history in a file.

        Raises HistoryError: see `of`; or a line is not an operation, whose number the message tells.
        """
        with _no_collection(), path.open("rb") as lines:
            return cls.of(_numbered(path, lines))


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without it half the time goes into looking for garbage among millions of objects that are all in use."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _numbered(path: Path, lines: Iterable[bytes]) -> Iterable[Op]:
    for number, line in enumerate(lines, start=1):
        try:
            yield Op.from_json(line)
        except HistoryError as error:
            raise HistoryError(f"{path}:{number}: {error}") from error


def _check_order(ops: Sequence[Op]) -> None:
    for before, after in pairwise(ops):
        if after.index <= before.index or after.time_ns < before.time_ns:
            raise HistoryError(
                f"line {after.index} at {after.time_ns} ns follows {before.index} at {before.time_ns} ns"
            )


def _check_values_unique(ops: Sequence[Op]) -> None:
    sent: dict[tuple[str, int], int] = {}
    for op in ops:
        if op.type == "invoke":
            for send in op.sends():
                first = sent.setdefault((send.key, send.value), op.index)
                if first != op.index:
                    raise HistoryError(f"lines {first} and {op.index} both send {send.value} to {send.key}")


def _calls(ops: Sequence[Op]) -> tuple[Call, ...]:
    calls: list[Call] = []
    open_calls: dict[int, Op] = {}
    crashed: set[int] = set()
    for op in ops:
        called = open_calls.pop(op.process, None)
        if op.type == "invoke":
            if called is not None:
                raise HistoryError(f"line {op.index}: process {op.process} calls before line {called.index} ended")
            if op.process in crashed:
                raise HistoryError(f"line {op.index}: process {op.process} has crashed; another number goes on")
            open_calls[op.process] = op
        else:
            calls.append(Call(_called(called, op), op))
        if op.f == "crash":
            crashed.add(op.process)
    last = ops[-1] if ops else None
    for count, called in enumerate(open_calls.values(), start=1):
        assert last is not None
        calls.append(Call(called, replace(called, type="info", index=last.index + count, time_ns=last.time_ns)))
    return tuple(calls)


def _called(called: Op | None, op: Op) -> Op:
    """What an operation completes."""
    if called is None:
        raise HistoryError(f"line {op.index}: process {op.process} ends what it did not call")
    if called.f != op.f:
        raise HistoryError(f"line {op.index} ends a {op.f}, but line {called.index} called {called.f}")
    before, after = ([(send.key, send.value) for send in each.sends()] for each in (called, op))
    if before != after:
        raise HistoryError(f"line {op.index} tells of sends {after}, but line {called.index} called {before}")
    return called


def _require(is_right: bool, wanted: str, got: object) -> None:
    if not is_right:
        raise HistoryError(f"{wanted}; not {got!r}")


def _integer(name: str, value: object) -> int:
    if type(value) is not int:
        raise HistoryError(f"{name}: an integer; not {value!r}")
    return value


def _keys(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(key, str) for key in value):
        raise HistoryError(f"{name}: a list of strings; not {value!r}")
    return tuple(value)


def _micros(value: object, *, is_invoked: bool) -> tuple[Micro, ...]:
    if not isinstance(value, list):
        raise HistoryError(f"value of a transaction: a list of sends and polls; not {value!r}")
    micro_of = _invoked_micro if is_invoked else _completed_micro
    return tuple([micro_of(micro) for micro in value])


def _invoked_micro(micro: object) -> Micro:
    match micro:
        case ["send", str(key), int(value)]:
            return MicroSend(key, value)
        case ["poll"]:
            return MicroPoll()
        case _:
            raise HistoryError(f'a call sends ["send", KEY, VALUE] and polls ["poll"]; not {micro!r}')


def _completed_micro(micro: object) -> Micro:
    match micro:
        case ["send", str(key), [int() | None as offset, int(value)]]:
            _require(
                offset is None or offset >= 0, "the offset of a send: from 0 on, or null where none was told", offset
            )
            return MicroSend(key, value, offset)
        case ["poll", dict(records)]:
            return MicroPoll(_records(records))
        case _:
            wanted = '["send", KEY, [OFFSET or null, VALUE]] or ["poll", {KEY: [[OFFSET, VALUE], ...]}]'
            raise HistoryError(f"a completion tells {wanted}; not {micro!r}")


def _records(records: object) -> dict[str, tuple[Pair, ...]]:
    try:
        return msgspec.convert(records, dict[str, tuple[Pair, ...]])
    except msgspec.ValidationError as broken:
        raise HistoryError(f"a poll tells {{KEY: [[OFFSET, VALUE], ...]}} ({broken}); not {records!r}") from broken


def _micro_to_json(micro: Micro, *, is_invoked: bool) -> object:
    match micro:
        case MicroSend(key, value, offset):
            return ["send", key, value if is_invoked else [offset, value]]
        case MicroPoll(records):
            return ["poll"] if is_invoked else ["poll", records]
