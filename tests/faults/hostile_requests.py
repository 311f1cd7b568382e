"""Valid requests of every API and version, and what becomes of them in hostile hands. Deterministic from a seed.

Rule: values are drawn from pools that lead deep into a handler: topics that exist, small partitions, short time-outs.
"""

import random
import struct
import types
import typing
import uuid
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from functools import cache
from typing import Any

from kio.index import load_request_schema
from kio.static.primitive import Records

from protocol.api_versions import API_VERSIONS, ApiRange
from protocol.records.compression import Compression
from tests.support.records.kio_messages import KioEntity, kio_write
from tests.support.records.plain_records import Record, make_batch

SERVED = [(row, version) for row in API_VERSIONS for version in range(row.version_served_min, row.version_max + 1)]
TOPICS = ("hostile", "rough", "missing", "", "." * 250, "a/b", "__consumer_offsets")
TEXTS = (
    *TOPICS,
    "1",
    "compact",
    "retention.ms",
    "max.message.bytes",
    "-1",
    "cleanup.policy",
    "é\N{SNOWMAN}",
    "x" * 300,
)
INTEGERS = (-2, -1, 0, 1, 2, 3, 7)
STRANGE_NUMBERS = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x7f\xff",
    b"\xff\xff",
    b"\x00",
    b"\x00\x00\x00\x00",
)
BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63, "uint16": 16}


Hint = Any
"""The type of a field, as the interpreter shows it."""


class RequestMaker:
    """Makes requests. `topic_ids` are those of topics that exist."""

    def __init__(self, seed: int, *, topic_ids: typing.Sequence[uuid.UUID]) -> None:
        self._dice = random.Random(seed)
        self._topic_ids = [*topic_ids, uuid.UUID(int=7), None]
        self._batches = _batches()

    def hostile(self, correlation_id: int) -> bytes:
        """What stands behind a length prefix: a mutated request (mostly), a valid one, or noise."""
        dice = self._dice
        chance = dice.random()
        if chance < 0.05:
            return dice.randbytes(dice.randrange(200))
        row, version = dice.choice(SERVED)
        if chance < 0.1:
            return self.header(row, version, correlation_id) + dice.randbytes(dice.randrange(200))
        if chance < 0.12:
            version = dice.choice((-1, 99, row.version_max + 1, version))
        request = self.valid(row, version, correlation_id) if row.is_served(version) else b""
        return request if chance < 0.4 else self.mutated(request)

    def unframed(self) -> bytes:
        """Bytes with a wrong length prefix, or none."""
        dice = self._dice
        row, version = dice.choice(SERVED)
        request = self.valid(row, version, 1)
        framed = struct.pack(">i", len(request)) + request
        match dice.randrange(4):
            case 0:
                return dice.randbytes(dice.randrange(1, 400))
            case 1:
                return struct.pack(">i", dice.choice((-1, -(1 << 31), (1 << 31) - 1, 200 << 20, 0))) + request
            case 2:
                return framed[: dice.randrange(len(framed))]
            case _:
                return self.mutated(framed)

    def valid(self, row: ApiRange, version: int, correlation_id: int) -> bytes:
        """Header and body of a request that every field of its schema is right in."""
        schema = load_request_schema(int(row.api_key), version)
        return self.header(row, version, correlation_id) + kio_write(self._entity(schema))

    def header(self, row: ApiRange, version: int, correlation_id: int) -> bytes:
        client = self._dice.choice((b"", b"client", b"c" * 300))
        head = struct.pack(">hhih", row.api_key, version, correlation_id, len(client)) + client
        return head + b"\0" if row.is_flexible(version) else head

    def mutated(self, data: bytes) -> bytes:
        dice, changed = self._dice, bytearray(data)
        for _ in range(dice.choice((1, 1, 1, 2, 3))):
            position = dice.randint(0, len(changed))
            match dice.randrange(6):
                case 0:
                    changed[position : position + 1] = dice.randbytes(1)
                case 1:
                    strange = dice.choice(STRANGE_NUMBERS)
                    changed[position : position + len(strange)] = strange
                case 2:
                    del changed[position:]
                case 3:
                    del changed[position : position + dice.randint(1, 8)]
                case 4:
                    changed[position:position] = dice.randbytes(dice.randint(1, 8))
                case _:
                    if position < len(changed):
                        changed[position] ^= 1 << dice.randrange(8)
        return bytes(changed)

    def _entity(self, schema: type) -> KioEntity:
        hints = _hints(schema)
        values: dict[str, object] = {}
        for field in fields(schema):
            is_optional = field.default is not MISSING
            if not (is_optional and self._dice.random() < 0.2):
                values[field.name] = self._value(field.name, hints[field.name], field.metadata.get("kafka_type"))
        return schema(**values)

    def _value(self, name: str, hint: Hint, kind: str | None) -> object:
        dice = self._dice
        if isinstance(hint, types.UnionType):
            (inner,) = [part for part in hint.__args__ if part is not types.NoneType]
            return None if kind != "uuid" and dice.random() < 0.2 else self._value(name, inner, kind)
        if typing.get_origin(hint) is tuple:
            inner = typing.get_args(hint)[0]
            return tuple(self._value(name, inner, kind) for _ in range(dice.choice((0, 1, 1, 1, 2, 3))))
        if is_dataclass(hint):
            return self._entity(typing.cast("type", hint))
        match kind:
            case "string":
                return dice.choice(TOPICS if "topic" in name or name == "name" else TEXTS)
            case "bool":
                return dice.random() < 0.5
            case "uuid":
                return dice.choice(self._topic_ids)
            case "records":
                return Records(dice.choice(self._batches))
            case "bytes":
                return dice.randbytes(dice.randrange(40))
            case "timedelta_i32" | "timedelta_i64":
                return hint.parse(timedelta(milliseconds=dice.choice((0, 1, 5))))
            case "float64":
                return dice.random()
            case str() if kind in BITS:
                return self._integer(name, BITS[kind], is_signed=kind.startswith("i"))
            case _:
                raise AssertionError(f"no values for {name}: {hint} ({kind})")

    def _integer(self, name: str, bits: int, *, is_signed: bool) -> int:
        dice = self._dice
        if "wait" in name or "timeout" in name:
            return dice.choice((0, 1, 5))
        if name.endswith("bytes"):
            return dice.choice((-1, 0, 1, 1_000, 1 << 20))
        if dice.random() < 0.9:
            return dice.choice(INTEGERS) if is_signed else dice.choice(INTEGERS[2:])
        return dice.choice(((1 << bits) - 1, -(1 << bits))) if is_signed else (1 << bits) - 1


@cache
def _hints(schema: type) -> dict[str, Hint]:
    return typing.get_type_hints(schema)


def _batches() -> list[bytes]:
    records = [Record(offset=n, timestamp=n, key=b"k", value=b"v" * n, headers=((b"h", b"x"),)) for n in range(12)]
    whole = [make_batch(records, compression) for compression in Compression]
    return [*whole, b"", whole[0] * 2, whole[0][:70], bytes(100)]
